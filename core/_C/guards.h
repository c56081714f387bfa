/* The boundary between dispatch (callable.c, hook.c, entry.c) and guard evaluation (guards.c and its neighbours).
 *
 * What enters: a guard program object and a view of one frame at its start. What leaves: hit or miss.
 * Dispatch must not know how a program is made up; evaluation must not know what runs after a hit.
 */
#ifndef CORE_GUARDS_H
#define CORE_GUARDS_H

#include "pyver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A frame before its first instruction. All pointers are borrowed and stay alive during an evaluation.
 *
 * locals: the argument slots in the code's order: positional, keyword-only, *args tuple, **kw dict; never NULL inside.
 * globals: a dict. builtins: a dict (or, rarely, another mapping). closure: a tuple of cells, or NULL.
 */
typedef struct FrameView {
    PyObject *const *locals;
    PyObject *globals, *builtins, *closure;
} FrameView;

/* 1 when every instruction of `program` holds for `view`, else 0.
 *
 * Never leaves an exception set, and may be called with none set only. `failed_index` (may be NULL) receives the index
 * of the instruction that failed, untouched on a hit. The caller holds a reference to `program` and has switched the
 * thread's frame callback off, so that user code run by an instruction is not captured.
 */
int core_guards_eval(PyObject *program, const FrameView *view, Py_ssize_t *failed_index);

/* 1 when `object` is a GuardProgram, else 0. */
int core_guards_is_program(PyObject *object);

/* Adds the types and functions of guard evaluation to the module; -1 with an exception set on failure. */
int core_guards_add_to_module(PyObject *module);

#ifdef __cplusplus
}
#endif

#endif
