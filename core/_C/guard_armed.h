/* What guard_learn.c writes and guard_arm.c checks; see guard_arm.c. Include with CORE_DICT_INTERNALS defined. */
#ifndef CORE_GUARD_ARMED_H
#define CORE_GUARD_ARMED_H

#include "guard_program.h"
#include "watch.h"

enum { UNSTABLE = 2, CREDIT = 200, CREDIT_A_LEARNING = 4 };
enum { BY_TAG, BY_WATCH, BY_LOOKUP };
enum { REC_WORD, REC_U32, REC_LOCAL, REC_GLOBALS, REC_BUILTINS, REC_MODULES, REC_CELL, REC_LIST, REC_DICT, REC_TYPE };
#define NONE UINT32_MAX

/* What a check reads in order: apart from the rest, to be small. address NULL: not a word, see the record. */
typedef struct Word {
    const uint64_t *address;
    uint64_t expected;
} Word;

typedef struct Record {
    uint32_t kind, index;   /* index: slot, item, dict or type */
    uint32_t instr;         /* the instruction that it stands for */
    const void *object;
} Record;

typedef struct Key {
    PyObject *name;         /* borrowed from program->keep */
    PyObject *expected;     /* borrowed; NULL: absent */
    Py_hash_t hash;
    PyObject *reference;    /* borrowed weak reference of an `is` guard on the value, or NULL */
    uint32_t instr, next;
} Key;

typedef struct DictFact {
    Watch watch;
    PyObject *dict;
    uint32_t first_key, whole_instr;
    uint8_t mode, whole, dirty, dead;
} DictFact;

typedef struct TypeFact {
    PyTypeObject *type;
    unsigned int version;   /* 0: the type has none, look up each time */
    uint32_t first_key;
} TypeFact;

struct Armed {
    GuardProgram *program;
    Word *words;            /* [record_count] */
    Record *records;        /* [record_count] */
    DictFact *dicts;
    TypeFact *types;
    Key *keys;
    Instr *residual;
    PyObject **pins;        /* [pin_count], owned: plain values, whose death runs no user code */
    PyObject **regs;        /* [registers], borrowed */
    uint8_t *state, *seen;  /* [registers], while learning: DYNAMIC... and which words of the object are recorded */
    uint32_t *key_of;       /* [registers], while learning: the key that a HELD register was found under, or NONE */
    uint8_t *wanted;        /* [registers]: the register leads to facts worth arming for */
    uint32_t *dict_table;   /* [table_size]: index of a DictFact by its dict's address */
    uint32_t record_count, dict_count, type_count, key_count, residual_count, pin_count, table_size;
    uint32_t broken;        /* instruction whose record failed last, or NONE */
    int credit;
    uint8_t dirty, globals_seen, builtins_seen, modules_seen;
};

/* guard_arm.c: the present word at an address becomes what record i expects. */
static inline void
core_armed_word(Armed *a, uint32_t i, const void *address)
{
    a->words[i] = (Word){address, *(const uint64_t *)address};
}

/* Forgets all facts; the arrays stay for the next learning. */
void core_armed_forget(Armed *armed);

#endif
