/* BoundGraph: a compiled graph as replacement code calls it, with the lifted tensors put among the arguments. */
#include "core.h"

enum { GRAPH_INLINE = 64 };

typedef struct BoundGraph {
    PyObject_HEAD
    PyObject *fn, *lifted; /* NULL once cleared */
    Py_ssize_t *places;    /* where each lifted tensor stands, ascending; NULL: behind the arguments */
    PyObject *weakrefs;
    vectorcallfunc vectorcall;
} BoundGraph;

/* Arguments and lifted tensors in the order of the graph's inputs. */
static void
merge(PyObject **room, PyObject *const *args, Py_ssize_t nargs, PyObject *lifted, const Py_ssize_t *places)
{
    Py_ssize_t count = PyTuple_GET_SIZE(lifted), taken = 0, filled = 0;
    PyObject *const *items = ((PyTupleObject *)lifted)->ob_item;
    if (places == NULL) {
        memcpy(room, args, (size_t)nargs * sizeof(PyObject *));
        memcpy(room + nargs, items, (size_t)count * sizeof(PyObject *));
        return;
    }
    for (Py_ssize_t at = 0; at < nargs + count; at++) {
        int is_lifted = taken < count && (places[taken] == at || filled == nargs);
        room[at] = is_lifted ? items[taken++] : args[filled++];
    }
}

static PyObject *
call_with_lifted(PyObject *fn, PyObject *lifted, const Py_ssize_t *places, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *inline_room[GRAPH_INLINE + 1], **room = inline_room;
    Py_ssize_t count = PyTuple_GET_SIZE(lifted);
    if (nargs + count > GRAPH_INLINE) {
        room = PyMem_New(PyObject *, nargs + count + 1);
        if (room == NULL)
            return PyErr_NoMemory();
    }
    room[0] = NULL; /* the callee's to use, see PY_VECTORCALL_ARGUMENTS_OFFSET */
    merge(room + 1, args, nargs, lifted, places);
    PyObject *result = core_run_plain(fn, room + 1, (size_t)(nargs + count) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (room != inline_room)
        PyMem_Free(room);
    return result;
}

static PyObject *
graph_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    BoundGraph *self = (BoundGraph *)op;
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames)) {
        PyErr_SetString(PyExc_TypeError, "a compiled graph takes positional arguments only");
        return NULL;
    }
    if (self->fn == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this compiled graph was cleared with the entry that owned it");
        return NULL;
    }
    PyObject *fn = Py_NewRef(self->fn), *lifted = Py_NewRef(self->lifted), *result;
    if (PyTuple_GET_SIZE(lifted) == 0)
        result = core_run_plain(fn, args, nargsf, NULL);
    else
        result = call_with_lifted(fn, lifted, self->places, args, PyVectorcall_NARGS(nargsf));
    Py_DECREF(lifted);
    Py_DECREF(fn);
    return result;
}

static int
set_places(BoundGraph *self, PyObject *places)
{
    Py_ssize_t count = PyTuple_GET_SIZE(self->lifted), last = -1;
    if (!PyTuple_Check(places) || PyTuple_GET_SIZE(places) != count) {
        PyErr_SetString(PyExc_ValueError, "places is a tuple with one ascending index for each lifted argument");
        return -1;
    }
    self->places = PyMem_New(Py_ssize_t, count + 1);
    if (self->places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i));
        if (place <= last) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "places ascend");
            return -1;
        }
        self->places[i] = last = place;
    }
    return 0;
}

static PyObject *
graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "lifted", "places", NULL};
    PyObject *fn, *lifted, *places = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!|O:BoundGraph", names, &fn, &PyTuple_Type, &lifted, &places))
        return NULL;
    if (!PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "fn must be callable, not %.100s", Py_TYPE(fn)->tp_name);
        return NULL;
    }
    BoundGraph *self = (BoundGraph *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->fn = Py_NewRef(fn);
    self->lifted = Py_NewRef(lifted);
    if (places != Py_None && set_places(self, places) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->vectorcall = graph_vectorcall;
    return (PyObject *)self;
}

static int
graph_traverse(PyObject *op, visitproc visit, void *arg)
{
    BoundGraph *self = (BoundGraph *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->fn);
    Py_VISIT(self->lifted);
    return 0;
}

static int
graph_clear(PyObject *op)
{
    BoundGraph *self = (BoundGraph *)op;
    Py_CLEAR(self->fn);
    Py_CLEAR(self->lifted);
    return 0;
}

static void
graph_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (((BoundGraph *)op)->weakrefs != NULL)
        PyObject_ClearWeakRefs(op);
    graph_clear(op);
    PyMem_Free(((BoundGraph *)op)->places);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
graph_clear_method(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    graph_clear(op);
    Py_RETURN_NONE;
}

static PyMethodDef graph_methods[] = {
    {"clear", graph_clear_method, METH_NOARGS, PyDoc_STR("Drop fn and lifted; later calls raise RuntimeError.")},
    {NULL},
};

static PyMemberDef graph_members[] = {
    {"fn", T_OBJECT, offsetof(BoundGraph, fn), 0, PyDoc_STR("The compiled graph, may be replaced; None once cleared.")},
    {"lifted", T_OBJECT, offsetof(BoundGraph, lifted), READONLY, PyDoc_STR("Arguments appended to each call.")},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(BoundGraph, weakrefs), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(BoundGraph, vectorcall), READONLY, NULL},
    {NULL},
};

PyDoc_STRVAR(graph_doc, "BoundGraph(fn, lifted, places=None)\n--\n\n"
                        "Calling it with *args calls fn(*args, *lifted) with the thread's frame callback off.\n"
                        "places: the index of each lifted argument among all arguments, ascending.");

static PyType_Slot graph_slots[] = {
    {Py_tp_new, graph_new},         {Py_tp_dealloc, graph_dealloc},   {Py_tp_traverse, graph_traverse},
    {Py_tp_clear, graph_clear},     {Py_tp_call, PyVectorcall_Call},  {Py_tp_methods, graph_methods},
    {Py_tp_members, graph_members}, {Py_tp_doc, (void *)graph_doc},   {0, NULL},
};

static PyType_Spec graph_spec = {
    .name = "core._C.BoundGraph",
    .basicsize = sizeof(BoundGraph),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = graph_slots,
};

PyTypeObject *
core_graph_type(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &graph_spec, NULL);
}
