/* Dispatch: choosing an entry for a call, asking the callback when none fits, and running what was chosen.
 *
 * Shared by CompiledCallable (callable.c) and CompiledCode (compiled_code.c). All state is guarded by the GIL; nothing
 * read before a call that may run user code is trusted after it without a reference.
 */
#include "core.h"

int core_stance;
PyObject *core_stance_redirect;

int
core_dispatch_init(Dispatch *self, PyObject *callback, PyObject *user)
{
    if (!PyCallable_Check(callback)) {
        PyErr_Format(PyExc_TypeError, "callback must be callable, not %.100s", Py_TYPE(callback)->tp_name);
        return -1;
    }
    self->entries = PyTuple_New(0);
    if (self->entries == NULL)
        return -1;
    self->callback = Py_NewRef(callback);
    self->user = Py_NewRef(user);
    return 0;
}

int
core_dispatch_traverse(Dispatch *self, visitproc visit, void *arg)
{
    Py_VISIT(self->callback);
    Py_VISIT(self->user);
    Py_VISIT(self->entries);
    return 0;
}

void
core_dispatch_clear(Dispatch *self)
{
    Py_CLEAR(self->callback);
    Py_CLEAR(self->user);
    Py_CLEAR(self->entries);
}

/* ---- asking the callback ---- */

PyObject *
core_call_compiler(PyObject *callback, PyObject *owner, PyCodeObject *code, const FrameView *view)
{
    Py_ssize_t count = core_argument_slots(code);
    PyObject *slots = PyTuple_New(count);
    if (slots == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SET_ITEM(slots, i, Py_NewRef(view->locals[i]));
    PyObject *closure = view->closure == NULL ? Py_None : view->closure;
    PyObject *args[] = {owner, (PyObject *)code, slots, view->globals, view->builtins, closure};

    /* Compiling is no part of the user's program: debuggers, profilers and tracers must not see it. */
    CoreCallback former = core_callback_switch(NULL);
    PyThreadState *ts = PyThreadState_Get();
    PyThreadState_EnterTracing(ts);
    PyObject *answer = PyObject_Vectorcall(callback, args, 6, NULL);
    PyThreadState_LeaveTracing(ts);
    core_callback_restore(former);
    Py_DECREF(slots);
    return answer;
}

static int
dispatch_add(Dispatch *self, PyObject *entry)
{
    PyObject *entries = core_entries_with(self->entries, entry);
    if (entries == NULL)
        return -1;
    self->recent = PyTuple_GET_SIZE(entries) - 1;
    Py_XSETREF(self->entries, entries);
    return 0;
}

/* Takes over `answer`. */
static Entry *
dispatch_accept(Dispatch *self, PyObject *answer, PyCodeObject *code)
{
    if (answer == Py_None) {
        self->skipped = 1;
    }
    else if (answer == Py_False) {
        /* this call only */
    }
    else if (!Entry_Check(answer)) {
        PyErr_Format(PyExc_TypeError, "the callback must return an Entry, None or False, not %.100s",
                     Py_TYPE(answer)->tp_name);
    }
    else if (core_entry_fits((Entry *)answer, code) == 0 && dispatch_add(self, answer) == 0) {
        return (Entry *)answer;
    }
    Py_DECREF(answer);
    return NULL;
}

Entry *
core_dispatch_choose(Dispatch *self, PyObject *owner, PyCodeObject *code, const FrameView *view)
{
    if (core_stance & CORE_STANCE_SKIP_GUARDS && PyTuple_GET_SIZE(self->entries) == 1) {
        Entry *only = (Entry *)PyTuple_GET_ITEM(self->entries, 0);
        if (only->valid) {
            self->hits++;
            return (Entry *)Py_NewRef(only);
        }
    }
    /* Guards may run user code and let other threads run: after a miss, look again at entries made meanwhile. */
    for (int changed = 1; changed;) {
        PyObject *entries = Py_NewRef(self->entries);
        Entry *found = core_entry_find(entries, &self->recent, view);
        changed = found == NULL && entries != self->entries;
        Py_DECREF(entries);
        if (found != NULL) {
            self->hits++;
            return found;
        }
    }
    /* One compile at a time: another thread, or a call from inside the callback, runs as written meanwhile. */
    if ((self->frozen && !(core_stance & CORE_STANCE_ASK)) || self->compiling || self->skipped)
        return NULL;
    self->compiling = 1;
    PyObject *callback = Py_NewRef(self->callback);
    PyObject *answer = core_call_compiler(callback, owner, code, view);
    Py_DECREF(callback);
    self->compiling = 0;
    return answer == NULL ? NULL : dispatch_accept(self, answer, code);
}

/* ---- running ---- */

static PyObject *
call_checked(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    CoreDepth depth;
    if (core_depth_enter(&depth) < 0)
        return NULL;
    PyObject *result = PyObject_Vectorcall(function, args, nargsf, kwnames);
    core_depth_leave(depth);
    return result;
}

PyObject *
core_run_plain(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (core_thread.callback == NULL)
        return call_checked(function, args, nargsf, kwnames);
    CoreCallback former = core_callback_switch(NULL);
    PyObject *result = call_checked(function, args, nargsf, kwnames);
    core_callback_restore(former);
    return result;
}

PyObject *
core_run_entry(Entry *entry, PyObject *callback, PyObject *function, PyObject *const *args, size_t nargsf,
               PyObject *kwnames)
{
    if (entry->closed)
        return core_run_plain(function, args, nargsf, kwnames);
    core_hook_enter();
    CoreCallback former = core_callback_switch(callback);
    PyObject *result = call_checked(function, args, nargsf, kwnames);
    core_callback_restore(former);
    core_hook_leave();
    return result;
}

/* ---- what Python sees ---- */

PyObject *
core_dispatch_entries(Dispatch *self)
{
    PyObject *valid = core_entries_with(self->entries, NULL);
    if (valid == NULL)
        return NULL;
    PyObject *result = PySequence_List(valid);
    Py_DECREF(valid);
    return result;
}

PyObject *
core_dispatch_last(Dispatch *self)
{
    if (self->recent >= PyTuple_GET_SIZE(self->entries))
        Py_RETURN_NONE;
    return Py_NewRef(PyTuple_GET_ITEM(self->entries, self->recent));
}

int
core_dispatch_reset(Dispatch *self)
{
    PyObject *none = PyTuple_New(0);
    if (none == NULL)
        return -1;
    self->recent = 0;
    self->skipped = self->frozen = 0;
    Py_XSETREF(self->entries, none);
    return 0;
}

static PyObject *
set_stance(PyObject *Py_UNUSED(module), PyObject *args)
{
    int bits;
    PyObject *redirect = Py_None;
    if (!PyArg_ParseTuple(args, "i|O:set_stance", &bits, &redirect))
        return NULL;
    if (bits & CORE_STANCE_REDIRECT && !PyCallable_Check(redirect)) {
        PyErr_SetString(PyExc_TypeError, "a stance that redirects needs a callable");
        return NULL;
    }
    core_stance = bits;
    Py_XSETREF(core_stance_redirect, redirect == Py_None ? NULL : Py_NewRef(redirect));
    Py_RETURN_NONE;
}

PyMethodDef core_stance_methods[] = {
    {"set_stance", set_stance, METH_VARARGS,
     PyDoc_STR("set_stance(bits, redirect=None)\n--\n\n"
               "How compiled callables of the process run: 1 as written, 2 a lone entry without its guards, 4 by the\n"
               "callable that redirect(callable) returns, 8 misses of frozen callables ask their callback.")},
    {NULL},
};
