/* The inside of guard evaluation, shared by guards.c and the guard_*.c files.
 *
 * A program is a flat array of fixed-size instructions over registers. The instructions before `head` run no user
 * code, so their registers hold borrowed references; from `head` on every register owns what it holds.
 */
#ifndef CORE_GUARD_PROGRAM_H
#define CORE_GUARD_PROGRAM_H

#include "guards.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, operand kinds): see guard_compile.c for what the kinds mean. */
#define CORE_GUARD_OPS(X)                                                                                             \
    X(local, "dn") X(global, "dk") X(global_only, "dk") X(builtin, "dk") X(closure, "dn") X(const, "dow")             \
    X(attr, "dsk") X(instance_attr, "dsk") X(instance_dict, "ds") X(type, "ds") X(type_attr, "dsk")                   \
    X(slot_attr, "dsk") X(dict_item, "dsK") X(list_item, "dsn") X(tuple_item, "dsn") X(cell, "ds") X(module, "dk")    \
    X(function_code, "ds") X(function_defaults, "ds") X(function_kwdefaults, "ds") X(function_closure, "ds")          \
    X(method_self, "ds") X(method_func, "ds") X(iterator_ahead, "dsn") X(iterator_part, "dsn") X(called, "dsf")       \
    X(is, "sow") X(is_not, "sow") X(type_is, "st") X(equals, "sc") X(len, "sn") X(dict_keys, "sT") X(missing_key, "sK") \
    X(missing_instance_attr, "sk") X(missing_global, "k") X(type_version, "t") X(same, "ss") X(not_same, "ss")        \
    X(tensor, "sS") X(no_overlap, "R") X(global_state, "g") X(int_range, "sI") X(shape, "H") X(python, "Rf")          \
    X(items_left, "sn") X(no_items_left, "sn")

typedef enum GuardOp {
#define X(name, kinds) OP_##name,
    CORE_GUARD_OPS(X)
#undef X
    OP_COUNT
} GuardOp;

#define NO_REGISTER UINT32_MAX

enum { FLAG_WEAK = 1, FLAG_PLAIN = 2 }; /* PLAIN: the constant compares without user code and is immutable */

typedef struct Instr {
    uint8_t op, flags;
    uint8_t unstable;   /* how often an armed program met another object here; see guard_arm.c */
    uint8_t spare;
    uint32_t dst, src;  /* registers, or NO_REGISTER */
    uint32_t src2;
    uint32_t index;     /* position in the Python list, reported on a miss */
    Py_ssize_t n;       /* slot, item, length, or number of registers in `extra` */
    PyObject *object;   /* borrowed from program->keep: name, key, constant, type, callable, weak reference */
    Py_hash_t hash;     /* of a str key */
    void *extra;        /* owned by the program: TensorSpec, ShapeCode, register list */
} Instr;

typedef struct ShapeToken {
    uint8_t op;
    uint8_t is_float;
    uint32_t reg;
    union { int64_t dim, number; double real; } as;
} ShapeToken;

typedef struct ShapeCode {
    uint32_t length, depth;
    ShapeToken tokens[];
} ShapeCode;

typedef struct RegisterList {
    uint32_t length;
    uint32_t regs[];
} RegisterList;

typedef struct Armed Armed;

typedef struct GuardProgram {
    PyObject_HEAD
    PyObject *keep;         /* list: every object that the instructions point at */
    PyObject *on_invalid;   /* called once, without arguments, when a weakly held object dies; or NULL */
    PyObject *weaklist;
    PyObject *note;         /* what the callbacks of our weak references hold instead of the program */
    Instr *instrs;
    Py_ssize_t length, head;
    uint32_t registers;
    uint8_t invalid;        /* a weakly held object died: every evaluation misses */
    uint8_t cleared;
    uint8_t busy;           /* running evaluations; only the first may use `scratch` and `armed` */
    uint8_t armed_ready;    /* guard_arm.c: core_armed_check() may be asked */
    uint8_t learning_off;   /* guard_arm.c: learning is of no use for this program */
    PyObject **scratch;     /* [registers], borrowed references of a running evaluation */
    Armed *armed;           /* guard_arm.c; NULL until the first hit */
} GuardProgram;

/* guard_compile.c: fills instrs, keep and head from the list of tuples; -1 with an exception set. */
int core_guard_compile(GuardProgram *program, PyObject *instructions);
void core_guard_free_instructions(GuardProgram *program);

/* guard_ops.c. Evaluates instrs[0..count). owned=0: borrowed registers, no user code may run; owned=1: `regs` starts
 * with NULLs or owned references and the caller releases them.
 * 1 hit, 0 miss with *failed set to the instruction's index, 2: a step would run user code although owned is 0. */
enum { GUARD_MISS = 0, GUARD_HIT = 1, GUARD_NEEDS_OWNED = 2 };
int core_guard_run(const Instr *instrs, Py_ssize_t count, const FrameView *view, PyObject **regs, int owned,
                   Py_ssize_t *failed);

/* guard_values.c. None of these leaves an exception set. */
int core_value_is_plain(PyObject *value);                  /* immutable, compares without user code */
int core_key_is_plain(PyObject *key);
int core_values_equal(PyObject *value, PyObject *constant); /* same type and ==, as the `equals` check defines it */
int core_dict_unchanged(PyObject *dict, uint64_t *version); /* 1 since the last call with this `version`, which it updates */
int core_dict_keys_equal(PyObject *dict, PyObject *keys);
Py_ssize_t core_value_length(PyObject *value);             /* -1: has no such length */
int core_int_in_range(PyObject *value, PyObject *bounds);  /* bounds: (lo | None, hi | None) */
PyObject *core_slot_value(PyObject *value, PyObject *name, Py_ssize_t *offset);  /* borrowed, NULL when unset */

/* iterators.c. The first two: a new reference or NULL. No exception is left set. */
PyObject *core_iterator_ahead(PyObject *iterator, Py_ssize_t n);
PyObject *core_iterator_part(PyObject *iterator, Py_ssize_t n);
Py_ssize_t core_iterator_left(PyObject *iterator); /* -1: does not tell */
int core_iterators_add_to_module(PyObject *module);

/* guard_shape.c */
ShapeCode *core_shape_compile(PyObject *tokens, uint32_t registers);
int core_shape_eval(const ShapeCode *code, PyObject *const *regs);

/* guard_arm.c and guard_learn.c. core_armed_check: 1 the head holds, 0 it does not (*failed is set), -1 not proven: evaluate in full. */
int core_armed_check(GuardProgram *program, const FrameView *view, Py_ssize_t *failed);
void core_armed_learn(GuardProgram *program, const FrameView *view);  /* after a full hit; regs are in scratch */
void core_armed_free(GuardProgram *program);
PyObject *core_armed_describe(GuardProgram *program);

/* Registers [registers] as they are after core_armed_check() returned 1, borrowed. */
PyObject *const *core_armed_registers(const GuardProgram *program);

#ifdef __cplusplus
}
#endif

#endif
