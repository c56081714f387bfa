/* Relations between sizes: postfix code over int64 and double. Overflow, division by zero or a mixed-up stack: a miss. */
#include "guard_program.h"
#include "tensor_abi.h"

#include <math.h>
#include <string.h>

#define MAX_DEPTH 64

#define SHAPE_OPS(X)                                                                                                  \
    X(size, 0) X(stride, 0) X(offset, 0) X(int, 0) X(const, 0)                                                        \
    X(add, 2) X(sub, 2) X(mul, 2) X(floordiv, 2) X(truediv, 2) X(mod, 2) X(min, 2) X(max, 2) X(pow, 2)                \
    X(eq, 2) X(ne, 2) X(lt, 2) X(le, 2) X(gt, 2) X(ge, 2) X(and, 2) X(or, 2)                                          \
    X(neg, 1) X(not, 1) X(abs, 1)

enum {
#define X(name, pops) SHAPE_##name,
    SHAPE_OPS(X)
#undef X
    SHAPE_COUNT
};

static const struct { const char *name; int pops; } shape_ops[] = {
#define X(name, pops) {#name, pops},
    SHAPE_OPS(X)
#undef X
};

static int
compile_token(PyObject *item, ShapeToken *token, uint32_t registers)
{
    if (!PyTuple_Check(item) && !PyUnicode_Check(item))
        return PyErr_Format(PyExc_TypeError, "a shape token is a name or a tuple, not %R", item), -1;
    PyObject *name = PyTuple_Check(item) && PyTuple_GET_SIZE(item) > 0 ? PyTuple_GET_ITEM(item, 0) : item;
    Py_ssize_t operands = PyTuple_Check(item) ? PyTuple_GET_SIZE(item) - 1 : 0;
    int op = 0;
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "a shape token starts with its name, not %R", name), -1;
    while (op < SHAPE_COUNT && PyUnicode_CompareWithASCIIString(name, shape_ops[op].name) != 0)
        op++;
    Py_ssize_t wanted = op == SHAPE_size || op == SHAPE_stride ? 2 : op <= SHAPE_const ? 1 : 0;
    if (op == SHAPE_COUNT || operands != wanted)
        return PyErr_Format(PyExc_ValueError, "unknown shape token %R", item), -1;
    token->op = (uint8_t)op;
    if (op == SHAPE_const) {
        PyObject *number = PyTuple_GET_ITEM(item, 1);
        if (PyFloat_Check(number)) {
            token->is_float = 1;
            token->as.real = PyFloat_AS_DOUBLE(number);
            return 0;
        }
        token->as.number = PyLong_AsLongLong(number);
        return token->as.number == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (op < SHAPE_const) {
        long reg = PyLong_AsLong(PyTuple_GET_ITEM(item, 1));
        if (reg == -1 && PyErr_Occurred())
            return -1;
        if (reg < 0 || (unsigned long)reg >= registers)
            return PyErr_Format(PyExc_ValueError, "register %ld of %R is out of range", reg, item), -1;
        token->reg = (uint32_t)reg;
        if (wanted == 2) {
            token->as.dim = PyLong_AsLongLong(PyTuple_GET_ITEM(item, 2));
            return token->as.dim == -1 && PyErr_Occurred() ? -1 : 0;
        }
    }
    return 0;
}

