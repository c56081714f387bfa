/* What each guard instruction does.
 *
 * The loop exists twice: with borrowed registers, for instructions that run no user code, and with owned ones. A step
 * that could run user code after all (a dict that has other keys than str) ends the borrowed loop, and the caller
 * starts again with owned registers. So no borrowed reference is ever used after user code has run.
 */
#define CORE_DICT_INTERNALS
#include "guard_program.h"
#include "global_state.h"
#include "tensor_abi.h"

#include <string.h>

/* A guard's error is a miss. An interrupt is not lost: it is raised again at the interpreter's next check. */
static void
swallow(void)
{
    if (PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
            PyErr_SetInterrupt();
        PyErr_Clear();
    }
}

static inline PyObject *
weak_target(PyObject *reference)
{
    PyObject *target = ((PyWeakReference *)reference)->wr_object;
    return target == Py_None ? NULL : target; /* borrowed */
}

/* Status of a dict lookup by exact str: 1 found, 0 absent, 2 may run user code. */
static inline int
find_str(PyObject *dict, const Instr *in, const int owned, PyObject **out)
{
    if (!owned && !core_dict_has_str_keys_only(dict))
        return GUARD_NEEDS_OWNED;
    *out = _PyDict_GetItem_KnownHash(dict, in->object, in->hash);
    if (owned && *out == NULL)
        swallow();
    return *out != NULL;
}

static inline int
find_key(PyObject *dict, const Instr *in, const int owned, PyObject **out)
{
    if (!PyDict_Check(dict))
        return -1;
    if (PyUnicode_CheckExact(in->object))
        return find_str(dict, in, owned, out);
    if (!owned)
        return GUARD_NEEDS_OWNED;
    *out = PyDict_GetItemWithError(dict, in->object);
    if (*out == NULL)
        swallow();
    return *out != NULL;
}

static inline int
find_global(const FrameView *view, const Instr *in, const int owned, PyObject **out)
{
    int found = 0;
    if (in->op != OP_builtin) {
        found = find_str(view->globals, in, owned, out);
        if (found || in->op == OP_global_only)
            return found;
    }
    return view->builtins != NULL && PyDict_Check(view->builtins) ? find_str(view->builtins, in, owned, out) : 0;
}

static inline PyObject *
function_part(PyObject *value, int op)
{
    PyFunctionObject *function = (PyFunctionObject *)value;
    if (!PyFunction_Check(value))
        return NULL;
    PyObject *part = op == OP_function_code       ? function->func_code
                     : op == OP_function_defaults ? function->func_defaults
                     : op == OP_function_closure  ? function->func_closure
                                                  : function->func_kwdefaults;
    return part == NULL ? Py_None : part;
}

static int
call_predicate(const Instr *in, PyObject **regs)
{
    const RegisterList *list = in->extra;
    PyObject *small[16], **args = small;
    int truth = 0;
    if (list->length > 16 && (args = PyMem_Malloc(list->length * sizeof(PyObject *))) == NULL)
        return 0;
    for (uint32_t i = 0; i < list->length; i++) {
        args[i] = regs[list->regs[i]];
        if (args[i] == NULL)
            goto done;
    }
    PyObject *result = PyObject_Vectorcall(in->object, args, list->length, NULL);
    if (result != NULL) {
        truth = PyObject_IsTrue(result) == 1;
        Py_DECREF(result);
    }
    swallow();
done:
    if (args != small)
        PyMem_Free(args);
    return truth;
}

/* The value that an access instruction loads, borrowed (NEW: a new reference). Status as find_str; -1 or 0 a miss. */
static inline int
load(const Instr *in, const FrameView *view, PyObject **regs, const int owned, PyObject **out, int *is_new)
{
    PyObject *src = in->src != NO_REGISTER ? regs[in->src] : NULL, **slot;
    Py_ssize_t offset;
    int not_ready = 0;
    *out = NULL;
    switch (in->op) {
    case OP_local: *out = view->locals[in->n]; break;
    case OP_global:
    case OP_global_only:
    case OP_builtin: return find_global(view, in, owned, out);
    case OP_closure:
        if (view->closure != NULL && PyTuple_Check(view->closure) && in->n < PyTuple_GET_SIZE(view->closure)) {
            PyObject *cell = PyTuple_GET_ITEM(view->closure, in->n);
            *out = PyCell_Check(cell) ? PyCell_GET(cell) : NULL;
        }
        break;
    case OP_const: *out = in->flags & FLAG_WEAK ? weak_target(in->object) : in->object; break;
    case OP_attr:
        if (!owned)
            return GUARD_NEEDS_OWNED;
        *out = PyObject_GetAttr(src, in->object);
        *is_new = 1;
        swallow();
        break;
    case OP_instance_attr:
        slot = core_instance_dict_slot(src, owned, &not_ready);
        if (not_ready)
            return GUARD_NEEDS_OWNED;
        return slot == NULL || *slot == NULL ? 0 : find_key(*slot, in, owned, out);
    case OP_instance_dict:
        slot = core_instance_dict_slot(src, owned, &not_ready);
        if (not_ready)
            return GUARD_NEEDS_OWNED;
        *out = slot == NULL ? NULL : *slot;
        break;
    case OP_type: *out = (PyObject *)Py_TYPE(src); break;
    case OP_type_attr:
        *out = PyType_Check(src) ? _PyType_Lookup((PyTypeObject *)src, in->object) : NULL;
        if (*out == NULL)
            swallow();
        break;
    case OP_slot_attr: *out = core_slot_value(src, in->object, &offset); break;
    case OP_dict_item: return find_key(src, in, owned, out);
    case OP_list_item: *out = PyList_Check(src) && in->n < PyList_GET_SIZE(src) ? PyList_GET_ITEM(src, in->n) : NULL; break;
    case OP_tuple_item:
        *out = PyTuple_Check(src) && in->n < PyTuple_GET_SIZE(src) ? PyTuple_GET_ITEM(src, in->n) : NULL;
        break;
    case OP_cell: *out = PyCell_Check(src) ? PyCell_GET(src) : NULL; break;
    case OP_module: return find_str(PyImport_GetModuleDict(), in, owned, out);
    case OP_function_code:
    case OP_function_defaults:
    case OP_function_kwdefaults:
    case OP_function_closure: *out = function_part(src, in->op); break;
    case OP_method_self: *out = PyMethod_Check(src) ? PyMethod_GET_SELF(src) : NULL; break;
    case OP_method_func: *out = PyMethod_Check(src) ? PyMethod_GET_FUNCTION(src) : NULL; break;
    case OP_called:
        if (!owned)
            return GUARD_NEEDS_OWNED;
        *out = PyObject_CallOneArg(in->object, src);
        *is_new = 1;
        swallow();
        break;
    case OP_iterator_ahead:
    case OP_iterator_part:
        if (!owned)
            return GUARD_NEEDS_OWNED;
        *out = in->op == OP_iterator_ahead ? core_iterator_ahead(src, in->n) : core_iterator_part(src, in->n);
        *is_new = 1;
        break;
    default: break;
    }
    return *out != NULL;
}

