/* Binds the arguments of a call to a function's argument slots, as CPython does, for the guards to look at.
 *
 * Only the outcome matters here: where the arguments do not fit, the caller calls the function and CPython raises its
 * own error. All slots are owned, because guards may run user code that changes the function's defaults.
 */
#include "core.h"

/* Index of the parameter that a keyword names, or -1. Positional-only parameters can't be named. */
static Py_ssize_t
parameter_index(PyCodeObject *code, PyObject *name)
{
    Py_ssize_t total = code->co_argcount + code->co_kwonlyargcount;
    for (Py_ssize_t i = code->co_posonlyargcount; i < total; i++) {
        if (PyTuple_GET_ITEM(code->co_localsplusnames, i) == name)
            return i;
    }
    for (Py_ssize_t i = code->co_posonlyargcount; i < total; i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, i), name) == 0)
            return i;
    }
    return -1;
}

static int
bind_keywords(Bound *bound, PyCodeObject *code, PyObject *const *values, PyObject *kwnames, PyObject *extra)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (!PyUnicode_Check(name))
            return 0;
        Py_ssize_t slot = parameter_index(code, name);
        if (slot >= 0) {
            if (bound->slots[slot] != NULL)
                return 0;
            bound->slots[slot] = Py_NewRef(values[i]);
        }
        else if (extra == NULL) {
            return 0;
        }
        else if (PyDict_SetItem(extra, name, values[i]) < 0) {
            return -1;
        }
    }
    return 1;
}

static int
bind_defaults(Bound *bound, PyFunctionObject *fn, PyCodeObject *code)
{
    Py_ssize_t count = fn->func_defaults == NULL ? 0 : PyTuple_GET_SIZE(fn->func_defaults);
    for (Py_ssize_t i = 0; i < code->co_argcount; i++) {
        if (bound->slots[i] != NULL)
            continue;
        Py_ssize_t j = i - (code->co_argcount - count);
        if (j < 0)
            return 0;
        bound->slots[i] = Py_NewRef(PyTuple_GET_ITEM(fn->func_defaults, j));
    }
    for (Py_ssize_t i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; i++) {
        if (bound->slots[i] != NULL)
            continue;
        if (fn->func_kwdefaults == NULL)
            return 0;
        PyObject *value = PyDict_GetItemWithError(fn->func_kwdefaults, PyTuple_GET_ITEM(code->co_localsplusnames, i));
        if (value == NULL)
            return PyErr_Occurred() ? -1 : 0;
        bound->slots[i] = Py_NewRef(value);
    }
    return 1;
}

static int
bind_all(Bound *bound, PyFunctionObject *fn, PyCodeObject *code, PyObject *const *args, Py_ssize_t nargs,
         PyObject *kwnames)
{
    Py_ssize_t positional = nargs < code->co_argcount ? nargs : code->co_argcount;
    Py_ssize_t next = code->co_argcount + code->co_kwonlyargcount;
    PyObject *extra = NULL;  // borrowed from its slot
    for (Py_ssize_t i = 0; i < positional; i++)
        bound->slots[i] = Py_NewRef(args[i]);
    if (code->co_flags & CO_VARARGS) {
        PyObject *rest = PyTuple_New(nargs - positional);
        if (rest == NULL)
            return -1;
        for (Py_ssize_t i = positional; i < nargs; i++)
            PyTuple_SET_ITEM(rest, i - positional, Py_NewRef(args[i]));
        bound->slots[next++] = rest;
    }
    else if (nargs > positional) {
        return 0;
    }
    if (code->co_flags & CO_VARKEYWORDS) {
        extra = PyDict_New();
        if (extra == NULL)
            return -1;
        bound->slots[next] = extra;
    }
    if (kwnames != NULL) {
        int status = bind_keywords(bound, code, args + nargs, kwnames, extra);
        if (status != 1)
            return status;
    }
    return bind_defaults(bound, fn, code);
}

int
core_bind(Bound *bound, PyFunctionObject *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyCodeObject *code = (PyCodeObject *)fn->func_code;
    bound->count = core_argument_slots(code);
    bound->slots = bound->room;
    if (bound->count > CORE_BIND_INLINE) {
        bound->slots = PyMem_New(PyObject *, bound->count);
        if (bound->slots == NULL) {
            bound->count = 0;
            PyErr_NoMemory();
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < bound->count; i++)
        bound->slots[i] = NULL;
    return bind_all(bound, fn, code, args, nargs, kwnames);
}

void
core_bind_release(Bound *bound)
{
    for (Py_ssize_t i = 0; i < bound->count; i++)
        Py_XDECREF(bound->slots[i]);
    if (bound->slots != bound->room)
        PyMem_Free(bound->slots);
}
