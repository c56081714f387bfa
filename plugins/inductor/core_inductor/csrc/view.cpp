// View: a tensor on the memory of another, with sizes, strides and an added offset known beforehand.
//
// view(tensor, *ints) takes about a quarter of the time of tensor.view(...) or tensor.t(): no dispatch and no argument
// parsing. It tracks nothing: the result is no view of the tensor for autograd, nor shares its version counter.

#include "layout.h"

#include <cstddef>
#include <new>
#include <structmember.h>

namespace runtime {

namespace {

constexpr int inline_ints = 16;

struct View {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    ModuleState *state;  // borrowed: lives in the module, which the type keeps
    Layout *layout;      // owned
    Py_ssize_t ints;
};

PyObject *view_of(const View *self, PyObject *tensor, PyObject *const *int_args) {
    try {
        Buffer<long, inline_ints> ints(self->ints);
        if (!read_ints(int_args, self->ints, ints.data())) {
            return nullptr;
        }
        int64_t space[layout_values];
        const int64_t *values = self->layout->evaluate(ints.data(), space);
        const Py_ssize_t ndim = self->layout->ndim();
        return on_storage_of(self->state->torch, tensor, values, values + ndim, ndim, values[2 * ndim]);
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

PyObject *view_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names) {
    const View *self = reinterpret_cast<View *>(object);
    if (PyVectorcall_NARGS(nargsf) != 1 + self->ints || (names != nullptr && PyTuple_GET_SIZE(names) != 0)) {
        PyErr_Format(PyExc_TypeError, "a view takes a tensor and %zd ints", self->ints);
        return nullptr;
    }
    if (!is_tensor(self->state->torch, args[0])) {
        PyErr_Format(PyExc_TypeError, "a view's argument 1 must be Tensor, not %s", Py_TYPE(args[0])->tp_name);
        return nullptr;
    }
    return view_of(self, args[0], args + 1);
}

PyObject *make_view(PyTypeObject *type, ModuleState *state, Layout *layout, Py_ssize_t ints) {
    View *self = reinterpret_cast<View *>(type->tp_alloc(type, 0));
    if (self != nullptr) {
        self->vectorcall = view_vectorcall;
        self->state = state;
        self->layout = layout;
        self->ints = ints;
    }
    return reinterpret_cast<PyObject *>(self);
}

PyObject *view_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"sizes", "strides", "offset", "ints", nullptr};
    PyObject *sizes, *strides, *offset = nullptr;
    Py_ssize_t ints = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|On", const_cast<char **>(names), &sizes, &strides, &offset,
                                     &ints)) {
        return nullptr;
    }
    PyObject *module = PyType_GetModuleByDef(type, &module_def);
    ModuleState *state = module == nullptr ? nullptr : module_state(module);
    if (state == nullptr || !state->torch.ready || ints < 0) {
        PyErr_SetString(PyExc_RuntimeError, "calibrate has not run in this process, or `ints` is negative");
        return nullptr;
    }
    Layout *layout = nullptr;
    PyObject *self = nullptr;
    try {
        layout = new Layout;
        self = layout->parse(sizes, strides, offset, ints) ? make_view(type, state, layout, ints) : nullptr;
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    }
    if (self == nullptr) {
        delete layout;
    }
    return self;
}

void view_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    delete reinterpret_cast<View *>(object)->layout;
    type->tp_free(object);
    Py_DECREF(type);
}

PyMemberDef view_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(View, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

constexpr char view_doc[] =
    "View(sizes, strides, offset=0, ints=0): view(tensor, *ints) is a tensor on the memory of another.\n\n"
    "Sizes, strides and offset (elements, added to the tensor's own) are ints or ('int', k) for the k-th int.";

PyType_Slot view_slots[] = {
    {Py_tp_doc, const_cast<char *>(view_doc)},
    {Py_tp_new, reinterpret_cast<void *>(view_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(view_dealloc)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_members, view_members},
    {0, nullptr},
};

}  // namespace

PyType_Spec view_spec = {"core_inductor._runtime.View", sizeof(View), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, view_slots};

}  // namespace runtime
