// Kernel: a generated function as a Python callable. kernel(*tensors, *ints, *floats) reads the data pointers,
// allocates the outputs and runs the function; no other Python code runs on the way.
//
// A Kernel is immutable after its construction, so threads may share it without a lock.

#include "layout.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <structmember.h>

namespace runtime {

namespace {

constexpr int inline_pointers = 40;
constexpr int inline_scalars = 24;

struct Output {
    Layout layout;
    int32_t dtype = 0;
    PyObject *dtype_object = nullptr;  // owned
    Py_ssize_t reuse = -1;             // the input whose storage this output takes over
};

struct Plan {
    KernelFunction function = nullptr;
    Py_ssize_t inputs = 0;
    Py_ssize_t ints = 0;
    Py_ssize_t floats = 0;
    bool parallel = true;
    int64_t grain_elements = 0;
    int64_t parallel_elements = 0;
    int64_t release_elements = 0;
    PyObject *failures = nullptr;  // owned: dict, nonzero result -> (exception type, message)
    std::vector<Output> outputs;
};

struct Kernel {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    ModuleState *state;  // borrowed: lives in the module, which the type keeps
    PyObject *library;   // owned
    PyObject *name;      // owned
    Plan *plan;          // owned
};

// False with an exception for a tensor that has elements but no memory (fake and meta tensors).
bool read_pointer(const Kernel *self, PyObject *tensor, void **pointer) {
    const TorchSymbols &torch = self->state->torch;
    void *handle = tensor_handle(torch, tensor);
    if (torch.get_data_ptr(handle, pointer) == 0) {
        int64_t elements;
        if (*pointer != nullptr || (torch.get_numel(handle, &elements) == 0 && elements == 0)) {
            return true;
        }
    }
    PyErr_Format(PyExc_RuntimeError, "%U: cannot read the memory of a tensor of type %s", self->name,
                 Py_TYPE(tensor)->tp_name);
    return false;
}

bool read_inputs(const Kernel *self, PyObject *const *args, void **pointers) {
    for (Py_ssize_t i = 0; i < self->plan->inputs; i++) {
        if (!is_tensor(self->state->torch, args[i])) {
            PyErr_Format(PyExc_TypeError, "%U(): argument %zd must be Tensor, not %s", self->name, i + 1,
                         Py_TYPE(args[i])->tp_name);
            return false;
        }
        if (!read_pointer(self, args[i], &pointers[i])) {
            return false;
        }
    }
    return true;
}

bool read_scalars(const Kernel *self, PyObject *const *args, long *ints, double *floats) {
    const Plan &plan = *self->plan;
    args += plan.inputs;
    if (!read_ints(args, plan.ints, ints)) {
        return false;
    }
    args += plan.ints;
    for (Py_ssize_t i = 0; i < plan.floats; i++) {
        floats[i] = PyFloat_AsDouble(args[i]);
        if (floats[i] == -1.0 && PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

int64_t element_count(const int64_t *sizes, Py_ssize_t ndim) {
    int64_t count = 1;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        if (__builtin_mul_overflow(count, sizes[i], &count)) {
            return INT64_MAX;
        }
    }
    return count;
}

// New reference to one output, allocated or on the storage of an input. Raises `elements` to its element count.
PyObject *make_output(const Kernel *self, const Output &output, PyObject *const *args, const long *ints,
                      int64_t *elements) {
    const TorchSymbols &torch = self->state->torch;
    int64_t space[layout_values];
    const int64_t *sizes = output.layout.evaluate(ints, space);
    const Py_ssize_t ndim = output.layout.ndim();
    const int64_t *strides = sizes + ndim;
    *elements = std::max(*elements, element_count(sizes, ndim));
    if (output.reuse < 0) {
        return allocate(torch, sizes, strides, ndim, output.dtype, output.dtype_object);
    }
    PyObject *donor = args[output.reuse];
    return has_layout(torch, donor, sizes, strides, ndim)
               ? Py_NewRef(donor)
               : on_storage_of(torch, donor, sizes, strides, ndim, 0);
}

// The largest number of elements among the inputs and `elements`: what decides on threads and the GIL.
int64_t work_elements(const Kernel *self, PyObject *const *args, int64_t elements) {
    const TorchSymbols &torch = self->state->torch;
    for (Py_ssize_t i = 0; i < self->plan->inputs; i++) {
        int64_t count;
        if (torch.get_numel(tensor_handle(torch, args[i]), &count) == 0 && count > elements) {
            elements = count;
        }
    }
    return elements;
}

// All of torch's threads or one, never a number between: libgomp ends the workers that a smaller team leaves over, and
// starting them again costs more than they save.
int thread_count(const Kernel *self, int64_t elements) {
    const Plan &plan = *self->plan;
    const TorchSymbols &torch = self->state->torch;
    if (!plan.parallel || elements < plan.grain_elements) {
        return 1;
    }
    const int64_t wanted = std::min(plan.grain_elements * available_threads(torch), plan.parallel_elements);
    return elements < wanted ? 1 : claim_threads(torch);
}

int run(const Kernel *self, PyObject *const *args, void *const *pointers, const long *ints, const double *floats,
         int64_t elements) {
    const Plan &plan = *self->plan;
    elements = work_elements(self, args, elements);
    const int nthreads = thread_count(self, elements);
    if (elements < plan.release_elements) {
        return plan.function(pointers, ints, floats, nthreads);
    }
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = plan.function(pointers, ints, floats, nthreads);
    Py_END_ALLOW_THREADS
    return status;
}

void raise_failure(const Kernel *self, int status) {
    PyObject *failures = self->plan->failures;
    PyObject *key = PyLong_FromLong(status);
    PyObject *entry = key && failures ? PyDict_GetItemWithError(failures, key) : nullptr;  // borrowed
    PyObject *type;
    const char *message;
    if (entry != nullptr && PyArg_ParseTuple(entry, "Os", &type, &message)) {
        PyErr_SetString(type, message);
    } else if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_RuntimeError, "%U failed with status %d", self->name, status);
    }
    Py_XDECREF(key);
}

PyObject *call_with(const Kernel *self, PyObject *const *args, void **pointers, long *ints, double *floats) {
    const Plan &plan = *self->plan;
    if (!read_inputs(self, args, pointers) || !read_scalars(self, args, ints, floats)) {
        return nullptr;
    }
    const Py_ssize_t count = static_cast<Py_ssize_t>(plan.outputs.size());
    PyObject *tuple = count == 1 ? nullptr : PyTuple_New(count);
    if (count != 1 && tuple == nullptr) {
        return nullptr;
    }
    PyObject *tensor = nullptr;
    int64_t elements = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        tensor = make_output(self, plan.outputs[static_cast<size_t>(i)], args, ints, &elements);
        if (tensor == nullptr || !read_pointer(self, tensor, &pointers[plan.inputs + i])) {
            goto fail;
        }
        if (tuple != nullptr) {
            PyTuple_SET_ITEM(tuple, i, tensor);
            tensor = nullptr;
        }
    }
    if (const int status = run(self, args, pointers, ints, floats, elements); status != 0) {
        raise_failure(self, status);
        goto fail;
    }
    return tuple != nullptr ? tuple : tensor;
fail:
    Py_XDECREF(tensor);
    Py_XDECREF(tuple);
    return nullptr;
}

PyObject *kernel_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names) {
    const Kernel *self = reinterpret_cast<Kernel *>(object);
    const Plan &plan = *self->plan;
    const Py_ssize_t expected = plan.inputs + plan.ints + plan.floats;
    if (names != nullptr && PyTuple_GET_SIZE(names) != 0) {
        PyErr_Format(PyExc_TypeError, "%U() takes no keyword arguments", self->name);
        return nullptr;
    }
    if (PyVectorcall_NARGS(nargsf) != expected) {
        PyErr_Format(PyExc_TypeError, "%U() takes %zd tensors, %zd ints and %zd floats (%zd given)", self->name,
                     plan.inputs, plan.ints, plan.floats, PyVectorcall_NARGS(nargsf));
        return nullptr;
    }
    try {
        Buffer<void *, inline_pointers> pointers(plan.inputs + static_cast<Py_ssize_t>(plan.outputs.size()));
        Buffer<long, inline_scalars> ints(plan.ints);
        Buffer<double, inline_scalars> floats(plan.floats);
        return call_with(self, args, pointers.data(), ints.data(), floats.data());
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

// One entry of `outputs`: (sizes, strides, dtype_code, dtype, reused input or -1).
bool parse_output(PyObject *description, const Plan &plan, Output *output) {
    PyObject *sizes, *strides, *dtype;
    int code;
    Py_ssize_t reuse;
    if (!PyTuple_Check(description) || !PyArg_ParseTuple(description, "OOiOn", &sizes, &strides, &code, &dtype, &reuse)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "an output is (sizes, strides, dtype_code, dtype, reuse)");
        }
        return false;
    }
    if (reuse < -1 || reuse >= plan.inputs) {
        PyErr_Format(PyExc_ValueError, "output reuses input %zd of %zd", reuse, plan.inputs);
        return false;
    }
    if (!output->layout.parse(sizes, strides, nullptr, plan.ints)) {
        return false;
    }
    output->dtype = code;
    output->dtype_object = Py_NewRef(dtype);
    output->reuse = reuse;
    return true;
}

