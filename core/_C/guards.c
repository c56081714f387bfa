/* GuardProgram: the Python type, and the order in which a program is evaluated.
 *
 * First the armed part (guard_arm.c), when there is one: it proves from a few memory words that what the last full
 * evaluation found is still so. Otherwise the head with borrowed registers, then the tail with owned ones.
 */
#include "guard_program.h"
#include "global_state.h"
#include "tensor_abi.h"
#include "watch.h"

#define SMALL_REGISTERS 32
#define MAX_NESTED 100

/* Registers that own what they hold. On entry `regs` has borrowed references from the head, or NULLs. */
static int
run_owned(GuardProgram *program, Py_ssize_t first, const FrameView *view, PyObject *const *start, Py_ssize_t *failed)
{
    PyObject *small[SMALL_REGISTERS], **regs = small;
    uint32_t count = program->registers;
    if (count > SMALL_REGISTERS && (regs = PyMem_Malloc(count * sizeof(PyObject *))) == NULL) {
        *failed = first;
        return GUARD_MISS;
    }
    for (uint32_t i = 0; i < count; i++)
        regs[i] = Py_XNewRef(start == NULL ? NULL : start[i]);
    /* User code may clear the program: its instructions stay until `busy` is 0 again. */
    int status = core_guard_run(program->instrs + first, program->length - first, view, regs, 1, failed);
    for (uint32_t i = 0; i < count; i++)
        Py_XDECREF(regs[i]);
    if (regs != small)
        PyMem_Free(regs);
    return status;
}

static int
run_full(GuardProgram *program, const FrameView *view, Py_ssize_t *failed)
{
    int status = core_guard_run(program->instrs, program->head, view, program->scratch, 0, failed);
    if (status == GUARD_NEEDS_OWNED)
        return run_owned(program, 0, view, NULL, failed);
    if (status == GUARD_MISS)
        return status;
    if (!program->learning_off)
        core_armed_learn(program, view);
    return program->head == program->length ? status
                                            : run_owned(program, program->head, view, program->scratch, failed);
}

static void
drop(GuardProgram *program)
{
    core_armed_free(program);
    core_guard_free_instructions(program);
    Py_CLEAR(program->keep);
}

/* The evaluation that may use the program's own registers. */
static int
run_first(GuardProgram *program, const FrameView *view, Py_ssize_t *failed)
{
    int status = !program->armed_ready ? -1 : core_armed_check(program, view, failed);
    if (status < 0)
        return run_full(program, view, failed);
    if (status == GUARD_HIT && program->head != program->length)
        return run_owned(program, program->head, view, core_armed_registers(program), failed);
    return status;
}

int
core_guards_eval(PyObject *object, const FrameView *view, Py_ssize_t *failed_index)
{
    GuardProgram *program = (GuardProgram *)object;
    Py_ssize_t failed = 0;
    int status = GUARD_MISS;
    if (!program->invalid && !program->cleared && program->busy < MAX_NESTED) {
        /* User code of a guard, or another thread meanwhile, may evaluate the same program. */
        program->busy++;
        status = program->busy == 1 ? run_first(program, view, &failed)
                                    : run_owned(program, 0, view, NULL, &failed);
        program->busy--;
        if (program->cleared && program->busy == 0)
            drop(program);
    }
    if (status == GUARD_HIT)
        return 1;
    if (failed_index != NULL)
        *failed_index = failed;
    return 0;
}

static int
program_init(GuardProgram *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"instructions", "registers", NULL};
    PyObject *instructions;
    int registers;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oi:GuardProgram", names, &instructions, &registers))
        return -1;
    if (self->instrs != NULL || self->keep != NULL)
        return PyErr_Format(PyExc_TypeError, "a guard program is made once"), -1;
    if (registers < 0 || registers > 1 << 24)
        return PyErr_Format(PyExc_ValueError, "%d registers", registers), -1;
    self->registers = (uint32_t)registers;
    return core_guard_compile(self, instructions);
}

static int
program_traverse(GuardProgram *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->keep);
    Py_VISIT(self->on_invalid);
    for (Py_ssize_t i = 0; i < self->length; i++) {
        if (self->instrs[i].op == OP_tensor && self->instrs[i].extra != NULL) {
            int result = core_tensor_spec_visit(self->instrs[i].extra, visit, arg);
            if (result)
                return result;
        }
    }
    return 0;
}

static int
program_clear(GuardProgram *self)
{
    Py_CLEAR(self->on_invalid);
    self->cleared = 1;
    if (!self->busy)
        drop(self);
    return 0;
}

