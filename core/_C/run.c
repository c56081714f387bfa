/* Running an intercepted frame.
 *
 * At its start a frame holds its argument slots and nothing else: cells and free variables are made by the code itself.
 * So another code with the same argument slots and free variables can take the frame over in place; if it needs more
 * room, the frame is the top of the thread's data stack and can grow. CPython then runs and clears the frame by its own
 * rules. Where the stack chunk has no room, the replacement runs as a function of its own and the frame is disposed of.
 */
#define CORE_FRAME_INTERNALS
#include "run.h"

#include <opcode.h>
#include <pthread.h>

/* ---- the C stack ---- */

/* A hooked call recurses in C. Past this much of the stack nothing is started; it is what error handling needs. */
#define STACK_MARGIN_BYTES ((uintptr_t)160 * 1024)

#if !CORE_PY311
/* What one unit of CPython's C recursion budget is taken to need. */
#define STACK_BYTES_PER_UNIT ((uintptr_t)512)
#endif

static void
find_stack(CoreThread *thread)
{
    /* Unknown bounds are stored as an empty range: no address lies inside, so nothing is checked. */
    thread->stack_low = thread->stack_high = 1;
#if defined(__linux__)
    pthread_attr_t attributes;
    void *base;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &base, &size) == 0) {
        thread->stack_low = (uintptr_t)base;
        thread->stack_high = (uintptr_t)base + size;
    }
    pthread_attr_destroy(&attributes);
#elif defined(__APPLE__)
    thread->stack_high = (uintptr_t)pthread_get_stackaddr_np(pthread_self());
    thread->stack_low = thread->stack_high - pthread_get_stacksize_np(pthread_self());
#endif
}

/* Bytes left on the C stack, or SIZE_MAX where they can't be told (a coroutine library's own stack, say). */
static uintptr_t
stack_room(void)
{
    CoreThread *thread = &core_thread;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (thread->stack_high == 0)
        find_stack(thread);
    if (here - thread->stack_low >= thread->stack_high - thread->stack_low)
        return UINTPTR_MAX;
    return here - thread->stack_low;
}

PyObject *
core_run_frame(PyThreadState *ts, Frame *frame, int throwflag, _PyFrameEvalFunction evaluate)
{
    uintptr_t room = stack_room();
    if (room < STACK_MARGIN_BYTES && !throwflag) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is used up");
        core_dispose_frame(ts, frame);
        return NULL;
    }
#if CORE_PY311
    return evaluate(ts, frame, throwflag);
#else
    /* Without the hook a Python call takes none of the C recursion budget. Give back what this one takes, as long as
     * the stack has room for the whole budget that would then be left. */
    int former = CORE_C_RECURSION(ts), given = former + CORE_EVAL_C_UNITS;
    if (given > 0 && room != UINTPTR_MAX && (uintptr_t)given * STACK_BYTES_PER_UNIT <= room)
        CORE_C_RECURSION_SET(ts, given);
    PyObject *result = evaluate(ts, frame, throwflag);
    CORE_C_RECURSION_SET(ts, former);
    return result;
#endif
}

/* ---- disposing ---- */

#if !CORE_CALLER_CLEARS_FRAME

/* Code that returns None, with no RESUME, so that no tracer or monitor sees it run. One stack slot: it always fits. */
static PyCodeObject *drain_code;

int
core_run_init(void)
{
    if (drain_code != NULL)
        return 0;
    const char body[] = {LOAD_CONST, 0, RETURN_VALUE, 0};
    PyObject *empty = (PyObject *)PyCode_NewEmpty("<core>", "<drain>", 1), *replace = NULL, *kwargs = NULL, *none = NULL;
    if (empty == NULL)
        return -1;
    none = PyTuple_New(0);
    replace = PyObject_GetAttrString(empty, "replace");
    kwargs = Py_BuildValue("{s:y#,s:(O),s:i,s:y#}", "co_code", body, (Py_ssize_t)sizeof(body), "co_consts", Py_None,
                           "co_stacksize", 1, "co_exceptiontable", "", (Py_ssize_t)0);
    if (none != NULL && replace != NULL && kwargs != NULL)
        drain_code = (PyCodeObject *)PyObject_Call(replace, none, kwargs);
    Py_XDECREF(none);
    Py_XDECREF(replace);
    Py_XDECREF(kwargs);
    Py_DECREF(empty);
    return drain_code == NULL ? -1 : 0;
}

