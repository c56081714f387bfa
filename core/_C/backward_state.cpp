// What autograd's engine does for the backward that runs in this thread.
//
// The engine has a table of the nodes to run only where gradients of some inputs are asked for; for all, it is empty.
// It is a std::unordered_map, whose emptiness does not depend on what it holds. What it says of a node is read as the
// members below, and believed only where it says that the node runs: torch is asked about the others.
#include "tensor_abi.h"

#include <unordered_map>

namespace {

struct NodeInfo {
    bool needed;
    void *captures;
};

struct NodeObject {
    PyObject_HEAD // as of the classes that torch has for the nodes of C++
    void *node;
};

using Table = std::unordered_map<void *, NodeInfo>;

const Table *(*table_of_nodes)();

const Table *
current_table()
{
    if (table_of_nodes == nullptr)
        table_of_nodes = reinterpret_cast<const Table *(*)()>(
            core_torch_symbol("libtorch_cpu", "_ZN5torch8autograd32get_current_graph_task_exec_infoEv"));
    return table_of_nodes == nullptr ? nullptr : table_of_nodes();
}

PyObject *
backward_runs_part(PyObject *, PyObject *)
{
    const Table *table = current_table();
    if (table_of_nodes == nullptr)
        Py_RETURN_NONE;
    return PyBool_FromLong(table != nullptr && !table->empty());
}

bool
table_runs(const Table *table, PyObject *object)
{
    if (table == nullptr || Py_TYPE(object)->tp_basicsize < Py_ssize_t(sizeof(NodeObject)))
        return false;
    // the word is only compared: objects of other classes have something else in its place
    auto found = table->find(reinterpret_cast<NodeObject *>(object)->node);
    return found != table->end() && (found->second.needed || found->second.captures != nullptr);
}

int
edge_runs(const Table *table, PyObject *edge, PyObject *ask)
{
    if (!PyTuple_CheckExact(edge) || PyTuple_GET_SIZE(edge) < 1) {
        PyErr_SetString(PyExc_TypeError, "an edge is a tuple of a node and a number");
        return -1;
    }
    PyObject *node = PyTuple_GET_ITEM(edge, 0); // borrowed ref
    if (node == Py_None)
        return 0;
    if (table_runs(table, node))
        return 1;
    if (ask == Py_None)
        return 0;
    PyObject *answer = PyObject_CallOneArg(ask, node);
    if (answer == nullptr)
        return -1;
    int runs = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return runs;
}

PyObject *
backward_edges_run(PyObject *, PyObject *args)
{
    PyObject *edges, *wanted, *ask;
    if (!PyArg_ParseTuple(args, "O!O!O:backward_edges_run", &PyTuple_Type, &edges, &PyTuple_Type, &wanted, &ask))
        return nullptr;
    const Table *table = current_table();
    Py_ssize_t count = PyTuple_GET_SIZE(wanted);
    PyObject *found = PyBytes_FromStringAndSize(nullptr, count);
    if (found == nullptr)
        return nullptr;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(wanted, i));
        int runs = -1;
        if (at >= 0 && at < PyTuple_GET_SIZE(edges))
            runs = edge_runs(table, PyTuple_GET_ITEM(edges, at), ask);
        else if (!PyErr_Occurred())
            PyErr_SetString(PyExc_IndexError, "no such edge");
        if (runs < 0) {
            Py_DECREF(found);
            return nullptr;
        }
        PyBytes_AS_STRING(found)[i] = char(runs);
    }
    return found;
}

PyMethodDef methods[] = {
    {"backward_runs_part", backward_runs_part, METH_NOARGS,
     PyDoc_STR("backward_runs_part()\n--\n\nWhether the backward that runs in this thread is for some of the inputs "
               "only; None where this torch does not tell.")},
    {"backward_edges_run", backward_edges_run, METH_VARARGS,
     PyDoc_STR("backward_edges_run(edges, wanted, ask, /)\n--\n\nA byte for each of the edges at the places `wanted`: 1 "
               "where the backward that runs in this thread goes on with it. ask: whether it runs a node that its "
               "table does not show to run; None: no.")},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

extern "C" int
core_backward_state_add_to_module(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
