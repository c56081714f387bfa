// Finding torch's functions in the running process, and the few tensor operations built on them.
//
// Nearly all of it is torch's C shim (aoti_torch_*), a stable C interface. Making a Python tensor of a handle has no name
// there, so THPVariable_Wrap is looked up by the mangled names it has had; Python tests what comes back before it lets it
// be used. Measured beside, ns: at::detail::empty_strided_cpu past the shim 357 a kernel call instead of 366; the DLPack
// exchange API 48 a pointer read instead of 5, and 626 a new tensor instead of 300.

#include "runtime.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>

namespace runtime {

namespace {

constexpr char wrap_moved_name[] = "_Z16THPVariable_WrapON2at10TensorBaseE";
constexpr char wrap_shared_name[] = "_Z16THPVariable_WrapRKN2at10TensorBaseE";
constexpr char wrap_by_value_name[] = "_Z16THPVariable_WrapN2at10TensorBaseE";
constexpr char get_num_threads_name[] = "_ZN2at15get_num_threadsEv";

template <typename Function> bool find(void *library, const char *name, Function *function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
}

// A handle of a library that's in the process already, or nullptr with ImportError set.
void *loaded_library(const char *name) {
    void *library = dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
    if (library == nullptr) {
        PyErr_Format(PyExc_ImportError, "%s is not loaded in this process: import torch first", name);
    }
    return library;
}

bool find_shim(void *cpu, TorchSymbols *torch) {
    return find(cpu, "aoti_torch_get_data_ptr", &torch->get_data_ptr) &&
           find(cpu, "aoti_torch_get_numel", &torch->get_numel) && find(cpu, "aoti_torch_get_dim", &torch->get_dim) &&
           find(cpu, "aoti_torch_get_sizes", &torch->get_sizes) &&
           find(cpu, "aoti_torch_get_strides", &torch->get_strides) &&
           find(cpu, "aoti_torch_get_dtype", &torch->get_dtype) &&
           find(cpu, "aoti_torch_get_storage_offset", &torch->get_storage_offset) &&
           find(cpu, "aoti_torch_get_storage_size", &torch->get_storage_size) &&
           find(cpu, "aoti_torch_dtype_element_size", &torch->element_size) &&
           find(cpu, "aoti_torch_get_device_type", &torch->get_device_type);
}

Allocation find_allocation(void *cpu, void *python, TorchSymbols *torch) {
    find(python, wrap_moved_name, &torch->wrap_moved);
    if (!find(python, wrap_shared_name, &torch->wrap_shared)) {
        find(python, wrap_by_value_name, &torch->wrap_shared);
    }
    const bool wraps = torch->wrap_moved != nullptr || torch->wrap_shared != nullptr;
    const bool allocates = find(cpu, "aoti_torch_empty_strided", &torch->shim_empty_strided) &&
                           find(cpu, "aoti_torch__reinterpret_tensor", &torch->reinterpret) &&
                           find(cpu, "aoti_torch_delete_tensor_object", &torch->delete_tensor);
    return wraps && allocates ? Allocation::shim : Allocation::python;
}

// Reads the word at `offset` of a Python object.
uintptr_t word_at(PyObject *object, Py_ssize_t offset) {
    uintptr_t word;
    std::memcpy(&word, reinterpret_cast<char *>(object) + offset, sizeof word);
    return word;
}

// Looks for the TensorImpl pointer inside the object's own bytes; nothing found there is followed.
Py_ssize_t find_impl_offset(PyObject *samples) {
    for (Py_ssize_t offset = sizeof(PyObject);; offset += sizeof(void *)) {
        Py_ssize_t matches = 0;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(samples); i++) {
            PyObject *tensor, *address;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(samples, i), "OO", &tensor, &address)) {
                return -1;
            }
            if (offset + static_cast<Py_ssize_t>(sizeof(void *)) > Py_TYPE(tensor)->tp_basicsize) {
                PyErr_SetString(PyExc_ImportError, "this torch keeps its tensors in an unknown layout");
                return -1;
            }
            const uintptr_t expected = reinterpret_cast<uintptr_t>(PyLong_AsVoidPtr(address));
            if (PyErr_Occurred()) {
                return -1;
            }
            matches += word_at(tensor, offset) == expected;
        }
        if (matches == PyTuple_GET_SIZE(samples)) {
            return offset;
        }
    }
}