void
core_dispose_frame(PyThreadState *ts, Frame *frame)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int count = core_argument_slots(F_CODE(frame));
    frame->stacktop = 0;
    for (int i = 0; i < count; i++)
        Py_CLEAR(frame->localsplus[i]);
    core_frame_set_code(frame, drain_code);
    /* The budget may be what is used up; draining calls nothing. */
    int python = ts->py_recursion_remaining, c = ts->c_recursion_remaining;
    ts->py_recursion_remaining = python > 2 ? python : 2;
    ts->c_recursion_remaining = c > 2 * CORE_EVAL_C_UNITS ? c : 2 * CORE_EVAL_C_UNITS;
    PyObject *nothing = _PyEval_EvalFrameDefault(ts, frame, 0);
    ts->py_recursion_remaining = python;
    ts->c_recursion_remaining = c;
    Py_XDECREF(nothing);
    PyErr_Restore(type, value, traceback);
}

#else

int
core_run_init(void)
{
    return 0;
}

/* The caller clears a frame that returned. */
void
core_dispose_frame(PyThreadState *ts, Frame *frame)
{
    (void)ts, (void)frame;
}

#endif

/* ---- in place ---- */

/* 0, or -1 when the data stack's chunk has no room; then nothing has changed. */
static int
take_over(PyThreadState *ts, Frame *frame, PyCodeObject *code)
{
    PyCodeObject *old = F_CODE(frame);
    Py_ssize_t need = core_frame_size(code), have = core_frame_size(old);
    if (need > have) {
        PyObject **end = (PyObject **)frame + have;
        if (ts->datastack_top != end || need - have >= ts->datastack_limit - end)
            return -1;
        ts->datastack_top = (PyObject **)frame + need; /* popped by the frame's address, so there is nothing to undo */
    }
    for (int i = core_argument_slots(old); i < code->co_nlocalsplus; i++)
        frame->localsplus[i] = NULL;
    frame->stacktop = code->co_nlocalsplus;
    core_frame_set_code(frame, code);
    return 0;
}

/* ---- through a function ---- */

static PyObject *
call_plainly(PyObject *function, Frame *frame, PyCodeObject *code)
{
    return PyObject_Vectorcall(function, frame->localsplus, (size_t)code->co_argcount, NULL);
}

/* Unpacks *args, **kw and keyword-only slots into a call. */
static PyObject *
call_unpacked(PyObject *function, Frame *frame, PyCodeObject *code)
{
    PyObject **slots = frame->localsplus, *args = NULL, *kwargs = NULL, *result = NULL;
    Py_ssize_t named = code->co_argcount + code->co_kwonlyargcount;
    int has_rest = !!(code->co_flags & CO_VARARGS);
    PyObject *rest = has_rest ? slots[named] : NULL;
    Py_ssize_t extra = rest == NULL ? 0 : PyTuple_GET_SIZE(rest);
    args = PyTuple_New(code->co_argcount + extra);
    kwargs = code->co_flags & CO_VARKEYWORDS ? PyDict_Copy(slots[named + has_rest]) : PyDict_New();
    if (args == NULL || kwargs == NULL)
        goto done;
    for (Py_ssize_t i = 0; i < code->co_argcount; i++)
        PyTuple_SET_ITEM(args, i, Py_NewRef(slots[i]));
    for (Py_ssize_t i = 0; i < extra; i++)
        PyTuple_SET_ITEM(args, code->co_argcount + i, Py_NewRef(PyTuple_GET_ITEM(rest, i)));
    for (Py_ssize_t i = code->co_argcount; i < named; i++) {
        if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(code->co_localsplusnames, i), slots[i]) < 0)
            goto done;
    }
    result = PyObject_Call(function, args, kwargs);
done:
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return result;
}

static PyObject *
run_as_function(PyThreadState *ts, Frame *frame, PyCodeObject *code)
{
    PyCodeObject *old = F_CODE(frame);
    PyObject *function = core_function_like((PyFunctionObject *)F_FUNC(frame), (PyObject *)code), *result = NULL;
    if (function != NULL) {
        if (old->co_kwonlyargcount || (old->co_flags & (CO_VARARGS | CO_VARKEYWORDS)))
            result = call_unpacked(function, frame, old);
        else
            result = call_plainly(function, frame, old);
        Py_DECREF(function);
    }
    core_dispose_frame(ts, frame);
    return result;
}

PyObject *
core_run_replaced(PyThreadState *ts, Frame *frame, PyCodeObject *code)
{
    if (take_over(ts, frame, code) < 0)
        return run_as_function(ts, frame, code);
    /* Not the chained evaluator: another compiler below us must not see code that is already compiled. */
    return core_run_frame(ts, frame, 0, _PyEval_EvalFrameDefault);
}
