/* CompiledCallable: what `core.compile(function)` returns for a function; the owner of its root entries.
 *
 * A warm call binds the arguments for the guards to see, and hands the caller's own arguments to the function of the
 * entry that holds, so that CPython binds them as it would have for the original. No hook is installed for that.
 */
#include "core.h"

typedef struct CompiledCallable {
    PyObject_HEAD
    PyFunctionObject *fn;
    PyObject *code; /* fn's code that the entries were made for */
    Dispatch dispatch;
    PyObject *dict, *weakrefs;
    vectorcallfunc vectorcall;
    char simple; /* plain positional parameters: the caller's array is the argument slots */
    char twin;   /* stands in for another callable, and is never redirected itself */
    char plain;  /* generators and coroutines run as written */
} CompiledCallable;

/* ---- calling ---- */

static void
callable_take_code(CompiledCallable *self)
{
    PyCodeObject *code = (PyCodeObject *)self->fn->func_code;
    Py_XSETREF(self->code, Py_NewRef(code));
    self->simple = code->co_kwonlyargcount == 0 && !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS));
    self->plain = !(code->co_flags & CO_OPTIMIZED) || !(code->co_flags & CO_NEWLOCALS) ||
                  (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR));
}

static PyObject *
callable_dispatch(CompiledCallable *self, PyObject *const *locals, PyObject *const *args, size_t nargsf,
                  PyObject *kwnames)
{
    PyFunctionObject *fn = self->fn;
    FrameView view = {locals, fn->func_globals, fn->func_builtins, fn->func_closure};
    Entry *entry = core_dispatch_choose(&self->dispatch, (PyObject *)self, (PyCodeObject *)self->code, &view);
    if (entry == NULL)
        return PyErr_Occurred() ? NULL : core_run_plain((PyObject *)fn, args, nargsf, kwnames);
    PyObject *function = core_entry_function(entry, fn), *result = NULL;
    if (function != NULL) {
        result = core_run_entry(entry, self->dispatch.callback, function, args, nargsf, kwnames);
        Py_DECREF(function);
    }
    Py_DECREF(entry);
    return core_tail_call_run(result);
}

/* A call under a stance that says how all of them run. */
static PyObject *
callable_run_by_stance(CompiledCallable *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (core_stance & CORE_STANCE_EAGER)
        return core_run_plain((PyObject *)self->fn, args, nargsf, kwnames);
    CoreCallback former = core_callback_switch(NULL);
    PyObject *twin = PyObject_CallOneArg(core_stance_redirect, (PyObject *)self);
    core_callback_restore(former);
    PyObject *result = twin == NULL ? NULL : PyObject_Vectorcall(twin, args, nargsf, kwnames);
    Py_XDECREF(twin);
    return result;
}

static PyObject *
callable_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    CompiledCallable *self = (CompiledCallable *)op;
    PyFunctionObject *fn = self->fn;
    if (core_stance & (CORE_STANCE_EAGER | CORE_STANCE_REDIRECT) && !self->twin)
        return callable_run_by_stance(self, args, nargsf, kwnames);
    if (self->code != fn->func_code) {
        if (core_dispatch_reset(&self->dispatch) < 0)
            return NULL;
        callable_take_code(self);
    }
    if (self->dispatch.skipped || self->plain || core_code_has_local_monitors((PyCodeObject *)self->code))
        return core_run_plain((PyObject *)fn, args, nargsf, kwnames);
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (self->simple && kwnames == NULL && nargs == ((PyCodeObject *)self->code)->co_argcount)
        return callable_dispatch(self, args, args, nargsf, NULL);
    Bound bound;
    int status = core_bind(&bound, fn, args, nargs, kwnames);
    PyObject *result = NULL;
    if (status == 1)
        result = callable_dispatch(self, bound.slots, args, nargsf, kwnames);
    else if (status == 0)
        result = core_run_plain((PyObject *)fn, args, nargsf, kwnames); /* raises CPython's own TypeError */
    core_bind_release(&bound);
    return result;
}

/* ---- life ---- */

