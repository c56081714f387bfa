// Layout and the argument readers that Kernel and View share.
#pragma once

#include "runtime.h"

#include <vector>

namespace runtime {

constexpr int max_dimensions = 64;
constexpr int layout_values = 2 * max_dimensions + 1;  // sizes, strides, offset

// A length, a stride or an offset: a constant, or the value of one integer argument.
struct Extent {
    int64_t constant = 0;
    Py_ssize_t argument = -1;  // position among the int arguments, or -1 for the constant
};

class Layout {
  public:
    // Reads tuples of ints and ("int", k). offset: the same, or nullptr for 0. False with a Python exception set.
    bool parse(PyObject *sizes, PyObject *strides, PyObject *offset, Py_ssize_t ints);
    // Sizes, then strides, then the offset. Constant ones need no space; others are written to `space`, of
    // layout_values entries.
    const int64_t *evaluate(const long *ints, int64_t *space) const;
    Py_ssize_t ndim() const { return ndim_; }

  private:
    Py_ssize_t ndim_ = 0;
    std::vector<Extent> extents_;
    std::vector<int64_t> fixed_;  // the extents as numbers, empty when one depends on an argument
};

// A fixed array on the stack that moves to the heap only when it has to.
template <typename T, int N> class Buffer {
  public:
    explicit Buffer(Py_ssize_t count) : data_(count <= N ? inline_ : new T[static_cast<size_t>(count)]) {}
    ~Buffer() {
        if (data_ != inline_) {
            delete[] data_;
        }
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    T *data() { return data_; }

  private:
    T inline_[N];
    T *data_;
};

// Reads `count` Python ints. False with an exception set.
inline bool read_ints(PyObject *const *args, Py_ssize_t count, long *ints) {
    for (Py_ssize_t i = 0; i < count; i++) {
        ints[i] = PyLong_AsLong(args[i]);
        if (ints[i] == -1 && PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

}  // namespace runtime
