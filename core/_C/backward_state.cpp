// What autograd's engine does for the backward that runs in this thread.
//
// The engine has a table of the nodes to run only where gradients of some inputs are asked for; for all, it is empty.
// It is a std::unordered_map, whose emptiness does not depend on what it holds.
#include "tensor_abi.h"

#include <unordered_map>

namespace {

using Table = std::unordered_map<void *, void *>;

const Table *(*table_of_nodes)();

PyObject *
backward_runs_part(PyObject *, PyObject *)
{
    if (table_of_nodes == nullptr)
        table_of_nodes = reinterpret_cast<const Table *(*)()>(
            core_torch_symbol("libtorch_cpu", "_ZN5torch8autograd32get_current_graph_task_exec_infoEv"));
    if (table_of_nodes == nullptr)
        Py_RETURN_NONE;
    const Table *table = table_of_nodes();
    return PyBool_FromLong(table != nullptr && !table->empty());
}

PyMethodDef methods[] = {
    {"backward_runs_part", backward_runs_part, METH_NOARGS,
     PyDoc_STR("backward_runs_part()\n--\n\nWhether the backward that runs in this thread is for some of the inputs "
               "only; None where this torch does not tell.")},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

extern "C" int
core_backward_state_add_to_module(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
