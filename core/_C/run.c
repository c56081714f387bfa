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

PyObject *
core_run_frame(PyThreadState *ts, Frame *frame, int throwflag, _PyFrameEvalFunction evaluate)
{
    CoreDepth depth;
    if (core_depth_enter(&depth) < 0) {
        if (!throwflag) {
            core_dispose_frame(ts, frame);
            return NULL;
        }
        PyErr_Clear(); /* a generator that is being closed must get its turn */
        return evaluate(ts, frame, throwflag);
    }
    PyObject *result = evaluate(ts, frame, throwflag);
    core_depth_leave(depth);
    return result;
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
    PyObject *replace = NULL, *kwargs = NULL, *none = NULL;
    PyObject *empty = (PyObject *)PyCode_NewEmpty("<core>", "<drain>", 1);
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
    ts->c_recursion_remaining = c > 4 ? c : 4;
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
