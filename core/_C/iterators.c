/* Looking into an iterator of a builtin type without using it up.
 *
 * What enters: an iterator whose exact type the caller has made sure of. What leaves: the items that it is about to give,
 * and the parts that it is made of. `__reduce__` of those types tells both: (iter, (items,), position) where items lie
 * ahead in a sequence, (zip, (iterators...)) where it draws on others. It runs no user code, but it allocates; the
 * iterators of lists, tuples and ranges, over which most loops run, are read where they lie.
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

/* ---- in place ---- */

/* Whether iterators of lists and tuples lie as CoreSequenceIterator says, and those of ranges as CoreRangeIterator. */
static int lists_in_place, tuples_in_place, ranges_in_place;

static int
lies_as_known(PyObject *items)
{
    PyObject *iterator = PyObject_GetIter(items), *first = NULL, *second = NULL, *third = NULL;
    CoreSequenceIterator *known = (CoreSequenceIterator *)iterator;
    int same = -1;
    if (iterator != NULL && (first = PyIter_Next(iterator)) != NULL && (second = PyIter_Next(iterator)) != NULL) {
        same = Py_TYPE(iterator)->tp_basicsize == sizeof(CoreSequenceIterator) && known->next == 2 &&
               known->items == items;
        third = PyIter_Next(iterator);
        if (third == NULL && !PyErr_Occurred())
            same = same && known->items == NULL;
        else
            same = third == NULL ? -1 : 0;
    }
    Py_XDECREF(first);
    Py_XDECREF(second);
    Py_XDECREF(third);
    Py_XDECREF(iterator);
    return same;
}

/* The iterator of range(3, 11, 4), behind 3: 7 is left. */
static int
range_lies_as_known(void)
{
    PyObject *range = PyObject_CallFunction((PyObject *)&PyRange_Type, "iii", 3, 11, 4), *first = NULL;
    PyObject *iterator = range == NULL ? NULL : PyObject_GetIter(range);
    int same = -1;
    if (iterator != NULL && (first = PyIter_Next(iterator)) != NULL) {
        long next = 0;
        same = Py_IS_TYPE(iterator, &PyRangeIter_Type) &&
               Py_TYPE(iterator)->tp_basicsize == sizeof(CoreRangeIterator) &&
               core_range_iterator_left((CoreRangeIterator *)iterator, &next) == 1 && next == 7 &&
               ((CoreRangeIterator *)iterator)->step == 4;
    }
    Py_XDECREF(first);
    Py_XDECREF(iterator);
    Py_XDECREF(range);
    return same;
}

static int
look_at_layouts(void)
{
    PyObject *tuple = PyTuple_Pack(2, Py_None, Py_None), *list = tuple == NULL ? NULL : PySequence_List(tuple);
    int lists = list == NULL ? -1 : lies_as_known(list), tuples = list == NULL ? -1 : lies_as_known(tuple);
    Py_XDECREF(list);
    Py_XDECREF(tuple);
    int ranges = tuples < 0 ? -1 : range_lies_as_known();
    if (lists < 0 || tuples < 0 || ranges < 0)
        return -1;
    ranges_in_place = ranges;
    lists_in_place = lists;
    tuples_in_place = tuples;
    return 0;
}

/* 1 when *items (borrowed, NULL at the end) and *next are set. */
static inline int
read_in_place(PyObject *iterator, PyObject **items, Py_ssize_t *next)
{
    if (!(Py_IS_TYPE(iterator, &PyListIter_Type) && lists_in_place) &&
        !(Py_IS_TYPE(iterator, &PyTupleIter_Type) && tuples_in_place))
        return 0;
    *items = ((CoreSequenceIterator *)iterator)->items;
    *next = ((CoreSequenceIterator *)iterator)->next;
    return 1;
}

static inline int
is_range_in_place(PyObject *iterator)
{
    return ranges_in_place && Py_IS_TYPE(iterator, &PyRangeIter_Type);
}

static inline Py_ssize_t
left_in_place(PyObject *items, Py_ssize_t next)
{
    if (items == NULL) /* at the end; 3.13 has -1 for `next` then */
        return 0;
    return Py_SIZE(items) > next ? Py_SIZE(items) - next : 0;
}

/* ---- any of them ---- */

Py_ssize_t
core_iterator_left(PyObject *iterator)
{
    PyObject *in_place;
    Py_ssize_t at;
    if (read_in_place(iterator, &in_place, &at))
        return left_in_place(in_place, at);
    long value;
    if (is_range_in_place(iterator))
        return core_range_iterator_left((CoreRangeIterator *)iterator, &value);
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
    PyObject *in_place;
    Py_ssize_t at;
    if (read_in_place(iterator, &in_place, &at)) {
        if (n >= left_in_place(in_place, at))
            return NULL;
        at += n;
        return Py_NewRef(PyList_Check(in_place) ? PyList_GET_ITEM(in_place, at) : PyTuple_GET_ITEM(in_place, at));
    }
    long value;
    if (is_range_in_place(iterator)) {
        if (n >= core_range_iterator_left((CoreRangeIterator *)iterator, &value))
            return NULL;
        return PyLong_FromLong(value + (long)n * ((CoreRangeIterator *)iterator)->step);
    }
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
iterator_and_number(PyObject *const *args, Py_ssize_t nargs, PyObject *(*take)(PyObject *, Py_ssize_t))
{
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError, "an iterator and a number are two arguments, not %zd", nargs);
    Py_ssize_t n = PyLong_AsSsize_t(args[1]);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    PyObject *found = n < 0 ? NULL : take(args[0], n);
    return found == NULL ? PyErr_Format(PyExc_LookupError, "%R has nothing at %zd", args[0], n) : found;
}

static PyObject *
iterator_ahead(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    return iterator_and_number(args, nargs, core_iterator_ahead);
}

static PyObject *
iterator_part(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    return iterator_and_number(args, nargs, core_iterator_part);
}

static PyObject *
iterator_left(PyObject *module, PyObject *iterator)
{
    (void)module;
    return PyLong_FromSsize_t(core_iterator_left(iterator));
}

static PyMethodDef methods[] = {
    {"iterator_ahead", (PyCFunction)(void (*)(void))iterator_ahead, METH_FASTCALL,
     "iterator_ahead(iterator, n)\n--\n\n"
     "The item that a builtin iterator gives n items from now; it stays where it stands. Raises LookupError."},
    {"iterator_part", (PyCFunction)(void (*)(void))iterator_part, METH_FASTCALL,
     "iterator_part(iterator, n)\n--\n\n"
     "What a zip, map, filter or enumerate is made of: the n-th argument of an equal one. Raises LookupError."},
    {"iterator_left", iterator_left, METH_O,
     "iterator_left(iterator)\n--\n\nHow many items a builtin iterator has left; -1 where it does not tell."},
    {NULL, NULL, 0, NULL},
};

int
core_iterators_add_to_module(PyObject *module)
{
    if (look_at_layouts() < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
