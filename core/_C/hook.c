/* The frame evaluation hook (PEP 523): which frames are looked at, and when the hook is installed.
 *
 * An installed hook makes every Python call of the process slower and recurse in C. So it is counted, installed by the
 * first user and removed by the last; a thread takes part only while it has a callback. Shared between threads: `hook`,
 * under the GIL.
 */
#define CORE_FRAME_INTERNALS
#include "run.h"

__thread CoreThread core_thread __attribute__((tls_model("initial-exec")));

static struct {
    Py_ssize_t users;
    _PyFrameEvalFunction next; /* the evaluator found at install, which every other frame goes to */
    int buried;                /* another evaluator stands above ours, so ours could not be removed */
    int probed;                /* set when a frame passes through ours */
} hook;

static PyObject *evaluate(PyThreadState *ts, Frame *frame, int throwflag);

/* ---- installing ---- */

/* With another evaluator on top: does a Python call still come down to ours? */
static int
still_reached(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    CoreCallback former = core_callback_switch(NULL);
    PyThreadState *ts = PyThreadState_Get();
    PyThreadState_EnterTracing(ts); /* the probe is no part of the user's program */
    PyObject *globals = PyDict_New(), *probe = NULL;
    hook.probed = 0;
    if (globals != NULL && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0)
        probe = PyRun_String("(lambda: None)()", Py_eval_input, globals, globals);
    if (probe == NULL)
        PyErr_Clear();
    Py_XDECREF(probe);
    Py_XDECREF(globals);
    PyThreadState_LeaveTracing(ts);
    core_callback_restore(former);
    PyErr_Restore(type, value, traceback);
    return hook.probed;
}

static void
hook_install(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (current == evaluate || (hook.buried && still_reached()))
        return;
    hook.buried = 0;
    hook.next = current;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

static void
hook_remove(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate) {
        _PyInterpreterState_SetEvalFrameFunc(interpreter, hook.next);
        hook.buried = 0;
    }
    else {
        hook.buried = 1;
    }
}

void
core_hook_enter(void)
{
    if (hook.users++ == 0)
        hook_install();
}

void
core_hook_leave(void)
{
    if (--hook.users == 0)
        hook_remove();
}

/* ---- one frame ---- */

/* The frame that this thread handed to another evaluator beneath ours, and has not got back. */
static __thread Frame *handed_on __attribute__((tls_model("initial-exec")));

/* Another evaluator that was installed above ours, left, and came again after us stands above and beneath at once: it
 * hands a frame back that we handed to it. CPython's own evaluator ends the round. */
static int
is_back_again(Frame *frame)
{
    return handed_on == frame && hook.next != _PyEval_EvalFrameDefault;
}

static PyObject *
run_next(PyThreadState *ts, Frame *frame, int throwflag)
{
    if (hook.next == _PyEval_EvalFrameDefault)
        return core_run_frame(ts, frame, throwflag, hook.next);
    Frame *former = handed_on;
    handed_on = frame;
    PyObject *result = core_run_frame(ts, frame, throwflag, hook.next);
    handed_on = former;
    return result;
}

static int
can_be_captured(Frame *frame, PyCodeObject *code)
{
    /* RETURN_GENERATOR sizes the generator by the function's own code, so such frames must not change theirs. */
    const int suspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    const int function = CO_OPTIMIZED | CO_NEWLOCALS;
    return frame->owner == FRAME_OWNED_BY_THREAD && (code->co_flags & (function | suspends)) == function &&
           PyFunction_Check(F_FUNC(frame));
}

/* The callback's entry whose guards hold, a new reference, or NULL. Guards may run user code that resets the code or
 * lets other threads compile: the group is looked up again after each round, and entries made meanwhile are tried. */
static Entry *
find_entry(CodeState *state, PyObject *callback, const FrameView *view)
{
    for (;;) {
        Group *group = core_group_find(state, callback);
        if (group == NULL || PyTuple_GET_SIZE(group->entries) == 0)
            return NULL;
        PyObject *entries = Py_NewRef(group->entries);
        Py_ssize_t recent = group->recent;
        Entry *found = core_entry_find(entries, &recent, view);
        group = core_group_find(state, callback);
        int changed = group == NULL || group->entries != entries;
        Py_DECREF(entries);
        if (!changed)
            group->recent = recent;
        if (found != NULL || !changed)
            return found;
    }
}

/* Files the callback's answer (taken over); the entry to run or NULL, with an exception when the answer is unusable. */
static Entry *
accept_answer(PyObject *answer, PyObject *callback, CodeState *state, PyCodeObject *code)
{
    if (answer == Py_None) {
        Group *group = core_group_find(state, callback);
        if (group != NULL)
            group->skipped = 1;
    }
    else if (answer == Py_False) {
        /* this call only */
    }
    else if (!Entry_Check(answer)) {
        PyErr_Format(PyExc_TypeError, "the frame callback must return an Entry, None or False, not %.100s",
                     Py_TYPE(answer)->tp_name);
    }
    else if (core_entry_fits((Entry *)answer, code) == 0) {
        Group *group = core_group_make(state, callback);
        PyObject *entries = group == NULL ? NULL : core_entries_with(group->entries, answer);
        if (entries != NULL) {
            PyObject *former = group->entries;
            group->entries = entries;
            group->recent = PyTuple_GET_SIZE(entries) - 1;
            Py_DECREF(former); /* last: may run user code, which may free the group */
            return (Entry *)answer;
        }
    }
    Py_DECREF(answer);
    return NULL;
}

