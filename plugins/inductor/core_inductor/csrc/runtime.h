// The C side of running a compiled graph: find torch in the process, read tensors, allocate outputs, call kernels.
//
// Enters: torch's Python module (once) and tensors (per call). Leaves: tensors. This code links no torch library and
// includes no torch header; every torch function is looked up by name in the running process, and what is found is
// tested on sample tensors before it is used. It must not know graphs, IR or generated source.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>

namespace runtime {

// The binary interface of a generated kernel: pointers of inputs then outputs, integer arguments, float arguments.
// The result is 0, or a key of the table of failures.
using KernelFunction = int (*)(void *const *pointers, const long *ints, const double *floats, int nthreads);

// How an output tensor is made, fastest first.
enum class Allocation { shim, python };

struct TorchSymbols {
    bool ready = false;
    Allocation allocation = Allocation::python;
    Py_ssize_t impl_offset = 0;         // byte offset of the TensorImpl pointer in a tensor object
    PyTypeObject *tensor_type = nullptr;     // owned: torch.Tensor
    PyTypeObject *parameter_type = nullptr;  // owned: torch.nn.Parameter
    PyObject *empty_strided = nullptr;       // owned: torch.empty_strided

    // torch's C shim; each returns zero on success
    int32_t (*get_data_ptr)(void *handle, void **pointer) = nullptr;
    int32_t (*get_numel)(void *handle, int64_t *numel) = nullptr;
    int32_t (*get_dim)(void *handle, int64_t *dim) = nullptr;
    int32_t (*get_sizes)(void *handle, int64_t **sizes) = nullptr;
    int32_t (*get_strides)(void *handle, int64_t **strides) = nullptr;
    int32_t (*get_dtype)(void *handle, int32_t *dtype) = nullptr;
    int32_t (*get_storage_offset)(void *handle, int64_t *elements) = nullptr;
    int32_t (*get_storage_size)(void *handle, int64_t *bytes) = nullptr;
    size_t (*element_size)(int32_t dtype) = nullptr;
    int32_t (*get_device_type)(void *handle, int32_t *device_type) = nullptr;
    int32_t (*shim_empty_strided)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                  int32_t device_type, int32_t device_index, void **handle) = nullptr;
    int32_t (*reinterpret)(void *handle, int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t offset,
                           void **result) = nullptr;
    int32_t (*delete_tensor)(void *handle) = nullptr;

    // C++ symbols, found by their mangled names
    PyObject *(*wrap_moved)(void *cell) = nullptr;   // THPVariable_Wrap(TensorBase &&)
    PyObject *(*wrap_shared)(void *cell) = nullptr;  // THPVariable_Wrap(const TensorBase &) or (TensorBase)
    int (*get_num_threads)() = nullptr;              // at::get_num_threads()
};

struct ModuleState {
    TorchSymbols torch;
    PyTypeObject *library_type = nullptr;  // owned
    PyTypeObject *kernel_type = nullptr;   // owned
    PyTypeObject *view_type = nullptr;     // owned
};

ModuleState *module_state(PyObject *module);
extern PyModuleDef module_def;

// torch_symbols.cpp
PyObject *calibrate(PyObject *module, PyObject *args);
void clear_symbols(TorchSymbols *torch);
int traverse_symbols(TorchSymbols *torch, visitproc visit, void *arg);
PyObject *allocation_name(const TorchSymbols &torch);
// True when `object` is a tensor; no exception is set either way.
bool is_tensor(const TorchSymbols &torch, PyObject *object);
// The address of the TensorImpl pointer, which is what torch's C shim calls a handle. Borrowed from `tensor`.
void *tensor_handle(const TorchSymbols &torch, PyObject *tensor);
// New reference to an uninitialised CPU tensor, or nullptr with torch's own exception set.
PyObject *allocate(const TorchSymbols &torch, const int64_t *sizes, const int64_t *strides, Py_ssize_t ndim,
                   int32_t dtype, PyObject *dtype_object);
// True when `tensor` has exactly these sizes and strides.
bool has_layout(const TorchSymbols &torch, PyObject *tensor, const int64_t *sizes, const int64_t *strides,
                Py_ssize_t ndim);
// New reference to a tensor of this layout on the storage of `tensor`, `offset` elements behind it, or nullptr with an
// exception set.
PyObject *on_storage_of(const TorchSymbols &torch, PyObject *tensor, const int64_t *sizes, const int64_t *strides,
                        Py_ssize_t ndim, int64_t offset);
PyObject *check_layout(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

// forks.cpp
// Threads a kernel may use: torch's setting, or one where worker threads were lost by a fork.
int available_threads(const TorchSymbols &torch);
// The same, for a kernel that is about to use them.
int claim_threads(const TorchSymbols &torch);
void watch_forks();

// library.cpp
extern PyType_Spec library_spec;
void *library_symbol(PyObject *library, const char *name);

// kernel.cpp
extern PyType_Spec kernel_spec;

// view.cpp
extern PyType_Spec view_spec;

}  // namespace runtime