ShapeCode *
core_shape_compile(PyObject *tokens, uint32_t registers)
{
    if (!PyTuple_Check(tokens))
        return PyErr_Format(PyExc_TypeError, "shape code is a tuple of tokens, not %R", tokens), NULL;
    Py_ssize_t length = PyTuple_GET_SIZE(tokens);
    int depth = 0;
    ShapeCode *code = PyMem_Calloc(1, sizeof(ShapeCode) + (size_t)length * sizeof(ShapeToken));
    if (code == NULL)
        return (ShapeCode *)PyErr_NoMemory();
    code->length = (uint32_t)length;
    for (Py_ssize_t i = 0; i < length; i++) {
        if (compile_token(PyTuple_GET_ITEM(tokens, i), &code->tokens[i], registers) < 0)
            goto fail;
        depth += 1 - shape_ops[code->tokens[i].op].pops;
        if (depth < 1 || depth > MAX_DEPTH) {
            PyErr_Format(PyExc_ValueError, "shape code %R has a stack depth of %d at token %zd", tokens, depth, i);
            goto fail;
        }
    }
    if (depth != 1) {
        PyErr_Format(PyExc_ValueError, "shape code %R leaves %d values", tokens, depth);
        goto fail;
    }
    return code;
fail:
    PyMem_Free(code);
    return NULL;
}

typedef struct Number {
    int is_float;
    union { int64_t i; double f; } as;
} Number;

static double
as_double(Number a)
{
    return a.is_float ? a.as.f : (double)a.as.i;
}

/* int64 and double compared exactly: a double beyond the int64 range, or with a fraction, never equals an int. */
static int
order(Number a, Number b, int *unordered)
{
    *unordered = 0;
    if (!a.is_float && !b.is_float)
        return (a.as.i > b.as.i) - (a.as.i < b.as.i);
    if (a.is_float && b.is_float) {
        *unordered = isnan(a.as.f) || isnan(b.as.f);
        return (a.as.f > b.as.f) - (a.as.f < b.as.f);
    }
    if (b.is_float)
        return -order(b, a, unordered);
    *unordered = isnan(a.as.f);
    if (*unordered)
        return 0;
    if (a.as.f >= 9223372036854775808.0)
        return 1;
    if (a.as.f < -9223372036854775808.0)
        return -1;
    double whole = floor(a.as.f);
    int64_t number = (int64_t)whole;
    if (number != b.as.i)
        return number > b.as.i ? 1 : -1;
    return a.as.f > whole;
}

static int
integer_power(int64_t base, int64_t exponent, int64_t *result)
{
    int64_t value = 1;
    if (exponent < 0)
        return 0;
    while (exponent) {
        if ((exponent & 1) && __builtin_mul_overflow(value, base, &value))
            return 0;
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base))
            return 0;
    }
    *result = value;
    return 1;
}

/* 0: no result. Integer division and remainder round towards minus infinity, as Python's do. */
static int
integer_arithmetic(int op, int64_t a, int64_t b, int64_t *result)
{
    switch (op) {
    case SHAPE_add: return !__builtin_add_overflow(a, b, result);
    case SHAPE_sub: return !__builtin_sub_overflow(a, b, result);
    case SHAPE_mul: return !__builtin_mul_overflow(a, b, result);
    case SHAPE_pow: return integer_power(a, b, result);
    case SHAPE_min: *result = a < b ? a : b; return 1;
    case SHAPE_max: *result = a > b ? a : b; return 1;
    case SHAPE_floordiv:
    case SHAPE_mod: {
        if (b == 0 || (a == INT64_MIN && b == -1))
            return 0;
        int64_t quotient = a / b, rest = a % b;
        if (rest != 0 && (rest < 0) != (b < 0)) {
            quotient--;
            rest += b;
        }
        *result = op == SHAPE_mod ? rest : quotient;
        return 1;
    }
    default: return 0;
    }
}

static int
double_arithmetic(int op, double a, double b, double *result)
{
    switch (op) {
    case SHAPE_add: *result = a + b; return 1;
    case SHAPE_sub: *result = a - b; return 1;
    case SHAPE_mul: *result = a * b; return 1;
    case SHAPE_truediv: *result = a / b; return b != 0.0;
    case SHAPE_pow: *result = pow(a, b); return isfinite(*result);
    case SHAPE_min: *result = b < a ? b : a; return !isnan(a) && !isnan(b);
    case SHAPE_max: *result = b > a ? b : a; return !isnan(a) && !isnan(b);
    case SHAPE_floordiv:
    case SHAPE_mod: {
        if (b == 0.0)
            return 0;
        double rest = fmod(a, b);
        if (rest != 0.0 && (rest < 0.0) != (b < 0.0))
            rest += b;
        *result = op == SHAPE_mod ? rest : floor((a - rest) / b + 0.5);
        return 1;
    }
    default: return 0;
    }
}

