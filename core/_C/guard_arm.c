/* The armed part of a program: a short proof, from raw memory words, that the last full evaluation still holds.
 *
 * After a hit, each instruction of the head whose outcome rests on facts that can be re-read cheaply is turned into
 * records: "the word at this address is still this". Order makes it safe: a record's address lies in an object that
 * the records before it have proved alive. What stands in a dict is covered by one fact a dict, however many keys are
 * guarded: its version tag (3.11), or the silence of its watcher (3.12+). When a dict did change, the guarded keys
 * alone are looked up again ("repair"); unrelated keys cost no full evaluation. Everything else (tensors, sizes, values
 * that sit in argument slots) is `residual` and is evaluated as ever.
 *
 * A pointer seen again does not prove the same object: its memory may have been reused. So what a record finds at an
 * address is read again (type, dict, items), never remembered. Exceptions: a register is HELD when its object can't
 * have died unseen and plain, immutable objects in it are kept alive here (`pins`), so that a check of such a value
 * needs no repetition; a FIXED register promises the address alone. Version tags are never reused on 3.11, and the
 * death of a watched dict is told, so the same dict at the same address with the same tag is the same contents.
 */
#define CORE_DICT_INTERNALS
#include "guard_program.h"
#include "watch.h"

#include <string.h>

enum { DYNAMIC, FIXED, HELD };
enum { UNSTABLE = 2, CREDIT = 200, CREDIT_A_LEARNING = 4 };
enum { TYPE_SEEN = 1, SLOT_SEEN = 2 };
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

static void
dict_changed(Watch *watch, PyObject *key, int dead)
{
    DictFact *fact = (DictFact *)watch;
    Armed *armed = watch->owner;
    if (key != NULL && !fact->whole && PyUnicode_CheckExact(key) && PyUnicode_CHECK_INTERNED(key)) {
        /* Interned names differ when their addresses do, so most unrelated keys end here. */
        uint32_t i = fact->first_key;
        while (i != NONE && armed->keys[i].name != key && PyUnicode_CHECK_INTERNED(armed->keys[i].name))
            i = armed->keys[i].next;
        if (i == NONE)
            return;
    }
    fact->dirty = 1;
    fact->dead |= (uint8_t)dead;
    armed->dirty = 1;
}

static void
forget(Armed *armed)
{
    for (uint32_t i = 0; i < armed->dict_count; i++)
        core_watch_remove(&armed->dicts[i].watch);
    for (uint32_t i = 0; i < armed->pin_count; i++)
        Py_DECREF(armed->pins[i]);
    armed->pin_count = 0;
    armed->record_count = armed->dict_count = armed->type_count = armed->key_count = armed->residual_count = 0;
    armed->program->armed_ready = armed->dirty = 0;
    armed->globals_seen = armed->builtins_seen = armed->modules_seen = 0;
}

void
core_armed_free(GuardProgram *program)
{
    Armed *armed = program->armed;
    if (armed == NULL)
        return;
    program->armed = NULL;
    forget(armed);
    void *parts[] = {armed->words, armed->records, armed->dicts,  armed->types,  armed->keys,       armed->residual,
                     armed->pins,  armed->regs,    armed->key_of, armed->state, armed->seen, armed->wanted, armed->dict_table,
                     armed};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        PyMem_RawFree(parts[i]);
}