/* The entry for this frame, a new reference; NULL without an exception: run as written; NULL with one: fail. */
static Entry *
choose(PyObject *callback, int run_only, CodeState *state, PyCodeObject *code, const FrameView *view)
{
    Entry *found = find_entry(state, callback, view);
    if (found != NULL || run_only)
        return found;
    Group *group = core_group_make(state, callback);
    if (group == NULL || group->compiling || group->skipped)
        return NULL;
    group->compiling = 1;
    PyObject *answer = core_call_compiler(callback, Py_None, code, view);
    group = core_group_find(state, callback);
    if (group != NULL)
        group->compiling = 0;
    return answer == NULL ? NULL : accept_answer(answer, callback, state, code);
}

static PyObject *
run_chosen(PyThreadState *ts, Frame *frame, Entry *entry)
{
    PyCodeObject *code = (PyCodeObject *)Py_NewRef(entry->code);
    PyObject *result;
    if (entry->closed) {
        CoreCallback former = core_callback_switch(NULL);
        result = core_run_replaced(ts, frame, code);
        core_callback_restore(former);
    }
    else {
        result = core_run_replaced(ts, frame, code);
    }
    Py_DECREF(code);
    Py_DECREF(entry);
    return core_tail_call_run(result);
}

/* As written, with all that it calls. */
static PyObject *
run_quiet(PyThreadState *ts, Frame *frame)
{
    CoreCallback former = core_callback_switch(NULL);
    PyObject *result = run_next(ts, frame, 0);
    core_callback_restore(former);
    return result;
}

static PyObject *
evaluate_captured(PyThreadState *ts, Frame *frame)
{
    PyCodeObject *code = F_CODE(frame);
    CodeState *state = core_state_of(code);
    if (state != NULL && state->quiet)
        return run_quiet(ts, frame);
    if ((state != NULL && state->skipped) || core_code_has_local_monitors(code))
        return run_next(ts, frame, 0);
    if (state == NULL)
        state = core_state_make(code);
    if (state == NULL)
        goto fail;
    if (!can_be_captured(frame, code)) {
        state->skipped = 1;
        return run_next(ts, frame, 0);
    }
    PyFunctionObject *function = (PyFunctionObject *)F_FUNC(frame);
    FrameView view = {frame->localsplus, frame->f_globals, frame->f_builtins, function->func_closure};
    PyObject *callback = Py_NewRef(core_thread.callback);
    Entry *entry = choose(callback, core_thread.run_only, state, code, &view);
    Py_DECREF(callback);
    if (entry != NULL)
        return run_chosen(ts, frame, entry);
    state = core_state_of(code);
    if (state != NULL && state->quiet && !PyErr_Occurred()) /* the callback has just found that out */
        return run_quiet(ts, frame);
    if (!PyErr_Occurred())
        return run_next(ts, frame, 0);
fail:
    core_dispose_frame(ts, frame);
    return NULL;
}

static PyObject *
evaluate(PyThreadState *ts, Frame *frame, int throwflag)
{
    if (is_back_again(frame))
        return core_run_frame(ts, frame, throwflag, _PyEval_EvalFrameDefault);
    /* Trace, profile and audit functions run with tracing held off: they are no part of the user's program. */
    if (core_thread.callback != NULL && !throwflag && ts->tracing == 0)
        return evaluate_captured(ts, frame);
    hook.probed = 1;
    if (hook.users == 0 && _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == evaluate)
        hook_remove(); /* whoever stood above us left and put us back */
    return run_next(ts, frame, throwflag);
}

/* ---- what Python sees ---- */

static PyObject *
install_hook(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_RuntimeError, "the frame hook works in the main interpreter only");
        return NULL;
    }
    core_hook_enter();
    Py_RETURN_NONE;
}

static PyObject *
uninstall_hook(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (hook.users == 0) {
        PyErr_SetString(PyExc_RuntimeError, "uninstall_hook() without a matching install_hook()");
        return NULL;
    }
    core_hook_leave();
    Py_RETURN_NONE;
}

static PyObject *
hook_installed(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(hook.users > 0);
}

static PyObject *
set_frame_callback(PyObject *Py_UNUSED(module), PyObject *value)
{
    CoreThread *thread = &core_thread;
    if (value != Py_None && value != Py_False && !PyCallable_Check(value)) {
        PyErr_Format(PyExc_TypeError, "expected a callable, None or False, not %.100s", Py_TYPE(value)->tp_name);
        return NULL;
    }
    PyObject *former = thread->callback, *answer;
    answer = former == NULL ? Py_None : thread->run_only ? Py_False : former;
    Py_INCREF(answer);
    if (value == Py_False) {
        thread->run_only = former != NULL;
        return answer;
    }
    thread->callback = value == Py_None ? NULL : Py_NewRef(value);
    thread->run_only = 0;
    Py_XDECREF(former);
    return answer;
}

PyMethodDef core_hook_methods[] = {
    {"install_hook", install_hook, METH_NOARGS, PyDoc_STR("install_hook()\n--\n\nInstall the frame hook; counted.")},
    {"uninstall_hook", uninstall_hook, METH_NOARGS, PyDoc_STR("uninstall_hook()\n--\n\nUndo one install_hook().")},
    {"hook_installed", hook_installed, METH_NOARGS,
     PyDoc_STR("hook_installed()\n--\n\nTrue while the hook has a user.")},
    {"set_frame_callback", set_frame_callback, METH_O,
     PyDoc_STR("set_frame_callback(callback)\n--\n\n"
               "Set this thread's frame callback and return the former one.\n\n"
               "A callable captures; None turns the thread off; False keeps the callback and only runs entries.")},
    {NULL},
};
