/* Entry: one compiled variant of a code object: its guards, its replacement code, and what keeps that alive. */
#include "core.h"
#include "global_state.h"

/* ---- functions of replacement code ---- */

PyObject *
core_function_like(PyFunctionObject *fn, PyObject *code)
{
    PyFunctionObject *made = (PyFunctionObject *)PyFunction_NewWithQualName(code, fn->func_globals, fn->func_qualname);
    if (made == NULL)
        return NULL;
    /* Nothing has run the new function yet, so its parts can be set without telling the specialiser. */
    Py_XSETREF(made->func_builtins, Py_NewRef(fn->func_builtins));
    Py_XSETREF(made->func_name, Py_NewRef(fn->func_name));
    Py_XSETREF(made->func_doc, Py_XNewRef(fn->func_doc));
    Py_XSETREF(made->func_module, Py_XNewRef(fn->func_module));
    made->func_closure = Py_XNewRef(fn->func_closure);
    made->func_defaults = Py_XNewRef(fn->func_defaults);
    made->func_kwdefaults = Py_XNewRef(fn->func_kwdefaults);
    return (PyObject *)made;
}

static void
entry_drop_function(Entry *self)
{
    Py_CLEAR(self->function);
    Py_CLEAR(self->function_for);
    Py_CLEAR(self->defaults);
    Py_CLEAR(self->kwdefaults);
}

PyObject *
core_entry_function(Entry *self, PyFunctionObject *fn)
{
    if (self->function != NULL && self->function_for == (PyObject *)fn && self->defaults == fn->func_defaults &&
        self->kwdefaults == fn->func_kwdefaults)
        return Py_NewRef(self->function);
    PyObject *made = core_function_like(fn, self->code);
    if (made == NULL)
        return NULL;
    entry_drop_function(self);
    self->function = Py_NewRef(made);
    self->function_for = Py_NewRef(fn);
    self->defaults = Py_XNewRef(fn->func_defaults);
    self->kwdefaults = Py_XNewRef(fn->func_kwdefaults);
    return made;
}

/* ---- which code can stand in for which ---- */

static int
same_free_variables(PyCodeObject *a, PyCodeObject *b)
{
    PyObject *left = PyCode_GetFreevars(a), *right = PyCode_GetFreevars(b);
    int same = left != NULL && right != NULL ? PyObject_RichCompareBool(left, right, Py_EQ) : -1;
    Py_XDECREF(left);
    Py_XDECREF(right);
    return same;
}

static int
same_arguments(PyCodeObject *a, PyCodeObject *b)
{
    const int kinds = CO_VARARGS | CO_VARKEYWORDS;
    if (a->co_argcount != b->co_argcount || a->co_posonlyargcount != b->co_posonlyargcount ||
        a->co_kwonlyargcount != b->co_kwonlyargcount || (a->co_flags & kinds) != (b->co_flags & kinds))
        return 0;
    for (int i = 0; i < core_argument_slots(a); i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(a->co_localsplusnames, i), PyTuple_GET_ITEM(b->co_localsplusnames, i)))
            return 0;
    }
    return 1;
}

int
core_entry_fits(Entry *self, PyCodeObject *code)
{
    PyCodeObject *mine = (PyCodeObject *)self->code;
    if (!self->valid) {
        PyErr_SetString(PyExc_TypeError, "the frame callback returned an entry that is no longer valid");
        return -1;
    }
    if (!same_arguments(mine, code)) {
        PyErr_Format(PyExc_TypeError, "the replacement code %R has other argument slots than %R", mine, code);
        return -1;
    }
    int same = same_free_variables(mine, code);
    if (same == 0)
        PyErr_Format(PyExc_TypeError, "the replacement code %R has other free variables than %R", mine, code);
    return same == 1 ? 0 : -1;
}

/* ---- lookup ---- */

/* New reference to the entry, or NULL when it misses. */
static Entry *
entry_try(Entry *self, const FrameView *view)
{
    if (!self->valid)
        return NULL;
    /* A guard may run user code that invalidates the entry: hold both, and look again afterwards. */
    Py_INCREF(self);
    PyObject *program = Py_NewRef(self->program);
    int hit = program == Py_None || core_guards_eval(program, view, NULL);
    Py_DECREF(program);
    if (hit && self->valid) {
        self->hits++;
        return self;
    }
    Py_DECREF(self);
    return NULL;
}

Entry *
core_entry_find(PyObject *entries, Py_ssize_t *recent, const FrameView *view)
{
    Py_ssize_t count = PyTuple_GET_SIZE(entries), first = *recent;
    if (count == 0)
        return NULL;
    /* A checkpoint compares what a call saves with what it saves when it is made again: both take the oldest entry that
     * holds, whatever served in between. */
    if (first >= count || (first > 0 && core_saves_through_hooks()))
        first = 0;
    CoreCallback former = core_callback_switch(NULL);
    Entry *found = entry_try((Entry *)PyTuple_GET_ITEM(entries, first), view);
    for (Py_ssize_t i = 0; found == NULL && i < count; i++) {
        if (i == first)
            continue;
        found = entry_try((Entry *)PyTuple_GET_ITEM(entries, i), view);
        if (found != NULL)
            *recent = i;
    }
    core_callback_restore(former);
    return found;
}