static PyObject *
callable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "callback", "user", NULL};
    PyObject *fn, *callback, *user = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:CompiledCallable", names, &fn, &callback, &user))
        return NULL;
    if (!PyFunction_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "fn must be a Python function, not %.100s", Py_TYPE(fn)->tp_name);
        return NULL;
    }
    CompiledCallable *self = (CompiledCallable *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->fn = (PyFunctionObject *)Py_NewRef(fn);
    self->vectorcall = callable_vectorcall;
    callable_take_code(self);
    if (core_dispatch_init(&self->dispatch, callback, user) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
callable_traverse(PyObject *op, visitproc visit, void *arg)
{
    CompiledCallable *self = (CompiledCallable *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->fn);
    Py_VISIT(self->dict);
    return core_dispatch_traverse(&self->dispatch, visit, arg);
}

/* fn stays until dealloc: whoever still calls the object during a collection finds the function. */
static int
callable_clear(PyObject *op)
{
    CompiledCallable *self = (CompiledCallable *)op;
    PyObject *none = PyTuple_New(0);
    if (none == NULL) {
        PyErr_Clear();
        return 0;
    }
    self->dispatch.skipped = 1;
    Py_XSETREF(self->dispatch.entries, none);
    Py_XSETREF(self->dispatch.callback, Py_NewRef(Py_None));
    Py_XSETREF(self->dispatch.user, Py_NewRef(Py_None));
    Py_CLEAR(self->dict);
    return 0;
}

static void
callable_dealloc(PyObject *op)
{
    CompiledCallable *self = (CompiledCallable *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(op);
    core_dispatch_clear(&self->dispatch);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->code);
    Py_CLEAR(self->fn);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- attributes ---- */

/* Names that the type itself would answer; they are the function's unless set on the object. */
static int
speaks_for_function(PyObject *name)
{
    static const char *const names[] = {"__doc__", "__module__", "__name__", "__qualname__", "__annotations__",
                                        "__type_params__"};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if (PyUnicode_CompareWithASCIIString(name, names[i]) == 0)
            return 1;
    }
    return 0;
}

static PyObject *
callable_getattro(PyObject *op, PyObject *name)
{
    CompiledCallable *self = (CompiledCallable *)op;
    if (PyUnicode_Check(name) && speaks_for_function(name)) {
        PyObject *own = self->dict == NULL ? NULL : PyDict_GetItemWithError(self->dict, name);
        if (own != NULL)
            return Py_NewRef(own);
        return PyErr_Occurred() ? NULL : PyObject_GetAttr((PyObject *)self->fn, name);
    }
    PyObject *value = PyObject_GenericGetAttr(op, name);
    if (value != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0)
        return Py_NewRef(self->fn);
    return PyObject_GetAttr((PyObject *)self->fn, name);
}

static PyObject *
callable_descr_get(PyObject *op, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    if (instance == NULL || instance == Py_None)
        return Py_NewRef(op);
    return PyMethod_New(op, instance);
}

static PyObject *
callable_repr(PyObject *op)
{
    return PyUnicode_FromFormat("<core CompiledCallable of %U at %p>", ((CompiledCallable *)op)->fn->func_qualname, op);
}

static PyObject *
callable_entries(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return core_dispatch_entries(&((CompiledCallable *)op)->dispatch);
}

static PyObject *
callable_reset(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    if (core_dispatch_reset(&((CompiledCallable *)op)->dispatch) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
callable_last(PyObject *op, void *Py_UNUSED(closure))
{
    return core_dispatch_last(&((CompiledCallable *)op)->dispatch);
}

/* Pickled by name like a function: loading finds what stands under that name. */
static PyObject *
callable_reduce(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyObject_GetAttrString(op, "__qualname__");
}

static PyObject *
callable_copy(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(op);
}

static PyMethodDef callable_methods[] = {
    {"entries", callable_entries, METH_NOARGS, PyDoc_STR("The valid entries, oldest first, as a new list.")},
    {"reset", callable_reset, METH_NOARGS, PyDoc_STR("Drop all entries; also lifts skipped and frozen.")},
    {"__reduce__", callable_reduce, METH_NOARGS, NULL},
    {"__copy__", callable_copy, METH_NOARGS, NULL},
    {"__deepcopy__", callable_copy, METH_O, NULL},
    {NULL},
};

#define IN_DISPATCH(field) (offsetof(CompiledCallable, dispatch) + offsetof(Dispatch, field))

static PyMemberDef callable_members[] = {
    {"fn", T_OBJECT, offsetof(CompiledCallable, fn), READONLY, PyDoc_STR("The function as written.")},
    {"callback", T_OBJECT, IN_DISPATCH(callback), READONLY, PyDoc_STR("Called when no entry's guards hold.")},
    {"user", T_OBJECT, IN_DISPATCH(user), READONLY, PyDoc_STR("What the maker attached.")},
    {"hits", T_ULONGLONG, IN_DISPATCH(hits), READONLY, PyDoc_STR("Calls served by an entry found by its guards.")},
    {"skipped", T_BOOL, IN_DISPATCH(skipped), 0, PyDoc_STR("True: every call runs fn as written.")},
    {"twin", T_BOOL, offsetof(CompiledCallable, twin), 0, PyDoc_STR("True: the stance redirects no call of it.")},
    {"frozen", T_BOOL, IN_DISPATCH(frozen), 0, PyDoc_STR("True: a call that no entry takes runs fn; no callback.")},
    {"__dictoffset__", T_PYSSIZET, offsetof(CompiledCallable, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledCallable, weakrefs), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledCallable, vectorcall), READONLY, NULL},
    {NULL},
};

static PyGetSetDef callable_getset[] = {
    {"last_entry", callable_last, NULL, PyDoc_STR("The entry that served or was made last, or None."), NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL},
};

PyDoc_STRVAR(callable_doc,
             "CompiledCallable(fn, callback, user=None)\n--\n\n"
             "A function with compiled variants.\n\n"
             "A call that no entry takes asks callback(self, code, args, globals, builtins, closure), where args are\n"
             "the argument slots: positional, keyword-only, the *args tuple, the **kw dict. It answers an Entry, None\n"
             "(run fn from now on) or False (run fn this time).");

static PyType_Slot callable_slots[] = {
    {Py_tp_new, callable_new},
    {Py_tp_dealloc, callable_dealloc},
    {Py_tp_traverse, callable_traverse},
    {Py_tp_clear, callable_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_repr, callable_repr},
    {Py_tp_getattro, callable_getattro},
    {Py_tp_setattro, PyObject_GenericSetAttr},
    {Py_tp_descr_get, callable_descr_get},
    {Py_tp_methods, callable_methods},
    {Py_tp_members, callable_members},
    {Py_tp_getset, callable_getset},
    {Py_tp_doc, (void *)callable_doc},
    {0, NULL},
};

static PyType_Spec callable_spec = {
    .name = "core._C.CompiledCallable",
    .basicsize = sizeof(CompiledCallable),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = callable_slots,
};

PyTypeObject *
core_callable_type(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &callable_spec, NULL);
}
