/* Looking into an iterator of a builtin type without using it up.
 *
 * What enters: an iterator whose exact type the caller has made sure of. What leaves: the items that it is about to give,
 * and the parts that it is made of. `__reduce__` of those types tells both: (iter, (items,), position) where items lie
 * ahead in a sequence, (zip, (iterators...)) where it draws on others. It runs no user code, but it allocates.
 */
#include "guard_program.h"

static PyObject *reduce_name; /* "__reduce__", made once */

/* (callable, arguments[, position]), a new reference, or NULL with no exception set. */
static PyObject *
taken_apart(PyObject *iterator)
{
    if (reduce_name == NULL && (reduce_name = PyUnicode_InternFromString("__reduce__")) == NULL)
        return PyErr_Clear(), NULL;
    PyObject *parts = PyObject_CallMethodNoArgs(iterator, reduce_name);
    if (parts == NULL)
        PyErr_Clear(); /* the dict or set changed under it: the next step of the loop raises */
    else if (!PyTuple_CheckExact(parts) || PyTuple_GET_SIZE(parts) < 2 || !PyTuple_CheckExact(PyTuple_GET_ITEM(parts, 1)))
        Py_CLEAR(parts);
    return parts;
}

static Py_ssize_t
sequence_length(PyObject *items, int backwards)
{
    if (PyList_Check(items))
        return PyList_GET_SIZE(items);
    if (PyTuple_CheckExact(items) || (PyTuple_Check(items) && !backwards))
        return PyTuple_GET_SIZE(items);
    if (PyUnicode_CheckExact(items))
        return PyUnicode_GET_LENGTH(items);
    return PyRange_Check(items) || PyBytes_CheckExact(items) ? PyObject_Size(items) : -1;
}

/* The sequence (borrowed from `parts`), the place of the next item in it, the step; how many items are left, or -1. */
static Py_ssize_t
locate(PyObject *parts, PyObject **items, Py_ssize_t *next, int *step)
{
    PyObject *arguments = PyTuple_GET_ITEM(parts, 1);
    if (PyTuple_GET_SIZE(arguments) != 1)
        return -1;
    *items = PyTuple_GET_ITEM(arguments, 0);
    *step = PyTuple_GET_ITEM(parts, 0) == (PyObject *)&PyReversed_Type ? -1 : 1;
    *next = 0;
    Py_ssize_t length = sequence_length(*items, *step < 0);
    if (length < 0)
        return PyErr_Clear(), -1;
    if (PyTuple_GET_SIZE(parts) > 2 && PyTuple_GET_ITEM(parts, 2) != Py_None) {
        *next = PyLong_AsSsize_t(PyTuple_GET_ITEM(parts, 2));
        if (*next == -1 && PyErr_Occurred())
            return PyErr_Clear(), -1;
    }
    else if (*step < 0)
        *next = length - 1;
    Py_ssize_t left = *step < 0 ? *next + 1 : length - *next;
    return left < 0 || (*step < 0 && *next >= length) ? 0 : left;
}

Py_ssize_t
core_iterator_left(PyObject *iterator)
{
    PyObject *parts = taken_apart(iterator), *items;
    Py_ssize_t next, left = -1;
    int step;
    if (parts != NULL)
        left = locate(parts, &items, &next, &step);
    Py_XDECREF(parts);
    return left;
}

PyObject *
core_iterator_ahead(PyObject *iterator, Py_ssize_t n)
{
    PyObject *parts = taken_apart(iterator), *items, *item = NULL;
    Py_ssize_t next;
    int step;
    if (parts == NULL)
        return NULL;
    if (n < locate(parts, &items, &next, &step)) {
        Py_ssize_t place = next + step * n;
        if (PyList_Check(items))
            item = Py_NewRef(PyList_GET_ITEM(items, place));
        else if (PyTuple_Check(items))
            item = Py_NewRef(PyTuple_GET_ITEM(items, place));
        else if ((item = PySequence_GetItem(items, place)) == NULL)
            PyErr_Clear();
    }
    Py_DECREF(parts);
    return item;
}

PyObject *
core_iterator_part(PyObject *iterator, Py_ssize_t n)
{
    PyObject *parts = taken_apart(iterator), *part = NULL;
    if (parts == NULL)
        return NULL;
    if (n < PyTuple_GET_SIZE(PyTuple_GET_ITEM(parts, 1)))
        part = Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(parts, 1), n));
    Py_DECREF(parts);
    return part;
}

static PyObject *
iterator_and_number(PyObject *args, PyObject *(*take)(PyObject *, Py_ssize_t))
{
    PyObject *iterator, *found;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "On", &iterator, &n))
        return NULL;
    found = n < 0 ? NULL : take(iterator, n);
    return found == NULL ? PyErr_Format(PyExc_LookupError, "%R has nothing at %zd", iterator, n) : found;
}

static PyObject *
iterator_ahead(PyObject *module, PyObject *args)
{
    (void)module;
    return iterator_and_number(args, core_iterator_ahead);
}

static PyObject *
iterator_part(PyObject *module, PyObject *args)
{
    (void)module;
    return iterator_and_number(args, core_iterator_part);
}

static PyObject *
iterator_left(PyObject *module, PyObject *iterator)
{
    (void)module;
    return PyLong_FromSsize_t(core_iterator_left(iterator));
}

static PyMethodDef methods[] = {
    {"iterator_ahead", iterator_ahead, METH_VARARGS,
     "iterator_ahead(iterator, n)\n--\n\n"
     "The item that a builtin iterator gives n items from now; it stays where it stands. Raises LookupError."},
    {"iterator_part", iterator_part, METH_VARARGS,
     "iterator_part(iterator, n)\n--\n\n"
     "What a zip, map, filter or enumerate is made of: the n-th argument of an equal one. Raises LookupError."},
    {"iterator_left", iterator_left, METH_O,
     "iterator_left(iterator)\n--\n\nHow many items a builtin iterator has left; -1 where it does not tell."},
    {NULL, NULL, 0, NULL},
};

int
core_iterators_add_to_module(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
