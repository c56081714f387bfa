/* WeakLink: a weakref callback that points back at its owner without keeping it alive. */
#include "core.h"

static PyObject *
weak_link_call(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    (void)args, (void)nargsf, (void)kwnames;
    WeakLink *self = (WeakLink *)op;
    if (self->target != NULL)
        self->notify(self->target);
    Py_RETURN_NONE;
}

static void
weak_link_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    type->tp_free(op);
    Py_DECREF(type);
}

WeakLink *
core_weak_link_new(void *target, void (*notify)(void *))
{
    WeakLink *self = (WeakLink *)core_types.weak_link->tp_alloc(core_types.weak_link, 0);
    if (self == NULL)
        return NULL;
    self->target = target;
    self->notify = notify;
    self->vectorcall = weak_link_call;
    return self;
}

static PyMemberDef weak_link_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(WeakLink, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot weak_link_slots[] = {
    {Py_tp_dealloc, weak_link_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, weak_link_members},
    {0, NULL},
};

static PyType_Spec weak_link_spec = {
    .name = "core._C.WeakLink",
    .basicsize = sizeof(WeakLink),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = weak_link_slots,
};

PyTypeObject *
core_weak_link_type(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &weak_link_spec, NULL);
}