PyObject *
core_entries_with(PyObject *entries, PyObject *added)
{
    PyObject *kept = PyList_New(0);
    if (kept == NULL)
        return NULL;
    PyObject *result = NULL;
    for (Py_ssize_t i = 0; entries != NULL && i < PyTuple_GET_SIZE(entries); i++) {
        PyObject *entry = PyTuple_GET_ITEM(entries, i);
        if (entry != added && ((Entry *)entry)->valid && PyList_Append(kept, entry) < 0)
            goto done;
    }
    if (added != NULL && PyList_Append(kept, added) < 0)
        goto done;
    result = PyList_AsTuple(kept);
done:
    Py_DECREF(kept);
    return result;
}

/* ---- life ---- */

void
core_entry_invalidate(Entry *self)
{
    Py_INCREF(self);
    self->valid = 0;
    Py_CLEAR(self->owners);
    entry_drop_function(self);
    Py_CLEAR(self->program);
    Py_CLEAR(self->code);
    Py_CLEAR(self->user);
    Py_CLEAR(self->keepalive);
    Py_DECREF(self);
}

static void
owner_died(void *target)
{
    core_entry_invalidate((Entry *)target);
}

/* A program holds some objects weakly and says when one has died: it can't hold again then, and the rest may go. A
 * program whose notice someone else asked for is left as it is. */
static int
entry_watch_program(Entry *self)
{
    if (self->program == Py_None)
        return 0;
    PyObject *present = PyObject_GetAttrString(self->program, "on_invalid");
    if (present == NULL)
        return -1;
    int taken = present != Py_None;
    Py_DECREF(present);
    return taken ? 0 : PyObject_SetAttrString(self->program, "on_invalid", (PyObject *)self->link);
}

static int
entry_watch_owners(Entry *self, PyObject *owners)
{
    PyObject *given = PySequence_Tuple(owners);
    if (given == NULL)
        return -1;
    int status = -1;
    Py_ssize_t count = PyTuple_GET_SIZE(given);
    self->owners = PyTuple_New(count);
    if (self->owners == NULL)
        goto done;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *ref = PyWeakref_NewRef(PyTuple_GET_ITEM(given, i), (PyObject *)self->link);
        if (ref == NULL)
            goto done;
        PyTuple_SET_ITEM(self->owners, i, ref);
    }
    status = 0;
done:
    Py_DECREF(given);
    return status;
}

static int
usable_code(PyObject *code)
{
    const int suspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    if (!PyCode_Check(code)) {
        PyErr_Format(PyExc_TypeError, "code must be a code object, not %.100s", Py_TYPE(code)->tp_name);
        return 0;
    }
    int flags = ((PyCodeObject *)code)->co_flags;
    if (!(flags & CO_OPTIMIZED) || !(flags & CO_NEWLOCALS) || (flags & suspends)) {
        PyErr_SetString(PyExc_TypeError,
                        "code must be that of a plain function: not of a generator, coroutine or class");
        return 0;
    }
    return 1;
}

static PyObject *
entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"program", "code", "closed", "user", "keepalive", "weak_owners", NULL};
    PyObject *program, *code, *user = Py_None, *keepalive = Py_None, *owners = NULL;
    int closed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOp|OOO:Entry", names, &program, &code, &closed, &user, &keepalive,
                                     &owners))
        return NULL;
    if (program != Py_None && !core_guards_is_program(program)) {
        PyErr_Format(PyExc_TypeError, "program must be a GuardProgram or None, not %.100s", Py_TYPE(program)->tp_name);
        return NULL;
    }
    if (!usable_code(code) || core_state_mark_replacement(code) < 0)
        return NULL;
    Entry *self = (Entry *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->program = Py_NewRef(program);
    self->code = Py_NewRef(code);
    self->user = Py_NewRef(user);
    self->keepalive = Py_NewRef(keepalive);
    self->closed = (char)closed;
    self->valid = 1;
    self->link = core_weak_link_new(self, owner_died);
    if (self->link == NULL || entry_watch_program(self) < 0)
        goto fail;
    if (owners != NULL && owners != Py_None && entry_watch_owners(self, owners) < 0)
        goto fail;
    return (PyObject *)self;
fail:
    Py_DECREF(self);
    return NULL;
}

/* Visits what only this entry keeps alive through its code. Code objects are invisible to the collector, so a cycle
 * entry -> code -> constant (a BoundGraph, a CompiledCode) -> ... -> entry would never be found. While `code` has no
 * owner but the entry (`refs` references), its reference to the constants is as good as the entry's. */
static int
visit_constants(PyObject *op, Py_ssize_t refs, visitproc visit, void *arg)
{
    PyObject *constants = ((PyCodeObject *)op)->co_consts;
    if (Py_REFCNT(op) != refs || constants == NULL)
        return 0;
    /* The codes inside have no owner but the tuple, and the tuple none but this code. */
    for (Py_ssize_t i = 0; Py_REFCNT(constants) == 1 && i < PyTuple_GET_SIZE(constants); i++) {
        PyObject *constant = PyTuple_GET_ITEM(constants, i);
        int status = PyCode_Check(constant) ? visit_constants(constant, 1, visit, arg) : 0;
        if (status)
            return status;
    }
    Py_VISIT(constants);
    return 0;
}