static Armed *
new_armed(GuardProgram *program)
{
    Armed *armed = PyMem_RawCalloc(1, sizeof(Armed));
    size_t n = (size_t)program->head + 1, registers = program->registers + 1;
    if (armed == NULL)
        return NULL;
    armed->program = program;
    armed->credit = CREDIT;
    armed->broken = NONE;
    armed->table_size = 16;
    while (armed->table_size < 4 * n)
        armed->table_size *= 2;
    /* The most that one instruction can emit: 5 records, 2 dicts, 1 type, 2 keys, 1 residual. */
    armed->words = PyMem_RawMalloc(5 * n * sizeof(Word));
    armed->key_of = PyMem_RawMalloc(registers * sizeof(uint32_t));
    armed->records = PyMem_RawMalloc(5 * n * sizeof(Record));
    armed->dicts = PyMem_RawMalloc(2 * n * sizeof(DictFact));
    armed->types = PyMem_RawMalloc(n * sizeof(TypeFact));
    armed->keys = PyMem_RawMalloc(2 * n * sizeof(Key));
    armed->residual = PyMem_RawMalloc(n * sizeof(Instr));
    armed->pins = PyMem_RawMalloc(2 * n * sizeof(PyObject *));
    armed->regs = PyMem_RawCalloc(registers, sizeof(PyObject *));
    armed->state = PyMem_RawCalloc(registers, 1);
    armed->seen = PyMem_RawCalloc(registers, 1);
    armed->wanted = PyMem_RawCalloc(registers, 1);
    armed->dict_table = PyMem_RawMalloc(armed->table_size * sizeof(uint32_t));
    program->armed = armed;
    if (!armed->words || !armed->key_of || !armed->records || !armed->dicts || !armed->types || !armed->keys || !armed->residual || !armed->pins ||
        !armed->regs || !armed->state || !armed->wanted || !armed->seen ||
        !armed->dict_table) {
        core_armed_free(program);
        return NULL;
    }
    return armed;
}

/* ---- learning ---- */

static void
record(Armed *a, const Instr *in, uint32_t kind, uint32_t index, const void *object, const void *expected)
{
    a->words[a->record_count] = (Word){NULL, (uint64_t)(uintptr_t)expected};
    a->records[a->record_count++] = (Record){kind, index, in->index, object};
}

static void
word(Armed *a, const Instr *in, const void *address)
{
    record(a, in, REC_WORD, 0, NULL, NULL);
    a->words[a->record_count - 1] = (Word){address, *(const uint64_t *)address};
}

/* `object` is what the instruction's source register holds. */
static void
type_word(Armed *a, const Instr *in, PyObject *object)
{
    if (!(a->seen[in->src] & TYPE_SEEN))
        word(a, in, &object->ob_type);
    a->seen[in->src] |= TYPE_SEEN;
}

/* Nothing changes the class of an instance of a static type (dict, OrderedDict), and a dict's own facts tell that it
 * still is that dict. */
