// The module core_inductor._runtime: its state, its functions and its two types.

#include "runtime.h"

namespace runtime {

namespace {

PyObject *empty_strided(PyObject *module, PyObject *args) {
    PyObject *sizes, *strides, *dtype;
    int code;
    if (!PyArg_ParseTuple(args, "O!O!iO", &PyTuple_Type, &sizes, &PyTuple_Type, &strides, &code, &dtype)) {
        return nullptr;
    }
    const TorchSymbols &torch = module_state(module)->torch;
    const Py_ssize_t ndim = PyTuple_GET_SIZE(sizes);
    if (!torch.ready || ndim != PyTuple_GET_SIZE(strides) || ndim > 64) {
        PyErr_SetString(PyExc_ValueError, "empty_strided wants calibrate first, and as many strides as sizes");
        return nullptr;
    }
    int64_t values[128];
    for (Py_ssize_t i = 0; i < ndim; i++) {
        values[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, i));
        values[ndim + i] = PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
    }
    if (PyErr_Occurred()) {
        return nullptr;
    }
    return allocate(torch, values, values + ndim, ndim, code, dtype);
}

PyObject *dtype_code(PyObject *module, PyObject *tensor) {
    const TorchSymbols &torch = module_state(module)->torch;
    int32_t code;
    if (!torch.ready || !is_tensor(torch, tensor) || torch.get_dtype(tensor_handle(torch, tensor), &code) != 0) {
        PyErr_SetString(PyExc_TypeError, "dtype_code(tensor), after calibrate");
        return nullptr;
    }
    return PyLong_FromLong(code);
}

PyObject *data_pointer(PyObject *module, PyObject *tensor) {
    const TorchSymbols &torch = module_state(module)->torch;
    void *pointer;
    if (!torch.ready || !is_tensor(torch, tensor) || torch.get_data_ptr(tensor_handle(torch, tensor), &pointer) != 0) {
        PyErr_SetString(PyExc_TypeError, "data_pointer(tensor), after calibrate");
        return nullptr;
    }
    return PyLong_FromVoidPtr(pointer);
}

PyObject *allocation(PyObject *module, PyObject *) { return allocation_name(module_state(module)->torch); }

// Allocate through torch.empty_strided from now on; Python calls it when its test of the fast way fails.
PyObject *allocate_in_python(PyObject *module, PyObject *) {
    module_state(module)->torch.allocation = Allocation::python;
    Py_RETURN_NONE;
}

PyObject *threads(PyObject *module, PyObject *) {
    const TorchSymbols &torch = module_state(module)->torch;
    if (!torch.ready) {
        PyErr_SetString(PyExc_RuntimeError, "calibrate has not run in this process");
        return nullptr;
    }
    return PyLong_FromLong(available_threads(torch));
}

PyMethodDef methods[] = {
    {"calibrate", calibrate, METH_VARARGS,
     PyDoc_STR("calibrate(torch, samples) -> str: find torch's functions; samples are (tensor, impl address) pairs.")},
    {"allocation", allocation, METH_NOARGS, PyDoc_STR("allocation() -> 'shim' or 'python'.")},
    {"allocate_in_python", allocate_in_python, METH_NOARGS,
     PyDoc_STR("Allocate through torch.empty_strided from now on.")},
    {"check_layout", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(check_layout)), METH_FASTCALL,
     PyDoc_STR("check_layout(tensor, sizes, strides, dtype_code) -> bool; strides of sizes 0 and 1 don't count.")},
    {"empty_strided", empty_strided, METH_VARARGS,
     PyDoc_STR("empty_strided(sizes, strides, dtype_code, dtype) -> an uninitialised CPU tensor.")},
    {"dtype_code", dtype_code, METH_O, PyDoc_STR("dtype_code(tensor) -> torch's number of its dtype.")},
    {"data_pointer", data_pointer, METH_O, PyDoc_STR("data_pointer(tensor) -> int.")},
    {"thread_count", threads, METH_NOARGS, PyDoc_STR("thread_count() -> the threads a kernel may use now.")},
    {nullptr, nullptr, 0, nullptr},
};

bool add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type) {
    *type = reinterpret_cast<PyTypeObject *>(PyType_FromModuleAndSpec(module, spec, nullptr));
    return *type != nullptr && PyModule_AddType(module, *type) == 0;
}

int module_exec(PyObject *module) {
    ModuleState *state = module_state(module);
    watch_forks();
    return add_type(module, &library_spec, &state->library_type) && add_type(module, &kernel_spec, &state->kernel_type) &&
                   add_type(module, &view_spec, &state->view_type)
               ? 0
               : -1;
}

int module_traverse(PyObject *module, visitproc visit, void *arg) {
    ModuleState *state = module_state(module);
    Py_VISIT(state->library_type);
    Py_VISIT(state->kernel_type);
    Py_VISIT(state->view_type);
    return traverse_symbols(&state->torch, visit, arg);
}

int module_clear(PyObject *module) {
    ModuleState *state = module_state(module);
    Py_CLEAR(state->library_type);
    Py_CLEAR(state->kernel_type);
    Py_CLEAR(state->view_type);
    clear_symbols(&state->torch);
    return 0;
}

void module_free(void *module) { module_clear(static_cast<PyObject *>(module)); }

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void *>(module_exec)},
    {0, nullptr},
};

}  // namespace

PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    "_runtime",
    PyDoc_STR("Runs generated kernels on torch tensors without linking torch."),
    sizeof(ModuleState),
    methods,
    slots,
    module_traverse,
    module_clear,
    module_free,
};

ModuleState *module_state(PyObject *module) { return static_cast<ModuleState *>(PyModule_GetState(module)); }

}  // namespace runtime

PyMODINIT_FUNC PyInit__runtime(void) { return PyModuleDef_Init(&runtime::module_def); }
