"""One function of NumPy calls for each ATen overload. `out` is the dtype that the graph promises of the result.

Operands arrive as arrays or numbers. Arithmetic happens in the dtype of the result, as in torch; comparisons in the
dtype that torch would bring both sides to, which the translator has done before.
"""

import operator

import numpy as np

from .layers import LAYERS

WIDE = {np.dtype(np.float32): np.float64}


def _to(value, dtype):
    return value.astype(dtype, copy=False) if isinstance(value, np.ndarray | np.generic) else dtype.type(value)


def _unary(function):
    return lambda x, *, out, wide: function(_to(x, out))


def _binary(function):
    return lambda x, y, *, out, wide: function(_to(x, out), _to(y, out))


def _scaled(function):
    def run(x, y, alpha=1, *, out, wide):
        y = _to(y, out)
        return function(_to(x, out), y if alpha == 1 else y * _to(alpha, out))

    return run


def _plain(function):
    return lambda *args, out, wide: function(*args)


def _axes(dims, x):
    """The axes to reduce: all for None and for no dims; a tensor without axes may be reduced over its axis 0."""
    if dims is None or len(dims) == 0 or x.ndim == 0:
        return tuple(range(x.ndim))
    return tuple(dims)


def sum_of(x, dim=None, keepdim=False, *, dtype=None, out, wide):
    kind = WIDE.get(out, out) if wide else out
    return np.sum(x, axis=_axes(dim, x), keepdims=keepdim, dtype=kind).astype(out)


def mean_of(x, dim=None, keepdim=False, *, dtype=None, out, wide):
    axes = _axes(dim, x)
    count = out.type(np.prod([x.shape[axis] for axis in axes], dtype=np.float64))
    kind = WIDE.get(out, out) if wide else out
    return (np.sum(x, axis=axes, keepdims=keepdim, dtype=kind) / kind_of(kind)(count)).astype(out)


def kind_of(kind):
    return np.dtype(kind).type


def _extreme(function):
    return lambda x, dim=(), keepdim=False, *, out, wide: function(x, axis=_axes(dim, x), keepdims=keepdim)


def softmax(x, dim, half_to_float, *, out, wide):
    shifted = x - np.max(x, axis=dim, keepdims=True)
    powers = np.exp(shifted.astype(WIDE.get(out, out) if wide else out))
    return (powers / np.sum(powers, axis=dim, keepdims=True)).astype(out)


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def addmm(bias, x, y, *, beta=1, alpha=1, out, wide):
    product = np.matmul(x, y)
    product = product if alpha == 1 else product * out.type(alpha)
    return product + (bias if beta == 1 else bias * out.type(beta))


def expand(x, sizes, *, implicit=False, out, wide):
    missing = len(sizes) - x.ndim
    shape = [x.shape[at - missing] if size == -1 else size for at, size in enumerate(sizes)]
    return np.broadcast_to(x, shape)


def squeeze(x, dims, *, out, wide):
    dims = dims if isinstance(dims, list | tuple) else [dims]
    return np.squeeze(x, tuple(dim for dim in dims if x.ndim and x.shape[dim] == 1))


def view(x, sizes, *, out, wide):
    return np.reshape(x, tuple(sizes))


CALLS = {
    **LAYERS,
    "getitem": lambda parts, index, *, out, wide: operator.getitem(parts, index),
    "aten.dot.default": _plain(np.dot),
    "aten.mv.default": _plain(np.matmul),
    "aten.pow.Tensor_Tensor": _binary(np.power),
    "aten.pow.Tensor_Scalar": _binary(np.power),
    "aten.pow.Scalar": _binary(np.power),
    "aten.abs.default": _unary(np.abs),
    "aten.neg.default": _unary(np.negative),
    "aten.exp.default": _unary(np.exp),
    "aten.expm1.default": _unary(np.expm1),
    "aten.log.default": _unary(np.log),
    "aten.log1p.default": _unary(np.log1p),
    "aten.sqrt.default": _unary(np.sqrt),
    "aten.rsqrt.default": _unary(lambda x: 1 / np.sqrt(x)),
    "aten.reciprocal.default": _unary(lambda x: 1 / x),
    "aten.sin.default": _unary(np.sin),
    "aten.cos.default": _unary(np.cos),
    "aten.tanh.default": _unary(np.tanh),
    "aten.sigmoid.default": _unary(sigmoid),
    "aten.floor.default": _unary(np.floor),
    "aten.ceil.default": _unary(np.ceil),
    "aten.relu.default": _unary(lambda x: np.maximum(x, x.dtype.type(0))),  # np.maximum keeps NaN, as torch does
    "aten.add.Tensor": _scaled(np.add),
    "aten.sub.Tensor": _scaled(np.subtract),
    "aten.mul.Tensor": _binary(np.multiply),
    "aten.div.Tensor": _binary(np.divide),
    "aten.maximum.default": _binary(np.maximum),
    "aten.minimum.default": _binary(np.minimum),
    "aten.eq.Tensor": _plain(np.equal),
    "aten.ne.Tensor": _plain(np.not_equal),
    "aten.lt.Tensor": _plain(np.less),
    "aten.le.Tensor": _plain(np.less_equal),
    "aten.gt.Tensor": _plain(np.greater),
    "aten.ge.Tensor": _plain(np.greater_equal),
    "aten.eq.Scalar": _plain(np.equal),
    "aten.ne.Scalar": _plain(np.not_equal),
    "aten.lt.Scalar": _plain(np.less),
    "aten.le.Scalar": _plain(np.less_equal),
    "aten.gt.Scalar": _plain(np.greater),
    "aten.ge.Scalar": _plain(np.greater_equal),
    "aten.logical_not.default": _plain(np.logical_not),
    "aten.logical_and.default": _plain(np.logical_and),
    "aten.logical_or.default": _plain(np.logical_or),
    "aten.isnan.default": _plain(np.isnan),
    "aten.where.self": lambda c, x, y, *, out, wide: np.where(c, _to(x, out), _to(y, out)),
    "aten.sum.default": sum_of,
    "aten.sum.dim_IntList": sum_of,
    "aten.mean.default": mean_of,
    "aten.mean.dim": mean_of,
    "aten.amax.default": _extreme(np.max),
    "aten.amin.default": _extreme(np.min),
    "aten._softmax.default": softmax,
    "aten.mm.default": _plain(np.matmul),
    "aten.bmm.default": _plain(np.matmul),
    "aten.addmm.default": addmm,
    "aten.view.default": view,
    "aten._unsafe_view.default": view,
    "aten.expand.default": expand,
    "aten.permute.default": _plain(lambda x, dims: np.transpose(x, dims)),
    "aten.t.default": _plain(np.transpose),
    "aten.transpose.int": _plain(lambda x, a, b: np.swapaxes(x, a, b) if x.ndim else x),
    "aten.unsqueeze.default": _plain(np.expand_dims),
    "aten.squeeze.dim": squeeze,
    "aten.squeeze.dims": squeeze,
    "aten.cat.default": lambda parts, dim=0, *, out, wide: np.concatenate([_to(p, out) for p in parts], axis=dim),
    "aten.clone.default": lambda x, *, memory_format=None, out, wide: x.copy(),
}
COMPARING = ("eq", "ne", "lt", "le", "gt", "ge")
