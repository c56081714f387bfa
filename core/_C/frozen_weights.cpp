// FrozenWeights: tensors whose version and memory are remembered; calling it says whether one of them is another.
//
// A version counts the writes that torch sees, the address changes with `.data =` and `set_`. What is written past torch
// (through `.data`, numpy, DLPack) changes neither. at::TensorBase::_version() may throw; nothing leaves this file.
#include "pyver.h"
#include "tensor_abi.h"

namespace {

using VersionOf = int64_t (*)(const void *handle);

struct Weight {
    PyObject *tensor; // strong
    void *handle;     // into the tensor
    int64_t version;
    void *data;
};

struct FrozenWeights {
    PyObject_HEAD
    Weight *weights;
    Py_ssize_t count;
    PyObject *weakrefs;
    vectorcallfunc vectorcall;
};

VersionOf version_of;

FrozenWeights *
self_of(PyObject *op)
{
    return reinterpret_cast<FrozenWeights *>(op);
}

// false when torch doesn't tell: an inference tensor, one without memory of its own
bool
read(void *handle, int64_t *version, void **data)
{
    try {
        *version = version_of(handle);
        return core_tensor_data(handle, data) != 0;
    }
    catch (...) {
        return false;
    }
}

bool
is_other(const Weight &weight)
{
    int64_t version;
    void *data;
    return !read(weight.handle, &version, &data) || version != weight.version || data != weight.data;
}

PyObject *
weights_vectorcall(PyObject *op, PyObject *const *, size_t, PyObject *)
{
    const FrozenWeights *self = self_of(op);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        if (is_other(self->weights[i]))
            Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}

PyObject *
weights_changed(PyObject *op, PyObject *)
{
    const FrozenWeights *self = self_of(op);
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != nullptr && i < self->count; i++) {
        if (!is_other(self->weights[i]))
            continue;
        PyObject *index = PyLong_FromSsize_t(i);
        if (index == nullptr || PyList_Append(found, index) < 0)
            Py_CLEAR(found);
        Py_XDECREF(index);
    }
    return found;
}

PyObject *
weights_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *names[] = {"tensors", nullptr};
    PyObject *tensors;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:FrozenWeights", const_cast<char **>(names), &PyTuple_Type, &tensors))
        return nullptr;
    if (version_of == nullptr)
        version_of = reinterpret_cast<VersionOf>(core_torch_symbol("libtorch_cpu", "_ZNK2at10TensorBase8_versionEv"));
    if (version_of == nullptr)
        return PyErr_Format(PyExc_RuntimeError, "this torch does not export at::TensorBase::_version()");
    auto *self = reinterpret_cast<FrozenWeights *>(type->tp_alloc(type, 0));
    if (self == nullptr)
        return nullptr;
    Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    self->vectorcall = weights_vectorcall;
    self->weights = PyMem_New(Weight, count + 1);
    if (self->weights == nullptr) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (; self->count < count; self->count++) {
        PyObject *tensor = PyTuple_GET_ITEM(tensors, self->count);
        Weight &weight = self->weights[self->count];
        weight.handle = core_tensor_handle(tensor);
        if (weight.handle == nullptr || !core_tensor_is_strided(weight.handle) ||
            !read(weight.handle, &weight.version, &weight.data)) {
            Py_DECREF(self);
            return PyErr_Format(PyExc_TypeError, "%.100s has no version or no memory", Py_TYPE(tensor)->tp_name);
        }
        weight.tensor = Py_NewRef(tensor);
    }
    return reinterpret_cast<PyObject *>(self);
}

int
weights_traverse(PyObject *op, visitproc visit, void *arg)
{
    const FrozenWeights *self = self_of(op);
    Py_VISIT(Py_TYPE(op));
    for (Py_ssize_t i = 0; i < self->count; i++)
        Py_VISIT(self->weights[i].tensor);
    return 0;
}

int
weights_clear(PyObject *op)
{
    FrozenWeights *self = self_of(op);
    Py_ssize_t count = self->count;
    self->count = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        Py_DECREF(self->weights[i].tensor);
    return 0;
}

void
weights_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self_of(op)->weakrefs != nullptr)
        PyObject_ClearWeakRefs(op);
    weights_clear(op);
    PyMem_Free(self_of(op)->weights);
    type->tp_free(op);
    Py_DECREF(type);
}

PyMethodDef weights_methods[] = {
    {"changed", weights_changed, METH_NOARGS, PyDoc_STR("changed()\n--\n\nThe indices of the tensors that are others now.")},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef weights_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FrozenWeights, weakrefs), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FrozenWeights, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyDoc_STRVAR(weights_doc, "FrozenWeights(tensors)\n--\n\n"
                          "Calling it says whether the version or the memory of one of the tensors has changed since.\n"
                          "Raises TypeError for a tensor that has none, RuntimeError where torch does not tell versions.");

PyType_Slot weights_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(weights_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(weights_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(weights_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(weights_clear)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_methods, weights_methods},
    {Py_tp_members, weights_members},
    {Py_tp_doc, const_cast<char *>(weights_doc)},
    {0, nullptr},
};

PyType_Spec weights_spec = {
    "core._C.FrozenWeights",
    sizeof(FrozenWeights),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    weights_slots,
};

PyTypeObject *weights_type;

} // namespace

int
core_frozen_weights_add_to_module(PyObject *module)
{
    if (weights_type == nullptr) {
        weights_type = reinterpret_cast<PyTypeObject *>(PyType_FromModuleAndSpec(module, &weights_spec, nullptr));
        if (weights_type == nullptr)
            return -1;
    }
    return PyModule_AddType(module, weights_type);
}
