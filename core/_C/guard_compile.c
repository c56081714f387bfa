/* From instruction tuples to fixed-size records.
 *
 * Every register must be loaded before it is read, so that evaluation needs no check for that. Objects that an
 * instruction names weakly are held through one weak reference an object; its callback tells the program of the death.
 */
#include "guard_program.h"
#include "global_state.h"
#include "tensor_abi.h"

#include <string.h>

/* Operand kinds: d destination register, s source register, n non-negative integer, k name (exact str), K key,
 * o object and w whether it is held weakly, t class, c constant, T tuple, S tensor spec, R registers, g snapshot,
 * I lower and upper bound, H shape code, f callable. */
static const struct { const char *name, *kinds; } op_table[OP_COUNT] = {
#define X(name, kinds) {#name, kinds},
    CORE_GUARD_OPS(X)
#undef X
};

typedef struct Compiler {
    GuardProgram *program;
    PyObject *references; /* dict: id -> weak reference */
    PyObject *on_death;   /* callable */
    uint8_t *loaded;      /* [registers] */
} Compiler;

static int
keep(Compiler *c, Instr *in, PyObject *object)
{
    in->object = object;
    return PyList_Append(c->program->keep, object);
}

static int
register_number(Compiler *c, PyObject *value, int must_be_loaded, uint32_t *out)
{
    long number = PyLong_AsLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < 0 || (unsigned long)number >= c->program->registers)
        return PyErr_Format(PyExc_ValueError, "register %ld is out of range", number), -1;
    if (must_be_loaded && !c->loaded[number])
        return PyErr_Format(PyExc_ValueError, "register %ld is read before it is loaded", number), -1;
    *out = (uint32_t)number;
    return 0;
}

static int
hold_weakly(Compiler *c, Instr *in)
{
    PyObject *object = in->object, *identity = PyLong_FromVoidPtr(object), *reference;
    int result = -1;
    if (identity == NULL)
        return -1;
    reference = PyDict_GetItemWithError(c->references, identity);
    if (reference != NULL)
        Py_INCREF(reference);
    else if (!PyErr_Occurred()) {
        reference = PyWeakref_NewRef(object, c->on_death);
        if (reference == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear(); /* not weakly referencable: held strongly */
            result = PyList_Append(c->program->keep, object);
            goto done;
        }
        if (reference != NULL && PyDict_SetItem(c->references, identity, reference) < 0)
            Py_CLEAR(reference);
    }
    if (reference != NULL) {
        in->flags |= FLAG_WEAK;
        result = keep(c, in, reference);
    }
done:
    Py_XDECREF(reference);
    Py_DECREF(identity);
    return result;
}

static int
register_list(Compiler *c, Instr *in, PyObject *value)
{
    if (!PyTuple_Check(value))
        return PyErr_Format(PyExc_TypeError, "registers come as a tuple, not %R", value), -1;
    Py_ssize_t length = PyTuple_GET_SIZE(value);
    RegisterList *list = PyMem_Calloc(1, sizeof(RegisterList) + (size_t)length * sizeof(uint32_t));
    if (list == NULL)
        return PyErr_NoMemory(), -1;
    in->extra = list;
    list->length = (uint32_t)length;
    for (Py_ssize_t i = 0; i < length; i++) {
        if (register_number(c, PyTuple_GET_ITEM(value, i), 1, &list->regs[i]) < 0)
            return -1;
    }
    return 0;
}

static int
set_key(Compiler *c, Instr *in, PyObject *key)
{
    in->hash = PyObject_Hash(key);
    return in->hash == -1 && PyErr_Occurred() ? -1 : keep(c, in, key);
}

static int
set_type(Compiler *c, Instr *in, PyObject *type)
{
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "%R is not a class", type), -1;
    if (in->op == OP_type_version) {
        /* A lookup gives the type a version where it has none. */
        PyObject *name = PyUnicode_InternFromString("__class__");
        if (name == NULL)
            return -1;
        (void)_PyType_Lookup((PyTypeObject *)type, name);
        Py_DECREF(name);
        in->n = (Py_ssize_t)((PyTypeObject *)type)->tp_version_tag;
    }
    return keep(c, in, type);
}

static int
set_bounds(Compiler *c, Instr *in, PyObject *lo, PyObject *hi)
{
    if ((lo != Py_None && !PyLong_CheckExact(lo)) || (hi != Py_None && !PyLong_CheckExact(hi)))
        return PyErr_Format(PyExc_TypeError, "bounds are ints or None, not %R and %R", lo, hi), -1;
    PyObject *bounds = PyTuple_Pack(2, lo, hi);
    int result = bounds == NULL ? -1 : keep(c, in, bounds);
    Py_XDECREF(bounds);
    return result;
}