PyTypeObject *type_attribute(PyObject *module, const char *name) {
    PyObject *type = PyObject_GetAttrString(module, name);
    if (type != nullptr && !PyType_Check(type)) {
        PyErr_Format(PyExc_TypeError, "%s is not a type", name);
        Py_CLEAR(type);
    }
    return reinterpret_cast<PyTypeObject *>(type);
}

bool find_types(PyObject *torch_module, TorchSymbols *torch) {
    PyObject *nn = PyObject_GetAttrString(torch_module, "nn");
    if (nn == nullptr) {
        return false;
    }
    Py_XSETREF(torch->parameter_type, type_attribute(nn, "Parameter"));
    Py_DECREF(nn);
    Py_XSETREF(torch->tensor_type, type_attribute(torch_module, "Tensor"));
    Py_XSETREF(torch->empty_strided, PyObject_GetAttrString(torch_module, "empty_strided"));
    return torch->parameter_type != nullptr && torch->tensor_type != nullptr && torch->empty_strided != nullptr;
}

bool find_symbols(TorchSymbols *torch) {
    void *cpu = loaded_library("libtorch_cpu.so");
    void *python = cpu == nullptr ? nullptr : loaded_library("libtorch_python.so");
    if (python == nullptr) {
        return false;
    }
    if (!find_shim(cpu, torch) || !find(cpu, get_num_threads_name, &torch->get_num_threads)) {
        PyErr_SetString(PyExc_ImportError, "this torch does not export the C functions that reading tensors needs");
        return false;
    }
    torch->allocation = find_allocation(cpu, python, torch);
    return true;
}

// Wraps and gives up a heap-allocated at::Tensor.
PyObject *wrap_handle(const TorchSymbols &torch, void *handle) {
    PyObject *result = nullptr;
    try {
        result = torch.wrap_moved != nullptr ? torch.wrap_moved(handle) : torch.wrap_shared(handle);
    } catch (...) {
        result = nullptr;
    }
    torch.delete_tensor(handle);
    return result;
}

PyObject *allocate_shim(const TorchSymbols &torch, const int64_t *sizes, const int64_t *strides, Py_ssize_t ndim,
                        int32_t dtype) {
    constexpr int32_t cpu = 0;
    void *handle = nullptr;
    if (torch.shim_empty_strided(ndim, sizes, strides, dtype, cpu, 0, &handle) != 0) {
        return nullptr;
    }
    return wrap_handle(torch, handle);
}

PyObject *tuple_of(const int64_t *values, Py_ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != nullptr && i < count; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (value == nullptr) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, value);
    }
    return tuple;
}

PyObject *allocate_python(const TorchSymbols &torch, const int64_t *sizes, const int64_t *strides, Py_ssize_t ndim,
                          PyObject *dtype_object) {
    PyObject *size_tuple = tuple_of(sizes, ndim);
    PyObject *stride_tuple = tuple_of(strides, ndim);
    PyObject *keywords = Py_BuildValue("{sOss}", "dtype", dtype_object, "device", "cpu");
    PyObject *arguments = size_tuple && stride_tuple ? PyTuple_Pack(2, size_tuple, stride_tuple) : nullptr;
    PyObject *result = arguments && keywords ? PyObject_Call(torch.empty_strided, arguments, keywords) : nullptr;
    Py_XDECREF(size_tuple);
    Py_XDECREF(stride_tuple);
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    return result;
}

// Compares a tuple of ints with `values`; -1 with an exception, else 0 or 1.
int same_values(PyObject *tuple, const int64_t *values, int64_t count) {
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "sizes and strides are tuples of ints");
        return -1;
    }
    if (PyTuple_GET_SIZE(tuple) != count) {
        return 0;
    }
    for (int64_t i = 0; i < count; i++) {
        const long long expected = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (expected == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (expected != values[i]) {
            return 0;
        }
    }
    return 1;
}