static void
program_dealloc(GuardProgram *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weaklist != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    if (self->note != NULL) {
        GuardProgram **cell = PyCapsule_GetPointer(self->note, NULL);
        if (cell != NULL)
            *cell = NULL; /* a weak reference that someone else holds may still call */
    }
    program_clear(self);
    drop(self);
    Py_CLEAR(self->note);
    type->tp_free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(check_doc,
"check(args, globals, builtins, closure)\n--\n\n"
"Index of the instruction that fails for a frame with these argument slots, or -1 when all hold.\n"
"args: a tuple with one value a slot; closure: a tuple of cells or None.");

static PyObject *
program_check(GuardProgram *self, PyObject *args)
{
    PyObject *slots, *globals, *builtins, *closure = Py_None;
    Py_ssize_t failed = 0;
    if (!PyArg_ParseTuple(args, "O!O!O|O:check", &PyTuple_Type, &slots, &PyDict_Type, &globals, &builtins, &closure))
        return NULL;
    for (Py_ssize_t i = 0; i < self->length; i++) {
        if (self->instrs[i].op == OP_local && self->instrs[i].n >= PyTuple_GET_SIZE(slots))
            return PyErr_Format(PyExc_ValueError, "the program reads slot %zd of %zd", self->instrs[i].n,
                                PyTuple_GET_SIZE(slots));
    }
    FrameView view = {((PyTupleObject *)slots)->ob_item, globals, builtins, closure == Py_None ? NULL : closure};
    Py_INCREF(self);
    int hit = core_guards_eval((PyObject *)self, &view, &failed);
    Py_DECREF(self);
    return PyLong_FromSsize_t(hit ? -1 : failed);
}

static PyObject *
program_run(GuardProgram *self, PyObject *args)
{
    PyObject *slots, *globals, *builtins, *closure = Py_None;
    Py_ssize_t failed = 0, hits = 0, times;
    if (!PyArg_ParseTuple(args, "nO!O!O|O:_repeat", &times, &PyTuple_Type, &slots, &PyDict_Type, &globals, &builtins,
                          &closure))
        return NULL;
    FrameView view = {((PyTupleObject *)slots)->ob_item, globals, builtins, closure == Py_None ? NULL : closure};
    Py_INCREF(self);
    for (Py_ssize_t i = 0; i < times; i++)
        hits += core_guards_eval((PyObject *)self, &view, &failed);
    Py_DECREF(self);
    return PyLong_FromSsize_t(hits);
}

static PyObject *
program_describe(GuardProgram *self, PyObject *unused)
{
    (void)unused;
    return core_armed_describe(self);
}

static PyMethodDef program_methods[] = {
    {"check", (PyCFunction)program_check, METH_VARARGS, check_doc},
    {"_repeat", (PyCFunction)program_run, METH_VARARGS,
     "_repeat(times, args, globals, builtins, closure)\n--\n\nEvaluate many times and count the hits: for measuring."},
    {"_armed", (PyCFunction)program_describe, METH_NOARGS,
     "_armed()\n--\n\nWhat the accelerated part covers, as a dict of counts; None before the first hit."},
    {NULL, NULL, 0, NULL},
};

static PyObject *
get_length(GuardProgram *self, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(self->length);
}

static PyObject *
get_invalid(GuardProgram *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self->invalid || self->cleared);
}

static PyObject *
get_on_invalid(GuardProgram *self, void *unused)
{
    (void)unused;
    return Py_NewRef(self->on_invalid == NULL ? Py_None : self->on_invalid);
}

static int
set_on_invalid(GuardProgram *self, PyObject *value, void *unused)
{
    (void)unused;
    if (value == Py_None)
        value = NULL;
    if (value != NULL && !PyCallable_Check(value))
        return PyErr_Format(PyExc_TypeError, "on_invalid is a callable or None, not %R", value), -1;
    Py_XINCREF(value);
    Py_XSETREF(self->on_invalid, value);
    return 0;
}

static PyGetSetDef program_getset[] = {
    {"length", (getter)get_length, NULL, "Number of instructions.", NULL},
    {"invalid", (getter)get_invalid, NULL,
     "True once an object that the program holds weakly has died: it never hits again.", NULL},
    {"on_invalid", (getter)get_on_invalid, (setter)set_on_invalid,
     "Called once, without arguments, when the program becomes invalid; or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef program_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GuardProgram, weaklist), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(program_doc,
"GuardProgram(instructions, registers)\n--\n\n"
"Conditions on a frame at its start, as a flat list of instruction tuples over numbered registers.");

static PyType_Slot program_slots[] = {
    {Py_tp_doc, (void *)program_doc},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, program_init},
    {Py_tp_dealloc, program_dealloc},
    {Py_tp_traverse, program_traverse},
    {Py_tp_clear, program_clear},
    {Py_tp_methods, program_methods},
    {Py_tp_getset, program_getset},
    {Py_tp_members, program_members},
    {0, NULL},
};

static PyType_Spec program_spec = {
    .name = "core._C.GuardProgram",
    .basicsize = sizeof(GuardProgram),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = program_slots,
};

/* Written once, when the module is executed; single interpreter (module.c refuses a second). */
static PyTypeObject *program_type;

int
core_guards_is_program(PyObject *object)
{
    return program_type != NULL && Py_IS_TYPE(object, program_type);
}

int
core_guards_add_to_module(PyObject *module)
{
    if (program_type == NULL) {
        program_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &program_spec, NULL);
        if (program_type == NULL)
            return -1;
    }
    if (PyModule_AddType(module, program_type) < 0 || core_watch_init() < 0 ||
        core_iterators_add_to_module(module) < 0)
        return -1;
    if (core_tensor_abi_add_to_module(module) < 0 || core_frozen_weights_add_to_module(module) < 0 ||
        core_backward_state_add_to_module(module) < 0)
        return -1;
    return core_global_state_add_to_module(module);
}