static int
set_shape(Compiler *c, Instr *in, PyObject *tokens)
{
    ShapeCode *code = core_shape_compile(tokens, c->program->registers);
    in->extra = code;
    if (code == NULL)
        return -1;
    for (uint32_t i = 0; i < code->length; i++) {
        PyObject *token = PyTuple_GET_ITEM(tokens, (Py_ssize_t)i);
        if (PyTuple_Check(token) && PyTuple_GET_SIZE(token) > 1 && !c->loaded[code->tokens[i].reg] &&
            PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(token, 0), "const") != 0)
            return PyErr_Format(PyExc_ValueError, "register %u is read before it is loaded", code->tokens[i].reg), -1;
    }
    return 0;
}

static int
set_number(Instr *in, PyObject *value)
{
    in->n = PyLong_AsSsize_t(value);
    if (in->n == -1 && PyErr_Occurred())
        return -1;
    if (in->n < 0)
        return PyErr_Format(PyExc_ValueError, "%zd is negative", in->n), -1;
    return 0;
}

static int
set_dict_keys(Compiler *c, Instr *in, PyObject *keys)
{
    if (!PyTuple_Check(keys))
        return PyErr_Format(PyExc_TypeError, "keys come as a tuple, not %R", keys), -1;
    in->flags |= FLAG_PLAIN;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(keys, i)))
            in->flags &= (uint8_t)~FLAG_PLAIN;
    }
    return keep(c, in, keys);
}

static int
compile_operand(Compiler *c, Instr *in, char kind, PyObject *tuple, Py_ssize_t *at)
{
    PyObject *value = PyTuple_GET_ITEM(tuple, *at);
    (*at)++;
    switch (kind) {
    case 'd': return register_number(c, value, 0, &in->dst);
    case 's': return register_number(c, value, 1, in->src == NO_REGISTER ? &in->src : &in->src2);
    case 'n': return set_number(in, value);
    case 'k':
        if (!PyUnicode_CheckExact(value))
            return PyErr_Format(PyExc_TypeError, "%R is not a name", value), -1;
        return set_key(c, in, value);
    case 'K': return set_key(c, in, value);
    case 'o': in->object = value; return 0;
    case 'w': {
        int weak = PyObject_IsTrue(value);
        return weak < 0 ? -1 : weak ? hold_weakly(c, in) : keep(c, in, in->object);
    }
    case 't': return set_type(c, in, value);
    case 'c':
        if (core_value_is_plain(value))
            in->flags |= FLAG_PLAIN;
        return keep(c, in, value);
    case 'T': return set_dict_keys(c, in, value);
    case 'S': return (in->extra = core_tensor_spec_new(value)) == NULL ? -1 : 0;
    case 'R': return register_list(c, in, value);
    case 'g':
        if (!core_global_state_check(value))
            return PyErr_Format(PyExc_TypeError, "%R is not a snapshot", value), -1;
        return keep(c, in, value);
    case 'I': {
        PyObject *hi = PyTuple_GET_ITEM(tuple, *at);
        (*at)++;
        return set_bounds(c, in, value, hi);
    }
    case 'H': return set_shape(c, in, value);
    case 'f':
        if (!PyCallable_Check(value))
            return PyErr_Format(PyExc_TypeError, "%R is not callable", value), -1;
        return keep(c, in, value);
    default: return PyErr_Format(PyExc_SystemError, "unknown operand kind"), -1;
    }
}

static int
op_number(PyObject *name)
{
    for (int op = 0; op < OP_COUNT; op++) {
        if (PyUnicode_CompareWithASCIIString(name, op_table[op].name) == 0)
            return op;
    }
    return -1;
}

static int
compile_instruction(Compiler *c, Instr *in, PyObject *tuple)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) < 1 || !PyUnicode_Check(PyTuple_GET_ITEM(tuple, 0)))
        return PyErr_Format(PyExc_TypeError, "an instruction is a tuple (name, ...), not %R", tuple), -1;
    int op = op_number(PyTuple_GET_ITEM(tuple, 0));
    if (op < 0)
        return PyErr_Format(PyExc_ValueError, "unknown guard instruction %R", PyTuple_GET_ITEM(tuple, 0)), -1;
    const char *kinds = op_table[op].kinds;
    Py_ssize_t wanted = (Py_ssize_t)strlen(kinds) + (strchr(kinds, 'I') != NULL), at = 1;
    if (PyTuple_GET_SIZE(tuple) - 1 != wanted)
        return PyErr_Format(PyExc_ValueError, "%s takes %zd operands, not %zd", op_table[op].name, wanted,
                            PyTuple_GET_SIZE(tuple) - 1), -1;
    in->op = (uint8_t)op;
    in->dst = in->src = in->src2 = NO_REGISTER;
    for (const char *kind = kinds; *kind; kind++) {
        if (compile_operand(c, in, *kind, tuple, &at) < 0)
            return -1;
    }
    if (in->dst != NO_REGISTER)
        c->loaded[in->dst] = 1;
    return 0;
}

