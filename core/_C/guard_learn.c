/* From a hit to an armed program: which facts stand for which instructions. guard_arm.c says why that is sound. */
#define CORE_DICT_INTERNALS
#include "guard_armed.h"

#include <string.h>

enum { DYNAMIC, FIXED, HELD };
enum { TYPE_SEEN = 1, SLOT_SEEN = 2 };

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
    core_armed_word(a, a->record_count - 1, address);
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

/* Called before a watched dict changes or dies: only flags are set. */
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
            core_armed_word(a, i, core_dict_version_at(a->dicts[r->index].dict));
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
    core_armed_forget(a);
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
