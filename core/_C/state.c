/* What the hook knows of a code object, kept in the code's extra slot: skip marks, and entries grouped by the callback
 * that made them. An entry of one callback never serves another.
 *
 * The slot is invisible to the garbage collector: a cycle from here back to the code lives until reset_code() or until
 * the callback dies. That is why callbacks are held weakly, and why root entries live in CompiledCallable instead.
 */
#include "core.h"

static Py_ssize_t extra_index = -1;

CodeState *
core_state_of(PyCodeObject *code)
{
    void *extra = NULL;
    if (core_get_code_extra((PyObject *)code, extra_index, &extra) < 0) {
        PyErr_Clear(); /* not a code object: nothing is known of it */
        return NULL;
    }
    return extra;
}

CodeState *
core_state_make(PyCodeObject *code)
{
    CodeState *state = core_state_of(code);
    if (state != NULL)
        return state;
    state = PyMem_Calloc(1, sizeof(CodeState));
    if (state == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (core_set_code_extra((PyObject *)code, extra_index, state) < 0) {
        PyMem_Free(state);
        return NULL;
    }
    return state;
}

/* ---- groups ---- */

static void
group_free(Group *group)
{
    if (group->link != NULL)
        group->link->target = NULL;
    Py_XDECREF(group->hold);
    Py_XDECREF(group->link);
    Py_XDECREF(group->entries);
    PyMem_Free(group);
}

/* Unlinks before freeing, because freeing entries may run user code that looks at the state. */
static void
free_groups(CodeState *state)
{
    while (state->groups != NULL) {
        Group *group = state->groups;
        state->groups = group->next;
        group_free(group);
    }
}

static void
free_state(void *extra)
{
    if (extra == NULL)
        return;
    free_groups(extra);
    PyMem_Free(extra);
}

int
core_state_init(void)
{
    if (extra_index < 0)
        extra_index = core_request_code_extra(free_state);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "core can't get a code extra slot: other extensions hold all of them");
        return -1;
    }
    return 0;
}

/* The weakref callback of a group: its callback is about to go, and another object may take the address. */
static void
callback_died(void *target)
{
    Group *group = target;
    PyObject *entries = PyTuple_New(0);
    group->identity = NULL;
    if (entries == NULL)
        PyErr_Clear(); /* the entries stay until the group goes; identity already keeps them from serving */
    else
        Py_XSETREF(group->entries, entries);
}

static void
drop_dead_groups(CodeState *state)
{
    for (Group **at = &state->groups; *at != NULL;) {
        Group *group = *at;
        if (group->identity != NULL) {
            at = &group->next;
            continue;
        }
        *at = group->next;
        group_free(group); /* no entries left, so no user code */
    }
}

Group *
core_group_find(CodeState *state, PyObject *callback)
{
    for (Group **at = &state->groups; *at != NULL; at = &(*at)->next) {
        Group *group = *at;
        if (group->identity != callback)
            continue;
        /* To the front: a function shared by many compiled callables is looked up for the same one again and again. */
        *at = group->next;
        group->next = state->groups;
        state->groups = group;
        return group;
    }
    return NULL;
}

Group *
core_group_make(CodeState *state, PyObject *callback)
{
    Group *group = core_group_find(state, callback);
    if (group != NULL)
        return group;
    drop_dead_groups(state);
    group = PyMem_Calloc(1, sizeof(Group));
    if (group == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    group->identity = callback;
    group->entries = PyTuple_New(0);
    group->link = core_weak_link_new(group, callback_died);
    if (group->entries == NULL || group->link == NULL)
        goto fail;
    group->hold = PyWeakref_NewRef(callback, (PyObject *)group->link);
    if (group->hold == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError))
            goto fail;
        PyErr_Clear();
        group->hold = Py_NewRef(callback);
    }
    group->next = state->groups;
    state->groups = group;
    return group;
fail:
    group_free(group);
    return NULL;
}

int
core_state_mark_replacement(PyObject *code)
{
    CodeState *state = core_state_make((PyCodeObject *)code);
    if (state == NULL)
        return -1;
    state->skipped = state->replacement = 1;
    return 0;
}

/* ---- what Python sees ---- */

static int
check_code(PyObject *op)
{
    if (PyCode_Check(op))
        return 1;
    PyErr_Format(PyExc_TypeError, "expected a code object, not %.100s", Py_TYPE(op)->tp_name);
    return 0;
}

static PyObject *
skip_code(PyObject *Py_UNUSED(module), PyObject *code)
{
    if (!check_code(code))
        return NULL;
    CodeState *state = core_state_make((PyCodeObject *)code);
    if (state == NULL)
        return NULL;
    state->skipped = 1;
    Py_RETURN_NONE;
}

static PyObject *
quiet_code(PyObject *module, PyObject *code)
{
    PyObject *result = skip_code(module, code);
    if (result != NULL)
        core_state_of((PyCodeObject *)code)->quiet = 1;
    return result;
}

static PyObject *
is_skipped(PyObject *Py_UNUSED(module), PyObject *code)
{
    if (!check_code(code))
        return NULL;
    CodeState *state = core_state_of((PyCodeObject *)code);
    return PyBool_FromLong(state != NULL && state->skipped);
}

static PyObject *
frame_entries(PyObject *Py_UNUSED(module), PyObject *code)
{
    if (!check_code(code))
        return NULL;
    PyObject *result = PyList_New(0);
    CodeState *state = core_state_of((PyCodeObject *)code);
    for (Group *group = state == NULL ? NULL : state->groups; result != NULL && group != NULL; group = group->next) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(group->entries); i++) {
            PyObject *entry = PyTuple_GET_ITEM(group->entries, i);
            if (((Entry *)entry)->valid && PyList_Append(result, entry) < 0) {
                Py_CLEAR(result);
                break;
            }
        }
    }
    return result;
}

static PyObject *
reset_code(PyObject *Py_UNUSED(module), PyObject *code)
{
    if (!check_code(code))
        return NULL;
    CodeState *state = core_state_of((PyCodeObject *)code);
    if (state != NULL) {
        state->skipped = state->replacement;
        state->quiet = 0;
        free_groups(state);
    }
    Py_RETURN_NONE;
}

PyMethodDef core_state_methods[] = {
    {"skip_code", skip_code, METH_O,
     PyDoc_STR("skip_code(code)\n--\n\nNever capture frames of this code; its callees still are.")},
    {"quiet_code", quiet_code, METH_O,
     PyDoc_STR("quiet_code(code)\n--\n\nNever capture frames of this code, nor any that they call.")},
    {"is_skipped", is_skipped, METH_O,
     PyDoc_STR("is_skipped(code)\n--\n\nTrue when frames of this code are never captured.")},
    {"frame_entries", frame_entries, METH_O,
     PyDoc_STR("frame_entries(code)\n--\n\nThe valid entries that the hook keeps for this code.")},
    {"reset_code", reset_code, METH_O,
     PyDoc_STR("reset_code(code)\n--\n\nDrop the hook's entries and skip marks of this code.")},
    {NULL},
};
