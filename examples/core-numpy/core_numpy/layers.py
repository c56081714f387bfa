"""The larger operators, in NumPy: convolutions, normalisation, lookups."""

import math

import numpy as np

_erf = np.frompyfunc(math.erf, 1, 1)


def gelu(x, *, approximate="none", out, wide):
    exact = x.astype(np.float64)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (exact + 0.044715 * exact**3)
        return (0.5 * exact * (1 + np.tanh(inner))).astype(out)
    return (0.5 * exact * (1 + np.asarray(_erf(exact / math.sqrt(2)), dtype=np.float64))).astype(out)


def layer_norm(x, shape, weight, bias, eps, *, out, wide):
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    exact = x.astype(np.float64)
    mean = exact.mean(axis=axes, keepdims=True)
    scale = 1 / np.sqrt(exact.var(axis=axes, keepdims=True) + eps)
    result = (exact - mean) * scale
    result = result if weight is None else result * weight
    result = result if bias is None else result + bias
    return result.astype(out), mean.astype(out), scale.astype(out)


def _checked(index, size):
    if index.size and (index.min() < 0 or index.max() >= size):
        raise IndexError("index out of range in self")
    return index


def index_select(x, dim, index, *, out, wide):
    if x.ndim == 0:
        _checked(index, 1)
        return x.copy()
    return np.take(x, _checked(np.atleast_1d(index), x.shape[dim]), axis=dim)


def embedding(weight, index, padding_idx=-1, scale_grad_by_freq=False, sparse=False, *, out, wide):
    return weight[_checked(index, weight.shape[0])]


def embedding_renorm(weight, index, max_norm, norm_type, *, out, wide):
    """The table with the rows that are looked up brought below a norm."""
    rows, result = np.unique(_checked(index, weight.shape[0])), weight.copy()
    norms = np.linalg.norm(weight[rows].astype(np.float64), ord=norm_type, axis=1)
    long = norms > max_norm
    factors = max_norm / (norms[long] + 1e-7)
    result[rows[long]] = (weight[rows[long]] * factors[:, None]).astype(out)
    return result


def pad(x, widths, value=0, *, out, wide):
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2)
    pairs += [(widths[at], widths[at + 1]) for at in range(len(widths) - 2, -1, -2)]
    cut = tuple(slice(max(-low, 0), size - max(-high, 0)) for (low, high), size in zip(pairs, x.shape, strict=True))
    grown = [(max(low, 0), max(high, 0)) for low, high in pairs]
    return np.pad(x[cut], grown, constant_values=out.type(value))


def convolution(x, weight, bias, stride, padding, dilation, transposed, extra, groups, *, out, wide):
    dims = x.ndim - 2
    stride, padding, dilation = (list(v) * dims if len(v) == 1 else list(v) for v in (stride, padding, dilation))
    x = np.pad(x, [(0, 0), (0, 0), *((width, width) for width in padding)])
    spread = [(size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, spread, axis=tuple(range(2, x.ndim)))
    moves = tuple(slice(None, None, step) for step in stride)
    taps = tuple(slice(None, None, step) for step in dilation)
    windows = windows[(slice(None), slice(None), *moves, *taps)]
    places, kernel = "ijk"[:dims], "pqr"[:dims]
    parts = []
    for part, filters in zip(np.split(windows, groups, axis=1), np.split(weight, groups, axis=0), strict=True):
        parts.append(np.einsum(f"nc{places}{kernel},oc{kernel}->no{places}", part, filters, optimize=True))
    result = np.concatenate(parts, axis=1)
    if bias is not None:
        result = result + bias.reshape(1, -1, *[1] * dims)
    return result.astype(out)


LAYERS = {
    "aten.gelu.default": gelu,
    "aten.native_layer_norm.default": layer_norm,
    "aten.index_select.default": index_select,
    "aten.embedding.default": embedding,
    "aten.embedding_renorm.default": embedding_renorm,
    "aten.constant_pad_nd.default": pad,
    "aten.convolution.default": convolution,
}
