/* Comparisons of values that guards need, none of which leaves an exception set. */
#define CORE_DICT_INTERNALS
#include "guard_program.h"

#include <math.h>
#include <string.h>

static int
is_plain_leaf(PyObject *value)
{
    return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
           PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) || PyComplex_CheckExact(value) ||
           value == Py_Ellipsis;
}

int
core_value_is_plain(PyObject *value)
{
    if (is_plain_leaf(value))
        return 1;
    if (PyTuple_CheckExact(value)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
            if (!core_value_is_plain(PyTuple_GET_ITEM(value, i)))
                return 0;
        }
        return 1;
    }
    if (PySlice_Check(value)) {
        PySliceObject *slice = (PySliceObject *)value;
        return core_value_is_plain(slice->start) && core_value_is_plain(slice->stop) &&
               core_value_is_plain(slice->step);
    }
    return 0;
}

int
core_key_is_plain(PyObject *key)
{
    return core_value_is_plain(key) || (PyType_Check(key) && Py_TYPE(key) == &PyType_Type);
}

static int
doubles_equal(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b && signbit(a) == signbit(b);
}

static int
sequences_equal(PyObject **a, PyObject **b, Py_ssize_t length)
{
    for (Py_ssize_t i = 0; i < length; i++) {
        if (!core_values_equal(a[i], b[i]))
            return 0;
    }
    return 1;
}

static int
dicts_equal(PyObject *value, PyObject *constant)
{
    Py_ssize_t p = 0, q = 0;
    PyObject *key, *item, *other_key, *other_item;
    if (PyDict_GET_SIZE(value) != PyDict_GET_SIZE(constant))
        return 0;
    while (PyDict_Next(constant, &p, &key, &item)) {
        if (!PyDict_Next(value, &q, &other_key, &other_item))
            return 0;
        Py_INCREF(other_key);
        Py_INCREF(other_item);
        int equal = core_values_equal(other_key, key) && core_values_equal(other_item, item);
        Py_DECREF(other_key);
        Py_DECREF(other_item);
        if (!equal)
            return 0;
    }
    return 1;
}

/* Anything else: the type's own ==, which may be user code; the callers hold references. */
static int
generic_equal(PyObject *value, PyObject *constant)
{
    int result = PyObject_RichCompareBool(value, constant, Py_EQ);
    if (result < 0) {
        PyErr_Clear();
        return 0;
    }
    return result;
}

int
core_values_equal(PyObject *value, PyObject *constant)
{
    if (Py_TYPE(value) != Py_TYPE(constant))
        return 0;
    if (value == constant && is_plain_leaf(value))
        return 1;
    if (PyUnicode_CheckExact(value)) {
        Py_ssize_t size = PyUnicode_GET_LENGTH(value);
        return size == PyUnicode_GET_LENGTH(constant) && PyUnicode_KIND(value) == PyUnicode_KIND(constant) &&
               memcmp(PyUnicode_DATA(value), PyUnicode_DATA(constant), (size_t)size * PyUnicode_KIND(value)) == 0;
    }
    if (PyFloat_CheckExact(value))
        return doubles_equal(PyFloat_AS_DOUBLE(value), PyFloat_AS_DOUBLE(constant));
    if (PyComplex_CheckExact(value)) {
        Py_complex a = ((PyComplexObject *)value)->cval, b = ((PyComplexObject *)constant)->cval;
        return doubles_equal(a.real, b.real) && doubles_equal(a.imag, b.imag);
    }
    if (PyTuple_CheckExact(value)) {
        Py_ssize_t length = PyTuple_GET_SIZE(value);
        return length == PyTuple_GET_SIZE(constant) &&
               sequences_equal(((PyTupleObject *)value)->ob_item, ((PyTupleObject *)constant)->ob_item, length);
    }
    if (PyList_CheckExact(value)) {
        if (PyList_GET_SIZE(value) != PyList_GET_SIZE(constant))
            return 0;
        /* An item's == may shrink either list: the sizes are read again each time. */
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value) && i < PyList_GET_SIZE(constant); i++) {
            PyObject *a = Py_NewRef(PyList_GET_ITEM(value, i)), *b = Py_NewRef(PyList_GET_ITEM(constant, i));
            int equal = core_values_equal(a, b);
            Py_DECREF(a);
            Py_DECREF(b);
            if (!equal)
                return 0;
        }
        return PyList_GET_SIZE(value) == PyList_GET_SIZE(constant);
    }
    if (PyDict_CheckExact(value))
        return dicts_equal(value, constant);
    if (PySlice_Check(value)) {
        PySliceObject *a = (PySliceObject *)value, *b = (PySliceObject *)constant;
        return core_values_equal(a->start, b->start) && core_values_equal(a->stop, b->stop) &&
               core_values_equal(a->step, b->step);
    }
    return generic_equal(value, constant);
}

