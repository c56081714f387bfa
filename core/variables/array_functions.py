"""Which functions of NumPy torch's layer computes as NumPy does, value for value up to rounding.

Left out: what treats NaN in another way (sign, heaviside), what depends on an order that isn't fixed (argsort) or on
values (nonzero, unique), what hands out read-only views (broadcast_to, diagonal), random numbers, and integer forms
that NumPy defines and torch does not (division by zero, shifts beyond the width, negative powers).
"""

from __future__ import annotations

import functools
import operator
from typing import Any

FUNCTIONS = frozenset(
    "add subtract multiply divide true_divide floor_divide remainder mod power float_power negative positive "
    "absolute abs fabs sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh exp exp2 expm1 log "
    "log2 log10 log1p sqrt square reciprocal floor ceil trunc rint maximum minimum fmax fmin greater "
    "greater_equal less less_equal equal not_equal logical_and logical_or logical_xor logical_not bitwise_and "
    "bitwise_or bitwise_xor invert isnan isinf isfinite signbit copysign hypot arctan2 logaddexp logaddexp2 "
    "deg2rad rad2deg radians degrees matmul sum prod mean std var max min amax amin argmax argmin any all cumsum "
    "cumprod count_nonzero reshape transpose swapaxes moveaxis expand_dims squeeze concatenate stack vstack "
    "hstack dstack column_stack tile repeat flip roll where clip tril triu ravel atleast_1d atleast_2d dot inner "
    "outer tensordot vdot kron sort arange zeros ones full eye zeros_like ones_like full_like array asarray copy "
    "ndim shape size nan_to_num linspace diag diagonal diagflat trace broadcast_to split array_split hsplit vsplit "
    "dsplit median diff take round around real imag conj conjugate isreal iscomplex gradient append atleast_3d "
    "meshgrid isposinf isneginf indices linalg.norm linalg.multi_dot fft.fft fft.ifft fft.fft2 fft.ifft2 fft.fftn "
    "fft.ifftn fft.rfft fft.irfft fft.rfft2 fft.irfft2 fft.rfftn fft.irfftn fft.hfft fft.ihfft fft.fftshift "
    "fft.ifftshift".split()
)
METHODS = frozenset(
    "sum prod mean std var max min argmax argmin any all cumsum cumprod reshape transpose swapaxes squeeze ravel "
    "flatten copy astype clip dot repeat __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ "
    "__rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__ __matmul__ __rmatmul__ __and__ "
    "__rand__ __or__ __ror__ __xor__ __rxor__ __neg__ __pos__ __abs__ __invert__ __lt__ __le__ __gt__ __ge__ "
    "__eq__ __ne__ __getitem__".split()
)
IN_PLACE = frozenset(
    "__iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__ "
    "__setitem__ fill".split()
)
# Of numbers that are known while tracing, where NumPy itself gives the result.
OF_KNOWN_NUMBERS = frozenset(
    "lcm gcd sign cbrt sinc fmod ldexp nextafter spacing heaviside left_shift right_shift".split()
)
# Questions about dtypes, which NumPy itself answers.
OF_DTYPES = frozenset("issubdtype can_cast promote_types result_type min_scalar_type isdtype".split())
DIVISIONS = frozenset("floor_divide remainder mod __floordiv__ __mod__ __ifloordiv__ __imod__".split())
OF_METADATA = frozenset(("ndim", "shape", "size"))
# For integers torch has no answer where NumPy has one, for complex numbers another.
FLOATS_ONLY = frozenset(
    "floor ceil trunc rint floor_divide remainder mod power float_power reciprocal __floordiv__ __rfloordiv__ "
    "__mod__ __rmod__ __pow__ __rpow__ __ifloordiv__ __imod__ __ipow__".split()
)
NO_COMPLEX = frozenset(
    "max min amax amin argmax argmin maximum minimum fmax fmin sort clip greater greater_equal less less_equal "
    "__lt__ __le__ __gt__ __ge__ nan_to_num reciprocal arcsin arccos arctan arcsinh arccosh arctanh sqrt log log2 "
    "log10 log1p std var any all isnan isinf isfinite logical_and logical_or logical_xor logical_not".split()
)


@functools.cache
def _by_identity() -> dict[int, str]:
    import numpy

    there = (name for name in FUNCTIONS | OF_KNOWN_NUMBERS | OF_DTYPES if name != "isdtype" or hasattr(numpy, name))
    return {id(operator.attrgetter(name)(numpy)): name for name in there}


def name_of(value: Any) -> str | None:
    """The name of a NumPy function that is traced."""
    return _by_identity().get(id(value))


def refuses(name: str, dtypes: set[str], operands: tuple[Any, ...], keywords: dict[str, Any]) -> str | None:
    """Why a call with operands or results of these kinds (NumPy's letters) is not traced."""
    if name == "linalg.norm" and _of_singular_values(*operands, **keywords):
        return "by singular values, which fails in its own way, is not traced"
    if name in FLOATS_ONLY and not dtypes <= {"f"} and not _divides_integers(name, dtypes, operands):
        return "is traced for floating-point numbers only"
    if "c" in dtypes and name in NO_COMPLEX:
        return "of complex numbers is not traced"
    return None


def _divides_integers(name: str, dtypes: set[str], operands: tuple[Any, ...]) -> bool:
    """An integer divided by a known one that is above zero, which both round downwards."""
    if name not in DIVISIONS or not dtypes <= {"i", "u"} or len(operands) != 2:
        return False
    return type(operands[1]) is int and operands[1] > 0


def _of_singular_values(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> bool:
    of_a_matrix = not isinstance(axis, int) and (axis is not None or x.ndim == 2)
    return ord is not None and of_a_matrix and ord in ("nuc", 2, -2)