bool parse_plan(PyObject *outputs, Plan *plan) {
    if (plan->inputs < 0 || plan->ints < 0 || plan->floats < 0) {
        PyErr_SetString(PyExc_ValueError, "argument counts are not negative");
        return false;
    }
    plan->outputs.resize(static_cast<size_t>(PyTuple_GET_SIZE(outputs)));
    for (size_t i = 0; i < plan->outputs.size(); i++) {
        if (!parse_output(PyTuple_GET_ITEM(outputs, static_cast<Py_ssize_t>(i)), *plan, &plan->outputs[i])) {
            return false;
        }
    }
    return true;
}

void free_plan(Plan *plan) {
    if (plan == nullptr) {
        return;
    }
    for (Output &output : plan->outputs) {
        Py_CLEAR(output.dtype_object);
    }
    Py_CLEAR(plan->failures);
    delete plan;
}

PyObject *build_kernel(PyTypeObject *type, PyObject *library, PyObject *name, PyObject *outputs, Plan *plan) {
    PyObject *module = PyType_GetModuleByDef(type, &module_def);
    if (module == nullptr || !parse_plan(outputs, plan)) {
        return nullptr;
    }
    ModuleState *state = module_state(module);
    if (!state->torch.ready) {
        PyErr_SetString(PyExc_RuntimeError, "calibrate has not run in this process");
        return nullptr;
    }
    const char *symbol = PyUnicode_AsUTF8(name);
    if (symbol == nullptr) {
        return nullptr;
    }
    plan->function = reinterpret_cast<KernelFunction>(library_symbol(library, symbol));
    if (plan->function == nullptr) {
        PyErr_Format(PyExc_KeyError, "the library has no symbol %R", name);
        return nullptr;
    }
    Kernel *self = reinterpret_cast<Kernel *>(type->tp_alloc(type, 0));
    if (self != nullptr) {
        self->vectorcall = kernel_vectorcall;
        self->state = state;
        self->library = Py_NewRef(library);
        self->name = Py_NewRef(name);
        self->plan = plan;
    }
    return reinterpret_cast<PyObject *>(self);
}

PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"library", "name",     "inputs",            "outputs",          "ints",
                                  "floats", "failures", "parallel", "grain_elements", "parallel_elements", "release_elements", nullptr};
    PyObject *module = PyType_GetModuleByDef(type, &module_def);
    if (module == nullptr) {
        return nullptr;
    }
    Plan *plan = new (std::nothrow) Plan;
    if (plan == nullptr) {
        return PyErr_NoMemory();
    }
    PyObject *library, *name, *outputs, *failures = nullptr, *self = nullptr;
    int parallel = 1;
    long long grain_elements = 0, parallel_elements = 0, release_elements = 0;
    if (PyArg_ParseTupleAndKeywords(args, kwargs, "O!UnO!|nn$O!pLLL", const_cast<char **>(names),
                                    module_state(module)->library_type, &library, &name, &plan->inputs, &PyTuple_Type,
                                    &outputs, &plan->ints, &plan->floats, &PyDict_Type, &failures, &parallel, &grain_elements, &parallel_elements,
                                    &release_elements)) {
        plan->failures = Py_XNewRef(failures);
        plan->parallel = parallel != 0;
        plan->grain_elements = grain_elements;
        plan->parallel_elements = parallel_elements;
        plan->release_elements = release_elements;
        try {
            self = build_kernel(type, library, name, outputs, plan);
        } catch (const std::bad_alloc &) {
            PyErr_NoMemory();
        }
    }
    if (self == nullptr) {
        free_plan(plan);
    }
    return self;
}

void kernel_dealloc(PyObject *object) {
    Kernel *self = reinterpret_cast<Kernel *>(object);
    PyTypeObject *type = Py_TYPE(object);
    free_plan(self->plan);
    Py_XDECREF(self->library);
    Py_XDECREF(self->name);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject *kernel_repr(PyObject *object) {
    const Kernel *self = reinterpret_cast<Kernel *>(object);
    return PyUnicode_FromFormat("<Kernel %U: %zd inputs, %zd outputs>", self->name, self->plan->inputs,
                                static_cast<Py_ssize_t>(self->plan->outputs.size()));
}

PyMemberDef kernel_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Kernel, vectorcall), READONLY, nullptr},
    {"name", T_OBJECT_EX, offsetof(Kernel, name), READONLY, PyDoc_STR("the C symbol")},
    {"library", T_OBJECT_EX, offsetof(Kernel, library), READONLY, PyDoc_STR("the Library it lives in")},
    {nullptr, 0, 0, 0, nullptr},
};

constexpr char kernel_doc[] =
    "Kernel(library, name, inputs, outputs, ints=0, floats=0, *, failures={}, parallel=True,\n"
    "grain_elements=0, parallel_elements=0, release_elements=0): a generated function as a callable of tensors, ints and floats.\n\n"
    "outputs: tuple of (sizes, strides, dtype_code, dtype, reuse), sizes and strides being ints or ('int', k) for the\n"
    "k-th int argument. failures: nonzero result -> (exception type, message). It uses torch's threads when each gets grain_elements, or from parallel_elements on,\n"
    "and releases the GIL from release_elements on; all count the elements of the largest tensor.";

PyType_Slot kernel_slots[] = {
    {Py_tp_doc, const_cast<char *>(kernel_doc)},
    {Py_tp_new, reinterpret_cast<void *>(kernel_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(kernel_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(kernel_repr)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_members, kernel_members},
    {0, nullptr},
};

}  // namespace

PyType_Spec kernel_spec = {"core_inductor._runtime.Kernel", sizeof(Kernel), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, kernel_slots};

}  // namespace runtime