static void
dict_type_word(Armed *a, const Instr *in, PyObject *dict)
{
    if (a->state[in->src] == FIXED || (Py_TYPE(dict)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        type_word(a, in, dict);
}

static DictFact *
dict_fact(Armed *a, const Instr *in, PyObject *dict)
{
    size_t i = (size_t)(((uintptr_t)dict >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (a->table_size - 1);
    for (; a->dict_table[i] != NONE; i = (i + 1) & (a->table_size - 1)) {
        if (a->dicts[a->dict_table[i]].dict == dict)
            return &a->dicts[a->dict_table[i]];
    }
    a->dict_table[i] = a->dict_count;
    DictFact *fact = &a->dicts[a->dict_count++];
    *fact = (DictFact){.dict = dict, .first_key = NONE};
    fact->mode = core_watch_can(dict) ? BY_WATCH : core_dict_is_window(dict) ? BY_LOOKUP : BY_TAG;
    /* A record also for a watched dict: registering may fail at the end, and the dict then goes by its tag. */
    record(a, in, REC_DICT, a->dict_count - 1, NULL, NULL);
    return fact;
}

static void
pin(Armed *a, PyObject *value)
{
    if (value != NULL && core_value_is_plain(value))
        a->pins[a->pin_count++] = Py_NewRef(value);
}

static void
dict_whole(Armed *a, const Instr *in, PyObject *dict)
{
    DictFact *fact = dict_fact(a, in, dict);
    fact->whole = 1;
    fact->whole_instr = in->index;
}

static void
dict_key(Armed *a, const Instr *in, PyObject *dict, PyObject *expected)
{
    DictFact *fact = dict_fact(a, in, dict);
    a->keys[a->key_count] = (Key){in->object, expected, in->hash, NULL, in->index, fact->first_key};
    fact->first_key = a->key_count++;
    pin(a, expected);
}

static void
type_key(Armed *a, const Instr *in, PyTypeObject *type, PyObject *expected)
{
    uint32_t i = 0;
    while (i < a->type_count && a->types[i].type != type)
        i++;
    if (i == a->type_count) {
        a->types[a->type_count++] = (TypeFact){type, type->tp_version_tag, NONE};
        record(a, in, REC_TYPE, i, NULL, NULL);
    }
    a->keys[a->key_count] = (Key){in->object, expected, in->hash, NULL, in->index, a->types[i].first_key};
    a->types[i].first_key = a->key_count++;
    pin(a, expected);
}

static int
learn_global(Armed *a, const Instr *in, const FrameView *view)
{
    PyObject *value = in->op == OP_missing_global ? NULL : a->regs[in->dst];
    if (in->op != OP_builtin) {
        PyObject *found = _PyDict_GetItem_KnownHash(view->globals, in->object, in->hash);
        if (!a->globals_seen)
            record(a, in, REC_GLOBALS, 0, NULL, view->globals);
        a->globals_seen = 1;
        dict_key(a, in, view->globals, found);
        if (found != NULL || in->op != OP_global)
            return found == value ? HELD : DYNAMIC;
    }
    if (!a->builtins_seen)
        record(a, in, REC_BUILTINS, 0, NULL, view->builtins);
    a->builtins_seen = 1;
    dict_key(a, in, view->builtins, value);
    return HELD;
}

/* An instance's dict by the address of its pointer: a new dict assigned to `__dict__` tells no watcher. */
static PyObject *
learn_instance_dict(Armed *a, const Instr *in, PyObject *object)
{
    int not_ready = 0;
    PyObject **slot = core_instance_dict_slot(object, 0, &not_ready);
    type_word(a, in, object); /* the slot's place depends on the type */
    if (slot == NULL)
        return NULL;
    if (!(a->seen[in->src] & SLOT_SEEN))
        word(a, in, slot);
    a->seen[in->src] |= SLOT_SEEN;
    return *slot;
}

static PyObject **
function_field(PyObject *value, int op)
{
    PyFunctionObject *function = (PyFunctionObject *)value;
    return op == OP_function_code       ? &function->func_code
           : op == OP_function_defaults ? &function->func_defaults
           : op == OP_function_closure  ? &function->func_closure
                                        : &function->func_kwdefaults;
}

/* Turns an access into records and returns the new state of its register; DYNAMIC: it has to be repeated. */
static int
learn_load(Armed *a, const Instr *in, const FrameView *view)
{
    PyObject *src = in->src != NO_REGISTER ? a->regs[in->src] : NULL, *value = a->regs[in->dst], *dict;
    Py_ssize_t offset;
    if (in->unstable >= UNSTABLE || (in->src != NO_REGISTER && a->state[in->src] == DYNAMIC))
        return DYNAMIC;
    switch (in->op) {
    case OP_local:
        if (!a->wanted[in->dst])
            return DYNAMIC;
        record(a, in, REC_LOCAL, (uint32_t)in->n, NULL, value);
        return FIXED;
    case OP_closure: record(a, in, REC_CELL, (uint32_t)in->n, NULL, value); return FIXED;
    case OP_global:
    case OP_global_only:
    case OP_builtin: return learn_global(a, in, view);
    case OP_module:
        dict = PyImport_GetModuleDict();
        if (!a->modules_seen)
            record(a, in, REC_MODULES, 0, NULL, dict);
        a->modules_seen = 1;
        dict_key(a, in, dict, value);
        return HELD;
    case OP_const:
        if (in->flags & FLAG_WEAK)
            word(a, in, &((PyWeakReference *)in->object)->wr_object);
        return HELD;
    case OP_instance_dict: return learn_instance_dict(a, in, src) == NULL ? DYNAMIC : FIXED;
    case OP_instance_attr:
        if ((dict = learn_instance_dict(a, in, src)) == NULL)
            return DYNAMIC;
        dict_key(a, in, dict, value);
        return HELD;
    case OP_dict_item:
        dict_type_word(a, in, src);
        dict_key(a, in, src, value);
        return HELD;
    case OP_type: type_word(a, in, src); return FIXED;
    case OP_type_attr:
        type_word(a, in, src);
        type_key(a, in, (PyTypeObject *)src, value);
        return ((PyTypeObject *)src)->tp_version_tag == 0 ? FIXED : HELD;
    case OP_slot_attr:
        type_word(a, in, src);
        type_key(a, in, Py_TYPE(src), _PyType_Lookup(Py_TYPE(src), in->object));
        core_slot_value(src, in->object, &offset);
        word(a, in, (char *)src + offset);
        return FIXED;
    case OP_list_item:
        type_word(a, in, src);
        record(a, in, REC_LIST, (uint32_t)in->n, src, value);
        return FIXED;
    case OP_tuple_item:
        type_word(a, in, src);
        word(a, in, &((PyVarObject *)src)->ob_size);
        word(a, in, &((PyTupleObject *)src)->ob_item[in->n]);
        return FIXED;
    case OP_cell: type_word(a, in, src); word(a, in, &((PyCellObject *)src)->ob_ref); return FIXED;
    case OP_function_code:
    case OP_function_defaults:
    case OP_function_kwdefaults:
    case OP_function_closure: type_word(a, in, src); word(a, in, function_field(src, in->op)); return FIXED;
    case OP_method_self:
    case OP_method_func:
        type_word(a, in, src);
        word(a, in, in->op == OP_method_self ? &((PyMethodObject *)src)->im_self : &((PyMethodObject *)src)->im_func);
        return FIXED;
    default: return DYNAMIC;
    }
}

static int
learn_length(Armed *a, const Instr *in, PyObject *src, int held)
{
    if (PyDict_Check(src)) {
        dict_type_word(a, in, src);
        dict_whole(a, in, src);
        return 1;
    }
    if (PyList_Check(src) || PyTuple_Check(src)) {
        type_word(a, in, src);
        word(a, in, &((PyVarObject *)src)->ob_size);
        return 1;
    }
    if (PyAnySet_Check(src)) {
        type_word(a, in, src);
        word(a, in, &((PySetObject *)src)->used);
        return 1;
    }
    return held && (PyUnicode_CheckExact(src) || PyBytes_CheckExact(src));
}

/* 1 when records (or nothing at all) stand for the check, 0 when it has to be repeated. */
static int
learn_check(Armed *a, const Instr *in, const FrameView *view)
{
    PyObject *src = in->src != NO_REGISTER ? a->regs[in->src] : NULL, *dict;
    int state = in->src != NO_REGISTER ? a->state[in->src] : HELD;
    if (in->unstable >= UNSTABLE || state == DYNAMIC || (in->src2 != NO_REGISTER && a->state[in->src2] == DYNAMIC))
        return 0;
    switch (in->op) {
    case OP_is:
        if (in->flags & FLAG_WEAK) {
            /* A value that its dict owns can't have died while the dict is as it was; a repair looks again. */
            if (a->key_of[in->src] != NONE && a->keys[a->key_of[in->src]].reference == NULL)
                a->keys[a->key_of[in->src]].reference = in->object;
            else
                word(a, in, &((PyWeakReference *)in->object)->wr_object);
        }
        return 1;
    case OP_is_not:
    case OP_same:
    case OP_not_same: return 1;
    case OP_type_is: type_word(a, in, src); return 1;
    case OP_equals: return (in->flags & FLAG_PLAIN) && (state == HELD || src == in->object);
    case OP_int_range: return state == HELD;
    case OP_len: return learn_length(a, in, src, state == HELD);
    case OP_dict_keys:
        if (PyODict_Check(src)) /* its order changes without a change of the dict */
            return 0;
        dict_type_word(a, in, src);
        dict_whole(a, in, src);
        return 1;
    case OP_missing_key:
        dict_type_word(a, in, src);
        dict_key(a, in, src, NULL);
        return 1;
    case OP_missing_instance_attr:
        if ((dict = learn_instance_dict(a, in, src)) != NULL)
            dict_key(a, in, dict, NULL);
        return 1;
    case OP_missing_global: learn_global(a, in, view); return 1;
    case OP_type_version:
        record(a, in, REC_U32, 0, &((PyTypeObject *)in->object)->tp_version_tag, (void *)(uintptr_t)in->n);
        return 1;
    default: return 0;
    }
}

/* Which registers lead to facts worth arming for: an argument that is only looked at as a tensor does not. */
static void
mark_wanted(Armed *a)
{
    const Instr *instrs = a->program->instrs;
    for (Py_ssize_t i = a->program->head - 1; i >= 0; i--) {
        const Instr *in = &instrs[i];
        int is_load = in->op < OP_is;
        if (in->src == NO_REGISTER)
            continue;
        switch (in->op) {
        case OP_instance_attr:
        case OP_instance_dict:
        case OP_dict_item:
        case OP_type_attr:
        case OP_slot_attr:
        case OP_dict_keys:
        case OP_missing_key:
        case OP_missing_instance_attr: a->wanted[in->src] = 1; break;
        default:
            if (is_load && a->wanted[in->dst])
                a->wanted[in->src] = 1;
        }
    }
}

/* Watched dicts need no record. */
static void
drop_watched_dicts(Armed *a)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->record_count; i++) {
        const Record *r = &a->records[i];
        if (r->kind == REC_DICT && a->dicts[r->index].mode == BY_WATCH)
            continue;
        a->records[kept] = *r;
        a->words[kept++] = a->words[i];
    }
    a->record_count = kept;
}

static void
word_again(Armed *a, uint32_t i, const uint64_t *address)
{
    a->words[i] = (Word){address, *address};
}

/* Registers the watches; what can't be watched goes by its version tag, a word like others. */
static void
start_watching(Armed *a)
{
    for (uint32_t i = 0; i < a->dict_count; i++) {
        DictFact *fact = &a->dicts[i];
        fact->watch.changed = dict_changed;
        fact->watch.owner = a;
        if (fact->mode == BY_WATCH && core_watch_add(&fact->watch, fact->dict) < 0)
            fact->mode = core_dict_is_window(fact->dict) ? BY_LOOKUP : BY_TAG;
    }
    for (uint32_t i = 0; i < a->record_count; i++) {
        const Record *r = &a->records[i];
        if (r->kind == REC_DICT && a->dicts[r->index].mode == BY_TAG)
            word_again(a, i, core_dict_version_at(a->dicts[r->index].dict));
    }
}

void
core_armed_learn(GuardProgram *program, const FrameView *view)
{
    Armed *a = program->armed;
    if (a == NULL) {
        if ((a = new_armed(program)) == NULL)
            return;
        mark_wanted(a);
    }
    if (a->broken != NONE && program->instrs[a->broken].unstable < UNSTABLE)
        program->instrs[a->broken].unstable++;
    a->broken = NONE;
    a->credit -= CREDIT_A_LEARNING;
    forget(a);
    if (a->credit < 0) {
        program->learning_off = 1; /* something changes with almost every call: learning costs more than it saves */
        return;
    }
    if (program->registers)
        memcpy(a->regs, program->scratch, program->registers * sizeof(PyObject *));
    memset(a->state, DYNAMIC, program->registers);
    memset(a->seen, 0, program->registers);
    memset(a->dict_table, 0xff, a->table_size * sizeof(uint32_t));
    for (Py_ssize_t i = 0; i < program->head; i++) {
        Instr *in = &program->instrs[i];
        int done;
        if (in->op < OP_is) {
            uint32_t keys = a->key_count;
            a->state[in->dst] = (uint8_t)learn_load(a, in, view);
            done = a->state[in->dst] != DYNAMIC;
            /* slot_attr's key is the descriptor, not the value */
            a->key_of[in->dst] = done && a->key_count > keys && in->op != OP_slot_attr ? a->key_count - 1 : NONE;
        }
        else
            done = learn_check(a, in, view);
        if (!done)
            a->residual[a->residual_count++] = *in;
    }
    program->learning_off = a->record_count == 0; /* nothing but tensors and values in argument slots */
    start_watching(a);
    drop_watched_dicts(a);
    program->armed_ready = !program->learning_off;
}

/* ---- checking ---- */

/* 0 when another object took the address of the one that an `is` guard means. */
static int
still_alive(const Key *key)
{
    return key->reference == NULL || ((PyWeakReference *)key->reference)->wr_object == key->expected;
}

/* The guarded keys of a changed dict are looked up again: 1 all as before. */
static int
repair_dict(Armed *a, DictFact *fact)
{
    if (fact->whole) {
        a->broken = fact->whole_instr;
        return 0;
    }
    if (!core_dict_has_str_keys_only(fact->dict))
        return 0;
    for (uint32_t i = fact->first_key; i != NONE; i = a->keys[i].next) {
        const Key *key = &a->keys[i];
        if (_PyDict_GetItem_KnownHash(fact->dict, key->name, key->hash) != key->expected || !still_alive(key)) {
            a->broken = key->instr;
            return 0;
        }
    }
    fact->dirty = 0;
    return 1;
}

static int
repair_type(Armed *a, TypeFact *fact)
{
    for (uint32_t i = fact->first_key; i != NONE; i = a->keys[i].next) {
        if (_PyType_Lookup(fact->type, a->keys[i].name) != a->keys[i].expected || !still_alive(&a->keys[i])) {
            a->broken = a->keys[i].instr;
            return 0;
        }
    }
    fact->version = fact->type->tp_version_tag; /* the lookups have given it a version again */
    return 1;
}

/* Watched dicts that told of a change. A dead one can't be looked at. */
static int
repair_watched(Armed *a)
{
    for (uint32_t i = 0; i < a->dict_count; i++) {
        DictFact *fact = &a->dicts[i];
        if (fact->dead) {
            a->broken = NONE;
            return 0;
        }
    }
    for (uint32_t i = 0; i < a->dict_count; i++) {
        if (a->dicts[i].dirty && !repair_dict(a, &a->dicts[i]))
            return 0;
    }
    a->dirty = 0;
    return 1;
}

/* A record whose word differs, or that has none. */
static int
record_holds(Armed *a, uint32_t i, const FrameView *view)
{
    const Record *r = &a->records[i];
    const void *expected = (const void *)(uintptr_t)a->words[i].expected;
    switch (r->kind) {
    case REC_DICT: {
        DictFact *fact = &a->dicts[r->index];
        if (!repair_dict(a, fact))
            return 0;
        if (fact->mode == BY_TAG)
            word_again(a, i, core_dict_version_at(fact->dict));
        return 1;
    }
    case REC_TYPE: {
        TypeFact *fact = &a->types[r->index];
        return (fact->version != 0 && fact->type->tp_version_tag == fact->version) || repair_type(a, fact);
    }
    case REC_U32: return *(const unsigned int *)r->object == a->words[i].expected;
    case REC_LOCAL: return view->locals[r->index] == expected;
    case REC_GLOBALS: return view->globals == expected;
    case REC_BUILTINS: return view->builtins == expected;
    case REC_MODULES: return PyImport_GetModuleDict() == expected;
    case REC_CELL: {
        if (view->closure == NULL || !PyTuple_Check(view->closure) || r->index >= (size_t)PyTuple_GET_SIZE(view->closure))
            return 0;
        PyObject *cell = PyTuple_GET_ITEM(view->closure, r->index);
        return PyCell_Check(cell) && PyCell_GET(cell) == expected;
    }
    case REC_LIST: {
        const PyListObject *list = r->object;
        return (Py_ssize_t)r->index < Py_SIZE(list) && list->ob_item[r->index] == expected;
    }
    default: return 0;
    }
}

static int
records_hold(Armed *a, const FrameView *view)
{
    const Word *words = a->words;
    for (uint32_t i = 0, n = a->record_count; i < n; i++) {
        if (words[i].address != NULL && *words[i].address == words[i].expected)
            continue;
        a->broken = NONE;
        if (!record_holds(a, i, view)) {
            if (a->broken == NONE)
                a->broken = a->records[i].instr;
            return 0;
        }
    }
    return 1;
}

int
core_armed_check(GuardProgram *program, const FrameView *view, Py_ssize_t *failed)
{
    Armed *a = program->armed;
    if ((a->dirty && !repair_watched(a)) || !records_hold(a, view))
        return -1;
    a->broken = NONE;
    int status = core_guard_run(a->residual, a->residual_count, view, a->regs, 0, failed);
    if (status == GUARD_NEEDS_OWNED)
        return -1;
    if (status == GUARD_HIT && a->credit < CREDIT)
        a->credit++;
    return status;
}

PyObject *const *
core_armed_registers(const GuardProgram *program)
{
    return program->armed->regs;
}

PyObject *
core_armed_describe(GuardProgram *program)
{
    Armed *a = program->armed;
    if (a == NULL)
        Py_RETURN_NONE;
    unsigned int watched = 0;
    for (uint32_t i = 0; i < a->dict_count; i++)
        watched += a->dicts[i].watch.dict != NULL;
    return Py_BuildValue("{s:I,s:I,s:I,s:I,s:I,s:I,s:O,s:i}", "records", a->record_count, "dicts", a->dict_count,
                         "watched", watched, "types", a->type_count, "keys", a->key_count, "residual",
                         a->residual_count, "ready", program->armed_ready ? Py_True : Py_False, "credit", a->credit);
}
