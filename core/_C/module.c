/* The module `core._C`: multi-phase initialisation, and the refusals that keep it from running where it can't.
 *
 * Map of the folder: core.h (what the files share), pyver.h (CPython versions), hook.c and run.c (frame evaluation),
 * state.c (code extra), callable.c, compiled_code.c, tail_call.c, dispatch.c, bind.c (calls), entry.c, bound_graph.c,
 * weak_link.c (objects); behind guards.h: guard programs, tensor access, iterators, watchers. Nothing here knows torch or core's
 * Python files.
 */
#include "run.h"

CoreTypes core_types;

static int
check_interpreter(void)
{
    if ((Py_Version >> 16) != (PY_VERSION_HEX >> 16)) {
        PyErr_Format(PyExc_ImportError,
                     "[CORE-P001] core._C was built for CPython %d.%d and is loaded by %lu.%lu\n"
                     "  instead: nothing was loaded\n  remedy: install core for this interpreter",
                     PY_MAJOR_VERSION, PY_MINOR_VERSION, Py_Version >> 24, (Py_Version >> 16) & 0xff);
        return -1;
    }
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "[CORE-P001] core._C works in the main interpreter only\n"
                                           "  instead: nothing was loaded in this sub-interpreter\n"
                                           "  remedy: use core from the main interpreter");
        return -1;
    }
    return 0;
}

static int
make_types(PyObject *module)
{
    struct {
        PyTypeObject **slot;
        PyTypeObject *(*make)(PyObject *);
    } all[] = {
        {&core_types.weak_link, core_weak_link_type}, {&core_types.entry, core_entry_type},
        {&core_types.graph, core_graph_type},         {&core_types.callable, core_callable_type},
        {&core_types.code, core_code_type},           {&core_types.tail_call, core_tail_call_type},
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(all); i++) {
        if (*all[i].slot == NULL && (*all[i].slot = all[i].make(module)) == NULL)
            return -1;
    }
    return 0;
}

static int
module_exec(PyObject *module)
{
    if (check_interpreter() < 0 || core_state_init() < 0 || core_run_init() < 0 || make_types(module) < 0)
        return -1;
    if (PyModule_AddType(module, core_types.entry) < 0 || PyModule_AddType(module, core_types.graph) < 0 ||
        PyModule_AddType(module, core_types.callable) < 0 || PyModule_AddType(module, core_types.code) < 0)
        return -1;
    if (PyModule_AddFunctions(module, core_hook_methods) < 0 || PyModule_AddFunctions(module, core_state_methods) < 0 ||
        PyModule_AddFunctions(module, core_stance_methods) < 0)
        return -1;
    return core_guards_add_to_module(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "core._C",
    .m_doc = "Frame evaluation, guards and compiled callables.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__C(void)
{
    return PyModuleDef_Init(&module_def);
}