/* 1 holds, 0 or -1 does not, 2 needs owned registers. */
static inline int
check(const Instr *in, const FrameView *view, PyObject **regs, const int owned)
{
    PyObject *src = in->src != NO_REGISTER ? regs[in->src] : NULL, *found, **slot;
    int status, not_ready = 0;
    switch (in->op) {
    case OP_is: return src == (in->flags & FLAG_WEAK ? weak_target(in->object) : in->object);
    case OP_is_not: return src != (in->flags & FLAG_WEAK ? weak_target(in->object) : in->object);
    case OP_type_is: return (PyObject *)Py_TYPE(src) == in->object;
    case OP_equals:
        if (!owned && !(in->flags & FLAG_PLAIN))
            return GUARD_NEEDS_OWNED;
        return core_values_equal(src, in->object);
    case OP_len: return core_value_length(src) == in->n;
    case OP_dict_keys:
        if (!owned && PyDict_Check(src) && !core_dict_has_str_keys_only(src))
            return GUARD_NEEDS_OWNED;
        return core_dict_keys_equal(src, in->object);
    case OP_missing_key:
        status = find_key(src, in, owned, &found);
        return status == GUARD_NEEDS_OWNED ? status : status == 0;
    case OP_missing_instance_attr:
        slot = core_instance_dict_slot(src, owned, &not_ready);
        if (not_ready)
            return GUARD_NEEDS_OWNED;
        if (slot == NULL || *slot == NULL)
            return 1;
        status = find_key(*slot, in, owned, &found);
        return status == GUARD_NEEDS_OWNED ? status : status == 0;
    case OP_missing_global:
        status = find_str(view->globals, in, owned, &found);
        return status == GUARD_NEEDS_OWNED ? status : status == 0;
    case OP_type_version: return in->n != 0 && (Py_ssize_t)((PyTypeObject *)in->object)->tp_version_tag == in->n;
    case OP_same: return src == regs[in->src2];
    case OP_not_same: return src != regs[in->src2];
    case OP_tensor:
        if (!owned && core_tensor_checks_run_python())
            return GUARD_NEEDS_OWNED;
        return core_tensor_matches(src, in->extra);
    case OP_no_overlap: {
        const RegisterList *list = in->extra;
        return !core_tensors_overlap(regs, list->regs, list->length);
    }
    case OP_global_state: return core_global_state_matches(in->object);
    case OP_int_range: return core_int_in_range(src, in->object);
    case OP_shape: return core_shape_eval(in->extra, regs);
    case OP_python: return owned ? call_predicate(in, regs) : GUARD_NEEDS_OWNED;
    case OP_items_left:
    case OP_no_items_left:
        if (!owned)
            return GUARD_NEEDS_OWNED;
        Py_ssize_t left = core_iterator_left(src);
        return in->op == OP_items_left ? left > in->n : left >= 0 && left <= in->n;
    default: return 0;
    }
}

static inline __attribute__((always_inline)) int
run(const Instr *instrs, Py_ssize_t count, const FrameView *view, PyObject **regs, const int owned,
    Py_ssize_t *failed)
{
    for (const Instr *in = instrs, *end = instrs + count; in < end; in++) {
        int status;
        if (in->op < OP_is) {
            PyObject *value;
            int is_new = 0;
            status = load(in, view, regs, owned, &value, &is_new);
            if (status == 1) {
                if (owned) {
                    if (!is_new)
                        Py_INCREF(value);
                    Py_XSETREF(regs[in->dst], value);
                }
                else
                    regs[in->dst] = value;
                continue;
            }
        }
        else {
            status = check(in, view, regs, owned);
            if (status == 1)
                continue;
        }
        if (status == GUARD_NEEDS_OWNED)
            return GUARD_NEEDS_OWNED;
        *failed = (Py_ssize_t)in->index;
        return GUARD_MISS;
    }
    return GUARD_HIT;
}

int
core_guard_run(const Instr *instrs, Py_ssize_t count, const FrameView *view, PyObject **regs, int owned,
               Py_ssize_t *failed)
{
    return owned ? run(instrs, count, view, regs, 1, failed) : run(instrs, count, view, regs, 0, failed);
}
