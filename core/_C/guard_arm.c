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
#include "guard_armed.h"

void
core_armed_forget(Armed *armed)
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
    core_armed_forget(armed);
    void *parts[] = {armed->words, armed->records, armed->dicts,  armed->types,  armed->keys,       armed->residual,
                     armed->pins,  armed->regs,    armed->key_of, armed->state, armed->seen, armed->wanted, armed->dict_table,
                     armed};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        PyMem_RawFree(parts[i]);
}

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
            core_armed_word(a, i, core_dict_version_at(fact->dict));
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