static int
load(const ShapeToken *token, PyObject *const *regs, Number *out)
{
    out->is_float = 0;
    if (token->op == SHAPE_const) {
        out->is_float = token->is_float;
        out->as.i = token->as.number; /* the union also carries the double */
        return 1;
    }
    PyObject *value = regs[token->reg];
    if (value == NULL)
        return 0;
    if (token->op == SHAPE_int) {
        if (PyFloat_CheckExact(value)) {
            out->is_float = 1;
            out->as.f = PyFloat_AS_DOUBLE(value);
            return 1;
        }
        int overflow;
        if (!PyLong_Check(value))
            return 0;
        out->as.i = PyLong_AsLongLongAndOverflow(value, &overflow);
        return !overflow;
    }
    return core_tensor_number(value, token->op == SHAPE_size ? 's' : token->op == SHAPE_stride ? 't' : 'o',
                              token->as.dim, &out->as.i);
}

static int
is_true(Number a)
{
    return a.is_float ? a.as.f != 0.0 : a.as.i != 0;
}

static int
binary(int op, Number a, Number b, Number *out)
{
    out->is_float = 0;
    if (op >= SHAPE_eq && op <= SHAPE_ge) {
        int unordered, sign = order(a, b, &unordered);
        switch (op) {
        case SHAPE_eq: out->as.i = !unordered && sign == 0; break;
        case SHAPE_ne: out->as.i = unordered || sign != 0; break;
        case SHAPE_lt: out->as.i = !unordered && sign < 0; break;
        case SHAPE_le: out->as.i = !unordered && sign <= 0; break;
        case SHAPE_gt: out->as.i = !unordered && sign > 0; break;
        default: out->as.i = !unordered && sign >= 0; break;
        }
        return 1;
    }
    if (op == SHAPE_and || op == SHAPE_or) {
        out->as.i = op == SHAPE_and ? is_true(a) && is_true(b) : is_true(a) || is_true(b);
        return 1;
    }
    if (!a.is_float && !b.is_float && op != SHAPE_truediv)
        return integer_arithmetic(op, a.as.i, b.as.i, &out->as.i);
    out->is_float = 1;
    return double_arithmetic(op, as_double(a), as_double(b), &out->as.f);
}

static int
unary(int op, Number a, Number *out)
{
    *out = a;
    if (op == SHAPE_not) {
        out->is_float = 0;
        out->as.i = !is_true(a);
        return 1;
    }
    if (a.is_float) {
        out->as.f = op == SHAPE_neg ? -a.as.f : fabs(a.as.f);
        return 1;
    }
    if (a.as.i == INT64_MIN)
        return 0;
    out->as.i = op == SHAPE_neg || a.as.i < 0 ? -a.as.i : a.as.i;
    return 1;
}

int
core_shape_eval(const ShapeCode *code, PyObject *const *regs)
{
    Number stack[MAX_DEPTH];
    int top = 0; /* the compiler has proved that the stack neither under- nor overflows */
    for (uint32_t i = 0; i < code->length; i++) {
        const ShapeToken *token = &code->tokens[i];
        int pops = shape_ops[token->op].pops;
        Number result;
        int defined = pops == 0   ? load(token, regs, &result)
                      : pops == 1 ? unary(token->op, stack[top - 1], &result)
                                  : binary(token->op, stack[top - 2], stack[top - 1], &result);
        if (!defined)
            return 0;
        top -= pops;
        stack[top++] = result;
    }
    return is_true(stack[0]);
}