// Strides of sizes 0 and 1 have no meaning, so they aren't compared; neither is any stride of an empty tensor.
int same_strides(PyObject *tuple, const int64_t *sizes, const int64_t *strides, int64_t count) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != count) {
        PyErr_SetString(PyExc_TypeError, "strides are a tuple of ints, as many as sizes");
        return -1;
    }
    for (int64_t i = 0; i < count; i++) {
        if (sizes[i] == 0) {
            return 1;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        const long long expected = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (expected == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (sizes[i] > 1 && expected != strides[i]) {
            return 0;
        }
    }
    return 1;
}

}  // namespace

bool is_tensor(const TorchSymbols &torch, PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    return type == torch.tensor_type || type == torch.parameter_type || PyType_IsSubtype(type, torch.tensor_type);
}

void *tensor_handle(const TorchSymbols &torch, PyObject *tensor) {
    return reinterpret_cast<char *>(tensor) + torch.impl_offset;
}

PyObject *allocate(const TorchSymbols &torch, const int64_t *sizes, const int64_t *strides, Py_ssize_t ndim,
                   int32_t dtype, PyObject *dtype_object) {
    if (torch.allocation == Allocation::shim) {
        PyObject *result = allocate_shim(torch, sizes, strides, ndim, dtype);
        if (result != nullptr || PyErr_Occurred()) {
            return result;
        }
    }
    // Also where the shim failed: its error is a bare code, and torch's own function raises the message eager gives.
    return allocate_python(torch, sizes, strides, ndim, dtype_object);
}

PyObject *allocation_name(const TorchSymbols &torch) {
    constexpr const char *names[] = {"shim", "python"};
    return PyUnicode_FromString(names[static_cast<int>(torch.allocation)]);
}

namespace {

// The elements that a layout spans from its first to behind its last one; -1 for a negative size, stride or offset and
// for what does not fit 64 bits.
int64_t span(const int64_t *sizes, const int64_t *strides, Py_ssize_t ndim, int64_t offset) {
    int64_t last = offset;
    bool empty = false;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        int64_t reach;
        if (sizes[i] < 0 || strides[i] < 0) {
            return -1;
        }
        empty = empty || sizes[i] == 0;
        if (sizes[i] > 0 && (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
                             __builtin_add_overflow(last, reach, &last))) {
            return -1;
        }
    }
    return offset < 0 ? -1 : empty ? 0 : last + 1;
}

// True when a layout lies inside the storage of `tensor`; torch's own function does not look.
bool fits_storage(const TorchSymbols &torch, void *handle, const int64_t *sizes, const int64_t *strides,
                  Py_ssize_t ndim, int64_t offset) {
    int64_t base, bytes;
    int32_t dtype;
    if (torch.get_storage_offset(handle, &base) != 0 || torch.get_storage_size(handle, &bytes) != 0 ||
        torch.get_dtype(handle, &dtype) != 0) {
        return false;
    }
    const int64_t elements = span(sizes, strides, ndim, base + offset);
    return elements >= 0 && elements <= bytes / static_cast<int64_t>(torch.element_size(dtype));
}

}  // namespace

bool has_layout(const TorchSymbols &torch, PyObject *tensor, const int64_t *sizes, const int64_t *strides,
                Py_ssize_t ndim) {
    void *handle = tensor_handle(torch, tensor);
    int64_t actual_ndim;
    int64_t *actual_sizes, *actual_strides;
    if (torch.get_dim(handle, &actual_ndim) != 0 || actual_ndim != ndim ||
        torch.get_sizes(handle, &actual_sizes) != 0 || torch.get_strides(handle, &actual_strides) != 0) {
        return false;
    }
    return std::equal(sizes, sizes + ndim, actual_sizes) && std::equal(strides, strides + ndim, actual_strides);
}