static int
entry_traverse(PyObject *op, visitproc visit, void *arg)
{
    Entry *self = (Entry *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->program);
    Py_VISIT(self->user);
    Py_VISIT(self->keepalive);
    Py_VISIT(self->owners);
    Py_VISIT(self->function);
    Py_VISIT(self->function_for);
    Py_VISIT(self->defaults);
    Py_VISIT(self->kwdefaults);
    if (self->code != NULL && (self->function == NULL || Py_REFCNT(self->function) == 1))
        return visit_constants(self->code, self->function == NULL ? 1 : 2, visit, arg);
    return 0;
}

static int
entry_clear(PyObject *op)
{
    core_entry_invalidate((Entry *)op);
    return 0;
}

static void
entry_dealloc(PyObject *op)
{
    Entry *self = (Entry *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(op);
    if (self->link != NULL)
        self->link->target = NULL;
    Py_CLEAR(self->owners);
    Py_CLEAR(self->link);
    entry_drop_function(self);
    Py_CLEAR(self->program);
    Py_CLEAR(self->code);
    Py_CLEAR(self->user);
    Py_CLEAR(self->keepalive);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- attributes ---- */

static PyObject *
entry_invalidate(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    core_entry_invalidate((Entry *)op);
    Py_RETURN_NONE;
}

static PyObject *
entry_get_valid(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Entry *)op)->valid);
}

static int
entry_set_valid(PyObject *op, PyObject *value, void *Py_UNUSED(closure))
{
    Entry *self = (Entry *)op;
    int truth = value == NULL ? -1 : PyObject_IsTrue(value);
    if (value == NULL)
        PyErr_SetString(PyExc_AttributeError, "valid can't be deleted");
    if (truth < 0)
        return -1;
    if (truth && !self->valid) {
        PyErr_SetString(PyExc_ValueError, "an invalid entry has dropped its code and can't become valid again");
        return -1;
    }
    if (!truth)
        core_entry_invalidate(self);
    return 0;
}

static PyObject *
entry_repr(PyObject *op)
{
    Entry *self = (Entry *)op;
    if (!self->valid)
        return PyUnicode_FromFormat("<core Entry, invalid, at %p>", op);
    return PyUnicode_FromFormat("<core Entry of %U, %s, %llu hits>", ((PyCodeObject *)self->code)->co_qualname,
                                self->closed ? "closed" : "open", (unsigned long long)self->hits);
}

static PyMethodDef entry_methods[] = {
    {"invalidate", entry_invalidate, METH_NOARGS,
     PyDoc_STR("Drop program, code, user and keepalive; later calls pass this entry over.")},
    {NULL},
};

static PyMemberDef entry_members[] = {
    {"program", T_OBJECT, offsetof(Entry, program), READONLY, PyDoc_STR("The guards; None where there are none.")},
    {"code", T_OBJECT, offsetof(Entry, code), READONLY, PyDoc_STR("The replacement code object.")},
    {"user", T_OBJECT, offsetof(Entry, user), READONLY, PyDoc_STR("What the maker attached.")},
    {"keepalive", T_OBJECT, offsetof(Entry, keepalive), READONLY, PyDoc_STR("Objects that live as long as the entry.")},
    {"closed", T_BOOL, offsetof(Entry, closed), READONLY, PyDoc_STR("True: runs without the frame hook.")},
    {"hits", T_ULONGLONG, offsetof(Entry, hits), READONLY, PyDoc_STR("Calls whose guards held.")},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Entry, weakrefs), READONLY, NULL},
    {NULL},
};

static PyGetSetDef entry_getset[] = {
    {"valid", entry_get_valid, entry_set_valid,
     PyDoc_STR("False once invalidated; assigning False invalidates."), NULL},
    {NULL},
};

PyDoc_STRVAR(entry_doc, "Entry(program, code, closed, user=None, keepalive=None, weak_owners=())\n--\n\n"
                        "One compiled variant of a code object: guards and the code that runs when they hold.\n\n"
                        "program: a GuardProgram, or None for no guards; code: replacement code with the same\n"
                        "argument slots and free variables; weak_owners: objects whose death invalidates the entry.");

static PyType_Slot entry_slots[] = {
    {Py_tp_new, entry_new},         {Py_tp_dealloc, entry_dealloc}, {Py_tp_traverse, entry_traverse},
    {Py_tp_clear, entry_clear},     {Py_tp_repr, entry_repr},       {Py_tp_methods, entry_methods},
    {Py_tp_members, entry_members}, {Py_tp_getset, entry_getset},   {Py_tp_doc, (void *)entry_doc},
    {0, NULL},
};

static PyType_Spec entry_spec = {
    .name = "core._C.Entry",
    .basicsize = sizeof(Entry),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = entry_slots,
};

PyTypeObject *
core_entry_type(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &entry_spec, NULL);
}
