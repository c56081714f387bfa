// Layout: sizes and strides that are known when a kernel is made, or depend on the call's integer arguments.

#include "layout.h"

#include <cstring>

namespace runtime {

namespace {

// An int, or ("int", k) for the k-th int argument.
bool parse_extent(PyObject *description, Py_ssize_t ints, Extent *extent) {
    if (PyLong_Check(description)) {
        extent->constant = PyLong_AsLongLong(description);
        return extent->constant != -1 || !PyErr_Occurred();
    }
    const char *kind = "";
    if (!PyTuple_Check(description) || !PyArg_ParseTuple(description, "sn", &kind, &extent->argument) ||
        std::strcmp(kind, "int") != 0 || extent->argument < 0 || extent->argument >= ints) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "a size is an int or ('int', position of an int argument), not %R", description);
        return false;
    }
    return true;
}

// Appends the entries of a tuple of sizes or strides.
bool parse_extents(PyObject *descriptions, Py_ssize_t ints, std::vector<Extent> *extents) {
    if (!PyTuple_Check(descriptions) || PyTuple_GET_SIZE(descriptions) > max_dimensions) {
        PyErr_Format(PyExc_TypeError, "sizes and strides are tuples of at most %d entries", max_dimensions);
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(descriptions); i++) {
        Extent extent;
        if (!parse_extent(PyTuple_GET_ITEM(descriptions, i), ints, &extent)) {
            return false;
        }
        extents->push_back(extent);
    }
    return true;
}

}  // namespace

bool Layout::parse(PyObject *sizes, PyObject *strides, PyObject *offset, Py_ssize_t ints) {
    if (!parse_extents(sizes, ints, &extents_) || !parse_extents(strides, ints, &extents_)) {
        return false;
    }
    ndim_ = PyTuple_GET_SIZE(sizes);
    if (ndim_ != PyTuple_GET_SIZE(strides)) {
        PyErr_SetString(PyExc_ValueError, "a layout has as many strides as sizes");
        return false;
    }
    extents_.emplace_back();
    if (offset != nullptr && !parse_extent(offset, ints, &extents_.back())) {
        return false;
    }
    for (const Extent &extent : extents_) {
        if (extent.argument >= 0) {
            fixed_.clear();
            break;
        }
        fixed_.push_back(extent.constant);
    }
    return true;
}

const int64_t *Layout::evaluate(const long *ints, int64_t *space) const {
    if (!fixed_.empty()) {
        return fixed_.data();
    }
    int64_t *value = space;
    for (const Extent &extent : extents_) {
        *value++ = extent.argument < 0 ? extent.constant : ints[extent.argument];
    }
    return space;
}

}  // namespace runtime