PyObject *on_storage_of(const TorchSymbols &torch, PyObject *tensor, const int64_t *sizes, const int64_t *strides,
                        Py_ssize_t ndim, int64_t offset) {
    if (!fits_storage(torch, tensor_handle(torch, tensor), sizes, strides, ndim, offset)) {
        PyErr_SetString(PyExc_RuntimeError, "a layout reaches beyond the memory of its tensor");
        return nullptr;
    }
    if (torch.allocation == Allocation::shim) {
        void *handle = nullptr;
        if (torch.reinterpret(tensor_handle(torch, tensor), ndim, sizes, strides, offset, &handle) != 0) {
            PyErr_SetString(PyExc_RuntimeError, "cannot make a tensor on the storage of another");
            return nullptr;
        }
        return wrap_handle(torch, handle);
    }
    PyObject *result = nullptr;
    PyObject *detached = PyObject_CallMethod(tensor, "detach", nullptr);
    PyObject *base = detached ? PyObject_CallMethod(detached, "storage_offset", nullptr) : nullptr;
    const int64_t total = base ? PyLong_AsLongLong(base) + offset : 0;
    PyObject *size_tuple = tuple_of(sizes, ndim);
    PyObject *stride_tuple = tuple_of(strides, ndim);
    if (base && !PyErr_Occurred() && size_tuple && stride_tuple) {
        result = PyObject_CallMethod(detached, "as_strided", "OOL", size_tuple, stride_tuple, total);
    }
    Py_XDECREF(base);
    Py_XDECREF(detached);
    Py_XDECREF(size_tuple);
    Py_XDECREF(stride_tuple);
    return result;
}

PyObject *calibrate(PyObject *module, PyObject *args) {
    TorchSymbols *torch = &module_state(module)->torch;
    PyObject *torch_module, *samples;
    if (!PyArg_ParseTuple(args, "OO!", &torch_module, &PyTuple_Type, &samples)) {
        return nullptr;
    }
    if (PyTuple_GET_SIZE(samples) == 0) {
        PyErr_SetString(PyExc_ValueError, "at least one sample tensor is needed");
        return nullptr;
    }
    if (!find_types(torch_module, torch) || !find_symbols(torch)) {
        return nullptr;
    }
    torch->impl_offset = find_impl_offset(samples);
    if (torch->impl_offset < 0) {
        return nullptr;
    }
    torch->ready = true;
    return allocation_name(*torch);
}

PyObject *check_layout(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    const TorchSymbols &torch = module_state(module)->torch;
    if (nargs != 4 || !torch.ready || !is_tensor(torch, args[0])) {
        PyErr_SetString(PyExc_TypeError, "check_layout(tensor, sizes, strides, dtype_code), after calibrate");
        return nullptr;
    }
    const long dtype = PyLong_AsLong(args[3]);
    if (dtype == -1 && PyErr_Occurred()) {
        return nullptr;
    }
    void *handle = tensor_handle(torch, args[0]);
    int64_t ndim;
    int64_t *sizes, *strides;
    int32_t actual_dtype;
    if (torch.get_dim(handle, &ndim) != 0 || torch.get_sizes(handle, &sizes) != 0 ||
        torch.get_strides(handle, &strides) != 0 || torch.get_dtype(handle, &actual_dtype) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "the tensor has no plain sizes and strides");
        return nullptr;
    }
    int same = same_values(args[1], sizes, ndim);
    if (same == 1) {
        same = same_strides(args[2], sizes, strides, ndim);
    }
    return same < 0 ? nullptr : PyBool_FromLong(same && actual_dtype == dtype);
}

int traverse_symbols(TorchSymbols *torch, visitproc visit, void *arg) {
    Py_VISIT(torch->tensor_type);
    Py_VISIT(torch->parameter_type);
    Py_VISIT(torch->empty_strided);
    return 0;
}

void clear_symbols(TorchSymbols *torch) {
    torch->ready = false;
    Py_CLEAR(torch->tensor_type);
    Py_CLEAR(torch->parameter_type);
    Py_CLEAR(torch->empty_strided);
}

}  // namespace runtime
