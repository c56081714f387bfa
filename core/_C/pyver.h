/* Everything that differs between CPython 3.11, 3.12 and 3.13, and the only place that reads PY_VERSION_HEX.
 *
 * A file that touches interpreter frames defines CORE_FRAME_INTERNALS before including this; the others see
 * the public API only. Include it before any other header.
 */
#ifndef CORE_PYVER_H
#define CORE_PYVER_H

#ifdef CORE_FRAME_INTERNALS
#define Py_BUILD_CORE 1
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "core supports CPython 3.11, 3.12 and 3.13"
#endif
#ifdef Py_GIL_DISABLED
#error "core does not support free-threaded builds: code extra slots are not thread-safe there"
#endif

#define CORE_PY311 (PY_VERSION_HEX < 0x030C0000)
#define CORE_PY312 (PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000)
#define CORE_PY313 (PY_VERSION_HEX >= 0x030D0000)

/* Dict and type watchers came with 3.12; before them every dict carried a version tag. */
#define CORE_HAVE_WATCHERS (!CORE_PY311)

/* Code extra: the same functions under a new name. */
#if CORE_PY311
#define core_request_code_extra _PyEval_RequestCodeExtraIndex
#define core_get_code_extra _PyCode_GetExtra
#define core_set_code_extra _PyCode_SetExtra
#else
#define core_request_code_extra PyUnstable_Eval_RequestCodeExtraIndex
#define core_get_code_extra PyUnstable_Code_GetExtra
#define core_set_code_extra PyUnstable_Code_SetExtra
#endif

/* 1 when a sys.monitoring tool asked for events of this code object alone (coverage tools do). Replacement code would
 * not report them, so such code runs as written. */
static inline int
core_code_has_local_monitors(PyCodeObject *code)
{
#if CORE_PY311
    (void)code;
    return 0;
#else
    if (code->_co_monitoring == NULL)
        return 0;
    for (size_t i = 0; i < sizeof(code->_co_monitoring->local_monitors.tools); i++) {
        if (code->_co_monitoring->local_monitors.tools[i])
            return 1;
    }
    return 0;
#endif
}

/* Argument slots of a code object: positional, keyword-only, *args, **kw. */
static inline int
core_argument_slots(const PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) +
           !!(code->co_flags & CO_VARKEYWORDS);
}

#ifdef CORE_FRAME_INTERNALS

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "internal/pycore_frame.h"
#pragma GCC diagnostic pop

#if CORE_PY313
#define F_CODE(f) ((PyCodeObject *)(f)->f_executable)
#define F_CODE_SLOT(f) ((f)->f_executable)
#define F_FUNC(f) ((f)->f_funcobj)
#define F_START(f, code) ((f)->instr_ptr = _PyCode_CODE(code))
#elif CORE_PY312
#define F_CODE(f) ((f)->f_code)
#define F_CODE_SLOT(f) ((f)->f_code)
#define F_FUNC(f) ((f)->f_funcobj)
#define F_START(f, code) ((f)->prev_instr = _PyCode_CODE(code) - 1)
#else
#define F_CODE(f) ((f)->f_code)
#define F_CODE_SLOT(f) ((f)->f_code)
#define F_FUNC(f) ((PyObject *)(f)->f_func)
#define F_START(f, code) ((f)->prev_instr = _PyCode_CODE(code) - 1)
#endif

/* Replaces the code that the frame will start with; takes over a new reference. */
static inline void
core_frame_set_code(struct _PyInterpreterFrame *frame, PyCodeObject *code)
{
    PyObject *old = (PyObject *)F_CODE(frame);
    Py_INCREF(code);
#if CORE_PY313
    F_CODE_SLOT(frame) = (PyObject *)code;
#else
    F_CODE_SLOT(frame) = code;
#endif
    F_START(frame, code);
    Py_DECREF(old);
}

/* Slots of the thread's data stack that a frame of this code takes. */
static inline Py_ssize_t
core_frame_size(const PyCodeObject *code)
{
#if CORE_PY311
    return code->co_nlocalsplus + code->co_stacksize + (Py_ssize_t)FRAME_SPECIALS_SIZE;
#else
    return code->co_framesize;
#endif
}

/* 3.11 leaves a frame for its caller to clear; later versions clear it in the evaluation loop. */
#define CORE_CALLER_CLEARS_FRAME CORE_PY311

/* From 3.12 an evaluation entered from C takes two units of a C recursion budget, however large the real stack is. */
#if CORE_PY311
#define CORE_EVAL_C_UNITS 0
#define CORE_C_RECURSION(ts) 0
#define CORE_C_RECURSION_SET(ts, n) ((void)(n))
#else
#define CORE_EVAL_C_UNITS 2
#define CORE_C_RECURSION(ts) ((ts)->c_recursion_remaining)
#define CORE_C_RECURSION_SET(ts, n) ((ts)->c_recursion_remaining = (n))
#endif

#endif /* CORE_FRAME_INTERNALS */

#endif
