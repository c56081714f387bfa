// A loaded shared object of kernels. It's unloaded when the last kernel that uses it is gone.

#include "runtime.h"

#include <cstddef>
#include <dlfcn.h>
#include <structmember.h>

namespace runtime {

namespace {

struct Library {
    PyObject_HEAD
    void *handle;
    PyObject *weakrefs;
};

PyObject *library_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"path", nullptr};
    PyObject *path;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&", const_cast<char **>(names), PyUnicode_FSConverter, &path)) {
        return nullptr;
    }
    void *handle;
    // Running the loader may wait for the disk.
    Py_BEGIN_ALLOW_THREADS
    handle = dlopen(PyBytes_AS_STRING(path), RTLD_NOW | RTLD_LOCAL);
    Py_END_ALLOW_THREADS
    Py_DECREF(path);
    if (handle == nullptr) {
        PyErr_SetString(PyExc_OSError, dlerror());
        return nullptr;
    }
    Library *self = reinterpret_cast<Library *>(type->tp_alloc(type, 0));
    if (self == nullptr) {
        dlclose(handle);
        return nullptr;
    }
    self->handle = handle;
    return reinterpret_cast<PyObject *>(self);
}

void library_dealloc(PyObject *object) {
    Library *self = reinterpret_cast<Library *>(object);
    PyTypeObject *type = Py_TYPE(object);
    if (self->weakrefs != nullptr) {
        PyObject_ClearWeakRefs(object);
    }
    if (self->handle != nullptr) {
        dlclose(self->handle);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject *library_address(PyObject *object, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (text == nullptr) {
        return nullptr;
    }
    void *address = library_symbol(object, text);
    if (address == nullptr) {
        PyErr_Format(PyExc_KeyError, "the library has no symbol %R", name);
        return nullptr;
    }
    return PyLong_FromVoidPtr(address);
}

PyMethodDef library_methods[] = {
    {"address", library_address, METH_O, PyDoc_STR("address(name) -> int: where the symbol is; KeyError without it.")},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef library_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Library, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot library_slots[] = {
    {Py_tp_doc, const_cast<char *>("Library(path): a loaded shared object; unloaded when no kernel uses it.")},
    {Py_tp_new, reinterpret_cast<void *>(library_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(library_dealloc)},
    {Py_tp_methods, library_methods},
    {Py_tp_members, library_members},
    {0, nullptr},
};

}  // namespace

PyType_Spec library_spec = {"core_inductor._runtime.Library", sizeof(Library), 0, Py_TPFLAGS_DEFAULT, library_slots};

void *library_symbol(PyObject *library, const char *name) {
    return dlsym(reinterpret_cast<Library *>(library)->handle, name);
}

}  // namespace runtime