int
core_dict_unchanged(PyObject *dict, uint64_t *version)
{
    uint64_t now = core_dict_version(dict), before = *version;
    *version = now;
    return now == before;
}

/* OrderedDict keeps an order of its own, which its iterator (C code, whatever a subclass overrides) follows. */
static int
ordered_dict_keys_equal(PyObject *dict, PyObject *keys)
{
    PyObject *iterator = PyODict_Type.tp_iter(dict), *key;
    Py_ssize_t i = 0, equal = 1;
    if (iterator == NULL) {
        PyErr_Clear();
        return 0;
    }
    while (equal && (key = PyIter_Next(iterator)) != NULL) {
        PyObject *expected = PyTuple_GET_ITEM(keys, i);
        i++;
        equal = key == expected || (core_key_is_plain(expected) && core_values_equal(key, expected));
        Py_DECREF(key);
    }
    Py_DECREF(iterator);
    PyErr_Clear();
    return equal && i == PyTuple_GET_SIZE(keys);
}

int
core_dict_keys_equal(PyObject *dict, PyObject *keys)
{
    Py_ssize_t position = 0, i = 0;
    PyObject *key, *item;
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys))
        return 0;
    if (PyODict_Check(dict))
        return ordered_dict_keys_equal(dict, keys);
    while (PyDict_Next(dict, &position, &key, &item)) {
        PyObject *expected = PyTuple_GET_ITEM(keys, i);
        i++;
        /* Keys of other types are the same only when they are one object: their == is user code. */
        if (key != expected && !(core_key_is_plain(expected) && core_values_equal(key, expected)))
            return 0;
    }
    return 1;
}

Py_ssize_t
core_value_length(PyObject *value)
{
    if (PyTuple_Check(value) || PyList_Check(value) || PyBytes_Check(value))
        return Py_SIZE(value);
    if (PyDict_Check(value))
        return PyDict_GET_SIZE(value);
    if (PyUnicode_Check(value))
        return PyUnicode_GET_LENGTH(value);
    if (PyAnySet_Check(value))
        return PySet_GET_SIZE(value);
    if (PyRange_Check(value) || PyByteArray_CheckExact(value)) {
        Py_ssize_t length = PyObject_Size(value); /* C code of exact builtin types */
        if (length < 0)
            PyErr_Clear();
        return length;
    }
    return -1;
}

int
core_int_in_range(PyObject *value, PyObject *bounds)
{
    PyObject *lo = PyTuple_GET_ITEM(bounds, 0), *hi = PyTuple_GET_ITEM(bounds, 1);
    if (!PyLong_CheckExact(value))
        return 0;
    int overflow, bound_overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (lo != Py_None) {
        long long bound = PyLong_AsLongLongAndOverflow(lo, &bound_overflow);
        if (overflow || bound_overflow) {
            if (PyObject_RichCompareBool(value, lo, Py_GE) != 1)
                return 0;
        }
        else if (number < bound)
            return 0;
    }
    if (hi != Py_None) {
        long long bound = PyLong_AsLongLongAndOverflow(hi, &bound_overflow);
        if (overflow || bound_overflow) {
            if (PyObject_RichCompareBool(value, hi, Py_LE) != 1)
                return 0;
        }
        else if (number > bound)
            return 0;
    }
    return 1;
}

PyObject *
core_slot_value(PyObject *value, PyObject *name, Py_ssize_t *offset)
{
    PyObject *member = _PyType_Lookup(Py_TYPE(value), name); /* borrowed */
    if (member == NULL || !Py_IS_TYPE(member, &PyMemberDescr_Type))
        return NULL;
    PyMemberDef *def = ((PyMemberDescrObject *)member)->d_member;
    if (def->type != T_OBJECT_EX || !PyType_IsSubtype(Py_TYPE(value), PyDescr_TYPE(member)))
        return NULL;
    *offset = def->offset;
    return *(PyObject **)((char *)value + def->offset);
}