static int
may_run_user_code(const Instr *in)
{
    switch (in->op) {
    case OP_attr:
    case OP_called:
    case OP_iterator_ahead: /* these make objects, and a collection may run finalisers */
    case OP_iterator_part:
    case OP_items_left:
    case OP_no_items_left:
    case OP_python: return 1;
    case OP_tensor: return core_tensor_checks_run_python();
    case OP_equals:
    case OP_dict_keys: return !(in->flags & FLAG_PLAIN);
    case OP_dict_item:
    case OP_missing_key: return !PyUnicode_CheckExact(in->object);
    default: return 0;
    }
}

/* Called by the weak references of a program; `note` is a capsule around a pointer to the program, NULL once freed. */
static PyObject *
object_died(PyObject *note, PyObject *reference)
{
    (void)reference;
    GuardProgram **program = PyCapsule_GetPointer(note, NULL);
    if (program == NULL)
        return NULL;
    if (*program == NULL || (*program)->invalid)
        Py_RETURN_NONE;
    (*program)->invalid = 1;
    PyObject *callback = (*program)->on_invalid;
    (*program)->on_invalid = NULL;
    if (callback == NULL)
        Py_RETURN_NONE;
    PyObject *result = PyObject_CallNoArgs(callback);
    Py_DECREF(callback);
    return result;
}

static PyMethodDef object_died_def = {"object_died", object_died, METH_O, NULL};

static void
free_note(PyObject *note)
{
    PyMem_Free(PyCapsule_GetPointer(note, NULL));
}

static PyObject *
new_note(GuardProgram *program)
{
    GuardProgram **cell = PyMem_Malloc(sizeof(GuardProgram *));
    if (cell == NULL)
        return PyErr_NoMemory();
    *cell = program;
    PyObject *note = PyCapsule_New(cell, NULL, free_note);
    if (note == NULL)
        PyMem_Free(cell);
    return note;
}

int
core_guard_compile(GuardProgram *program, PyObject *instructions)
{
    int result = -1;
    Compiler c = {.program = program};
    PyObject *list = PySequence_List(instructions);
    Py_ssize_t length = list == NULL ? 0 : PyList_GET_SIZE(list);
    program->keep = PyList_New(0);
    program->note = new_note(program);
    c.references = PyDict_New();
    c.loaded = PyMem_Calloc(program->registers + 1, 1);
    program->instrs = PyMem_Calloc((size_t)length + 1, sizeof(Instr));
    program->scratch = PyMem_Calloc(program->registers + 1, sizeof(PyObject *));
    if (list == NULL || program->keep == NULL || program->note == NULL || c.references == NULL)
        goto done;
    if (c.loaded == NULL || program->instrs == NULL || program->scratch == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if ((c.on_death = PyCFunction_New(&object_died_def, program->note)) == NULL)
        goto done;
    program->head = length;
    for (Py_ssize_t i = 0; i < length; i++) {
        Instr *in = &program->instrs[i];
        in->index = (uint32_t)i;
        program->length = i + 1;
        if (compile_instruction(&c, in, PyList_GET_ITEM(list, i)) < 0)
            goto done;
        if (program->head == length && may_run_user_code(in))
            program->head = i;
    }
    result = 0;
done:
    Py_XDECREF(list);
    Py_XDECREF(c.references);
    Py_XDECREF(c.on_death);
    PyMem_Free(c.loaded);
    return result;
}

void
core_guard_free_instructions(GuardProgram *program)
{
    for (Py_ssize_t i = 0; i < program->length; i++) {
        Instr *in = &program->instrs[i];
        if (in->op == OP_tensor)
            core_tensor_spec_free(in->extra);
        else
            PyMem_Free(in->extra);
        in->extra = NULL;
    }
    program->length = program->head = 0;
    PyMem_Free(program->instrs);
    PyMem_Free(program->scratch);
    program->instrs = NULL;
    program->scratch = NULL;
}
