/* Everything that differs between CPython 3.11, 3.12 and 3.13, and the only place that reads PY_VERSION_HEX.
 *
 * A file that touches interpreter frames defines CORE_FRAME_INTERNALS before including this; the others see
 * the public API only. Include it before any other header.
 */
#ifndef CORE_PYVER_H
#define CORE_PYVER_H

#if defined(CORE_FRAME_INTERNALS) || defined(CORE_DICT_INTERNALS)
#define Py_BUILD_CORE 1
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
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

/* Address of the pointer to an instance's `__dict__`; NULL where the type has none, or after a failed allocation.
 *
 * Instances may keep their attributes inline until someone asks for the dict. Making it allocates, which on 3.11 may
 * run the garbage collector and so user code: with may_make == 0 the function then sets *not_ready instead.
 */
static inline PyObject **
core_instance_dict_slot(PyObject *object, int may_make, int *not_ready)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject **slot = (PyObject **)object - 3;
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
#if CORE_PY311
        if (slot[-1] == NULL) /* no inline values */
            return slot;
#elif CORE_PY312
        if (((uintptr_t)*slot & 1) == 0) /* a dict, not tagged inline values */
            return slot;
#else
        if (*slot != NULL || !(type->tp_flags & Py_TPFLAGS_INLINE_VALUES))
            return slot;
#endif
    }
    else if (type->tp_dictoffset >= 0)
        return type->tp_dictoffset == 0 ? NULL : (PyObject **)((char *)object + type->tp_dictoffset);
    if (CORE_PY311 && !may_make) {
        *not_ready = 1;
        return NULL;
    }
    slot = _PyObject_GetDictPtr(object);
    if (slot == NULL)
        PyErr_Clear();
    return slot;
}

/* Argument slots of a code object: positional, keyword-only, *args, **kw. */
static inline int
core_argument_slots(const PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) +
           !!(code->co_flags & CO_VARKEYWORDS);
}

/* An iterator of a list or a tuple, as all three versions lay it out; iterators.c tests that before it looks. */
typedef struct CoreSequenceIterator {
    PyObject_HEAD
    Py_ssize_t next;
    PyObject *items; /* NULL at the end */
} CoreSequenceIterator;

/* The same for an iterator of a range of machine words. */
typedef struct CoreRangeIterator {
    PyObject_HEAD
#if CORE_PY311
    long taken;
#endif
    long start, step, length; /* from 3.12 on, of what is left */
} CoreRangeIterator;

static inline Py_ssize_t
core_range_iterator_left(const CoreRangeIterator *iterator, long *next)
{
    long taken = 0;
#if CORE_PY311
    taken = iterator->taken;
#endif
    *next = iterator->start + taken * iterator->step;
    return iterator->length - taken;
}

#ifdef CORE_DICT_INTERNALS

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "internal/pycore_dict.h"
#pragma GCC diagnostic pop

/* 1 when every key is an exact str, so that a lookup by an exact str calls no user code. */
static inline int
core_dict_has_str_keys_only(PyObject *dict)
{
    return ((PyDictObject *)dict)->ma_keys->dk_kind != DICT_KEYS_GENERAL;
}

/* Changes with every change of the dict. 3.11: unique in the process. Later versions keep watcher bits in it. */
static inline const uint64_t *
core_dict_version_at(PyObject *dict)
{
    return &((PyDictObject *)dict)->ma_version_tag;
}

static inline uint64_t
core_dict_version(PyObject *dict)
{
    return *core_dict_version_at(dict);
}

/* 1 when the dict is a window on values that lie in an instance (3.13): a store through the instance may neither
 * change the version nor tell a watcher. */
static inline int
core_dict_is_window(PyObject *dict)
{
#if CORE_PY313
    return ((PyDictObject *)dict)->ma_values != NULL;
#else
    (void)dict;
    return 0;
#endif
}

#endif /* CORE_DICT_INTERNALS */

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

#endif /* CORE_FRAME_INTERNALS */

#endif
