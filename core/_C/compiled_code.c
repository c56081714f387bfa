/* CompiledCode: a resume function. Replacement code calls it with a closure and the values that go on living.
 *
 * It is a function whose closure is an argument: each graph break makes the rest of a frame into one of these, held in
 * the constants of the replacement code.
 */
#include "core.h"

typedef struct CompiledCode {
    PyObject_HEAD
    PyCodeObject *code;
    PyObject *globals, *builtins;
    Dispatch dispatch;
    PyObject *weakrefs;
    vectorcallfunc vectorcall;
} CompiledCode;

/* A function of `code` over this object's globals; a new reference. Not kept where there is a closure, because that
 * would prolong the life of the user's variables to the next call. */
static PyObject *
code_function(CompiledCode *self, PyObject *code, PyObject *closure)
{
    PyObject *function = PyFunction_New(code, self->globals);
    if (function != NULL && closure != NULL)
        ((PyFunctionObject *)function)->func_closure = Py_NewRef(closure);
    return function;
}

static PyObject *
code_entry_function(CompiledCode *self, Entry *entry, PyObject *closure)
{
    if (closure != NULL)
        return code_function(self, entry->code, closure);
    if (entry->function == NULL || entry->function_for != (PyObject *)self) {
        PyObject *function = code_function(self, entry->code, NULL);
        if (function == NULL)
            return NULL;
        Py_XSETREF(entry->function, function);
        Py_XSETREF(entry->function_for, Py_NewRef(self));
    }
    return Py_NewRef(entry->function);
}

/* The closure to use (borrowed) in *closure; -1 with TypeError when it does not fit the code. COPY_FREE_VARS trusts
 * the length, so it must never see another. */
static int
check_call(CompiledCode *self, PyObject *const *args, Py_ssize_t nargs, PyObject **closure)
{
    if (nargs != self->code->co_argcount + 1) {
        PyErr_Format(PyExc_TypeError, "the resume function %U takes a closure and %d positional arguments",
                     self->code->co_qualname, self->code->co_argcount);
        return -1;
    }
    *closure = args[0] == Py_None ? NULL : args[0];
    if (*closure != NULL && !PyTuple_CheckExact(*closure)) {
        PyErr_SetString(PyExc_TypeError, "the closure of a resume function is a tuple of cells or None");
        return -1;
    }
    Py_ssize_t count = *closure == NULL ? 0 : PyTuple_GET_SIZE(*closure);
    if (count != self->code->co_nfreevars) {
        PyErr_Format(PyExc_TypeError, "the resume function %U needs a closure of %d cells, not %zd",
                     self->code->co_qualname, self->code->co_nfreevars, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyCell_Check(PyTuple_GET_ITEM(*closure, i))) {
            PyErr_SetString(PyExc_TypeError, "the closure of a resume function is a tuple of cells or None");
            return -1;
        }
    }
    if (count == 0)
        *closure = NULL;
    return 0;
}

PyObject *
core_code_run_once(PyObject *op, PyObject *const *args, size_t nargsf)
{
    CompiledCode *self = (CompiledCode *)op;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    PyObject *closure, *function, *result = NULL;
    if (check_call(self, args, nargs, &closure) < 0)
        return NULL;
    Entry *entry = NULL;
    if (!self->dispatch.skipped && !core_code_has_local_monitors(self->code)) {
        FrameView view = {args + 1, self->globals, self->builtins, closure};
        entry = core_dispatch_choose(&self->dispatch, op, self->code, &view);
        if (entry == NULL && PyErr_Occurred())
            return NULL;
    }
    function = entry != NULL ? code_entry_function(self, entry, closure)
                             : code_function(self, (PyObject *)self->code, closure);
    if (function == NULL)
        goto done;
    /* args[0] is the closure: the callee may use its place, and gives it back. */
    size_t flagged = (size_t)(nargs - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET;
    result = entry != NULL ? core_run_entry(entry, self->dispatch.callback, function, args + 1, flagged, NULL)
                           : core_run_plain(function, args + 1, flagged, NULL);
    Py_DECREF(function);
done:
    Py_XDECREF(entry);
    return result;
}

static PyObject *
code_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames)) {
        PyErr_SetString(PyExc_TypeError, "a resume function takes no keyword arguments");
        return NULL;
    }
    return core_tail_call_run(core_code_run_once(op, args, nargsf));
}

/* The method that replacement code ends with, in place of a call. */
static PyObject *
code_later(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    return core_tail_call_new(op, args, nargs);
}

/* ---- life ---- */

static int
check_code(PyCodeObject *code)
{
    const int other = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    if (code->co_kwonlyargcount || (code->co_flags & other) || !(code->co_flags & CO_OPTIMIZED) ||
        !(code->co_flags & CO_NEWLOCALS)) {
        PyErr_SetString(PyExc_ValueError,
                        "the code of a resume function takes positional parameters and is no generator");
        return -1;
    }
    return 0;
}

