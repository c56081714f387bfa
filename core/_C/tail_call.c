/* TailCall: what replacement code returns after a graph break, for its caller to call the resume function.
 *
 * Were the resume function called from the replacement code, a loop with a break in it would go one call deeper each time
 * around, keep every iteration's values alive and show a frame for each in a traceback. So whoever runs replacement code
 * (a CompiledCallable, a CompiledCode, the hook) finishes here, one resume function after the other.
 *
 * A TailCall lives from the return to the end of the call it asks for; no user code sees it, so the collector need not.
 */
#include "core.h"

typedef struct TailCall {
    PyObject_VAR_HEAD
    PyObject *target; /* a CompiledCode */
    PyObject *room;   /* the callee's to use, see PY_VECTORCALL_ARGUMENTS_OFFSET; not a reference of ours */
    PyObject *args[]; /* closure, then the arguments */
} TailCall;

PyObject *
core_tail_call_new(PyObject *target, PyObject *const *args, Py_ssize_t nargs)
{
    TailCall *self = (TailCall *)core_types.tail_call->tp_alloc(core_types.tail_call, nargs);
    if (self == NULL)
        return NULL;
    self->target = Py_NewRef(target);
    for (Py_ssize_t i = 0; i < nargs; i++)
        self->args[i] = Py_NewRef(args[i]);
    return (PyObject *)self;
}

PyObject *
core_tail_call_run(PyObject *result)
{
    if (!TailCall_Check(result))
        return result;
    core_hook_enter(); /* once for all of them, not on and off with each */
    do {
        TailCall *next = (TailCall *)result;
        result = core_code_run_once(next->target, next->args, (size_t)Py_SIZE(next) | PY_VECTORCALL_ARGUMENTS_OFFSET);
        Py_DECREF(next);
    } while (TailCall_Check(result));
    core_hook_leave();
    return result;
}

static void
tail_call_dealloc(PyObject *op)
{
    TailCall *self = (TailCall *)op;
    PyTypeObject *type = Py_TYPE(op);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++)
        Py_XDECREF(self->args[i]);
    Py_XDECREF(self->target);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyType_Slot tail_call_slots[] = {
    {Py_tp_dealloc, tail_call_dealloc},
    {0, NULL},
};

static PyType_Spec tail_call_spec = {
    .name = "core._C.TailCall",
    .basicsize = sizeof(TailCall),
    .itemsize = sizeof(PyObject *),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = tail_call_slots,
};

PyTypeObject *
core_tail_call_type(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &tail_call_spec, NULL);
}