static PyObject *
code_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "globals", "callback", "user", NULL};
    PyObject *code, *globals, *callback, *user = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O|O:CompiledCode", names, &PyCode_Type, &code, &PyDict_Type,
                                     &globals, &callback, &user))
        return NULL;
    if (check_code((PyCodeObject *)code) < 0)
        return NULL;
    /* CPython's own rule for the builtins of a function with these globals. */
    PyObject *probe = PyFunction_New(code, globals);
    if (probe == NULL)
        return NULL;
    CompiledCode *self = (CompiledCode *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_DECREF(probe);
        return NULL;
    }
    self->code = (PyCodeObject *)Py_NewRef(code);
    self->globals = Py_NewRef(globals);
    self->builtins = Py_NewRef(((PyFunctionObject *)probe)->func_builtins);
    self->vectorcall = code_vectorcall;
    Py_DECREF(probe);
    if (core_dispatch_init(&self->dispatch, callback, user) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
code_traverse(PyObject *op, visitproc visit, void *arg)
{
    CompiledCode *self = (CompiledCode *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->globals);
    Py_VISIT(self->builtins);
    return core_dispatch_traverse(&self->dispatch, visit, arg);
}

/* code, globals and builtins stay until dealloc, so that a call during a collection still works. */
static int
code_clear(PyObject *op)
{
    Dispatch *dispatch = &((CompiledCode *)op)->dispatch;
    PyObject *none = PyTuple_New(0);
    if (none == NULL) {
        PyErr_Clear();
        return 0;
    }
    dispatch->skipped = 1;
    Py_XSETREF(dispatch->entries, none);
    Py_XSETREF(dispatch->callback, Py_NewRef(Py_None));
    Py_XSETREF(dispatch->user, Py_NewRef(Py_None));
    return 0;
}

static void
code_dealloc(PyObject *op)
{
    CompiledCode *self = (CompiledCode *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(op);
    core_dispatch_clear(&self->dispatch);
    Py_CLEAR(self->builtins);
    Py_CLEAR(self->globals);
    Py_CLEAR(self->code);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- attributes ---- */

static PyObject *
code_entries(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return core_dispatch_entries(&((CompiledCode *)op)->dispatch);
}

static PyObject *
code_reset(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    if (core_dispatch_reset(&((CompiledCode *)op)->dispatch) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
code_last(PyObject *op, void *Py_UNUSED(closure))
{
    return core_dispatch_last(&((CompiledCode *)op)->dispatch);
}

static PyObject *
code_repr(PyObject *op)
{
    return PyUnicode_FromFormat("<core CompiledCode of %U at %p>", ((CompiledCode *)op)->code->co_qualname, op);
}

static PyMethodDef code_methods[] = {
    {"later", (PyCFunction)(void (*)(void))code_later, METH_FASTCALL,
     PyDoc_STR("later(closure, *args)\n--\n\nFor replacement code to return: whoever runs it then calls this object.")},
    {"entries", code_entries, METH_NOARGS, PyDoc_STR("The valid entries, oldest first, as a new list.")},
    {"reset", code_reset, METH_NOARGS, PyDoc_STR("Drop all entries; also lifts skipped and frozen.")},
    {NULL},
};

#define IN_DISPATCH(field) (offsetof(CompiledCode, dispatch) + offsetof(Dispatch, field))

static PyMemberDef code_members[] = {
    {"code", T_OBJECT, offsetof(CompiledCode, code), READONLY, PyDoc_STR("The code as written.")},
    {"globals", T_OBJECT, offsetof(CompiledCode, globals), READONLY, PyDoc_STR("The globals it runs with.")},
    {"callback", T_OBJECT, IN_DISPATCH(callback), READONLY, PyDoc_STR("Called when no entry's guards hold.")},
    {"user", T_OBJECT, IN_DISPATCH(user), READONLY, PyDoc_STR("What the maker attached.")},
    {"hits", T_ULONGLONG, IN_DISPATCH(hits), READONLY, PyDoc_STR("Calls served by an entry found by its guards.")},
    {"skipped", T_BOOL, IN_DISPATCH(skipped), 0, PyDoc_STR("True: every call runs the code as written.")},
    {"frozen", T_BOOL, IN_DISPATCH(frozen), 0, PyDoc_STR("True: a call that no entry takes runs as written.")},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledCode, weakrefs), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledCode, vectorcall), READONLY, NULL},
    {NULL},
};

static PyGetSetDef code_getset[] = {
    {"last_entry", code_last, NULL, PyDoc_STR("The entry that served or was made last, or None."), NULL},
    {NULL},
};

PyDoc_STRVAR(code_doc, "CompiledCode(code, globals, callback, user=None)\n--\n\n"
                       "A resume function with compiled variants: call it as obj(closure, *args), closure a tuple of\n"
                       "cells or None. The callback's first argument is this object; see CompiledCallable.");

static PyType_Slot code_slots[] = {
    {Py_tp_new, code_new},           {Py_tp_dealloc, code_dealloc},   {Py_tp_traverse, code_traverse},
    {Py_tp_clear, code_clear},       {Py_tp_call, PyVectorcall_Call}, {Py_tp_repr, code_repr},
    {Py_tp_methods, code_methods},   {Py_tp_members, code_members},   {Py_tp_getset, code_getset},
    {Py_tp_doc, (void *)code_doc},   {0, NULL},
};

static PyType_Spec code_spec = {
    .name = "core._C.CompiledCode",
    .basicsize = sizeof(CompiledCode),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = code_slots,
};

PyTypeObject *
core_code_type(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &code_spec, NULL);
}
