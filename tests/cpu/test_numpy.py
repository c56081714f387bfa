"""NumPy in captured code: traced where the results are provably NumPy's, left to Python elsewhere."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import core
from core.variables import array_functions

X = torch.arange(6.0).reshape(2, 3)
SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, 3.5, float("nan"), float("inf"), -float("inf"), 1e-30, 1e30, 0.5]


def same(left, right):
    """Equal in type, dtype, shape and values up to rounding; arrays, scalars, tensors and containers."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.allclose(left, right)
    if isinstance(left, (np.ndarray, np.generic)):
        if left.dtype.kind not in "biufc":
            return left.dtype == right.dtype and np.array_equal(left, right)
        close = {"rtol": 1e-2 if left.dtype == np.float16 else 1e-5, "atol": 1e-6, "equal_nan": True}
        return left.dtype == right.dtype and left.shape == right.shape and np.allclose(left, right, **close)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def run(fn, args):
    try:
        return fn(*args)
    except Exception as error:  # noqa: BLE001  whatever NumPy raises is compared
        return type(error), str(error)


def agrees(fn, *args, calls=2, **options):
    """Call eager and compiled on copies of the arguments; the totals of core.stats()."""
    core.reset()
    compiled = core.compile(fn, backend="eager", **options)
    for _ in range(calls):
        ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
        got, want = run(compiled, ours), run(fn, theirs)
        assert same(got, want), (got, want)
        assert same(list(ours), list(theirs)), "arguments differ afterwards"
    assert core.stats()["skipped"] == core.stats()["recompiles"] == 0
    return core.stats()


def in_one_graph(fn, *args, **options):
    """agrees(), in one graph without a break."""
    stats = agrees(fn, *args, **options)
    assert (stats["graphs"], stats["breaks"]) == (1, 0), stats


# -- functions and methods -------------------------------------------------------------------------------------------

ONE = (
    "negative positive absolute fabs sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh exp "
    "exp2 expm1 log log2 log10 log1p sqrt square reciprocal floor ceil trunc rint isnan isinf isfinite signbit "
    "deg2rad rad2deg logical_not invert sum prod mean std var max min amax amin argmax argmin any all cumsum "
    "cumprod count_nonzero ravel transpose squeeze atleast_1d atleast_2d zeros_like ones_like sort copy "
    "nan_to_num tril triu flip"
).split()
TWO = (
    "add subtract multiply divide floor_divide remainder power float_power maximum minimum fmax fmin greater "
    "greater_equal less less_equal equal not_equal logical_and logical_or logical_xor bitwise_and bitwise_or "
    "bitwise_xor copysign hypot arctan2 logaddexp logaddexp2 matmul dot inner outer vdot kron"
).split()
OTHER = {
    "reshape": lambda a: np.reshape(a, (4, 3)),
    "swapaxes": lambda a: np.swapaxes(a, 0, 1),
    "moveaxis": lambda a: np.moveaxis(a, 0, 1),
    "expand_dims": lambda a: np.expand_dims(a, 1),
    "concatenate": lambda a: np.concatenate([a, a], axis=1),
    "stack": lambda a: np.stack((a, a), axis=1),
    "vstack": lambda a: np.vstack((a, a)),
    "hstack": lambda a: np.hstack((a, a)),
    "dstack": lambda a: np.dstack((a, a)),
    "column_stack": lambda a: np.column_stack((a, a)),
    "tile": lambda a: np.tile(a, 2),
    "repeat": lambda a: np.repeat(a, 2, axis=0),
    "roll": lambda a: np.roll(a, 1, axis=0),
    "where": lambda a: np.where(a > 1, a, -a),
    "clip": lambda a: np.clip(a, -1, 2),
    "tensordot": lambda a: np.tensordot(a, a.T, axes=1),
    "arange": lambda a: np.arange(3) + a[:, :3],
    "zeros": lambda a: np.zeros((3, 4)) + a.T.reshape(3, 4),
    "ones": lambda a: np.ones(3, dtype=a.dtype) * a,
    "full": lambda a: np.full((2,), 7.0),
    "full_like": lambda a: np.full_like(a, 3),
    "eye": lambda a: np.eye(3) @ a.T,
    "array": lambda a: np.array(a),
    "asarray": lambda a: np.asarray(a) * 2,
    "ndim": lambda a: np.ndim(a) * a,
    "shape": lambda a: np.shape(a),
    "size": lambda a: np.size(a) * a,
    "keepdims": lambda a: a.sum(axis=1, keepdims=True) + a.mean(axis=(0, 1)),
    "ddof": lambda a: a.std(ddof=1),
    "astype": lambda a: a.astype(np.float64).astype("float32"),
    "scalars": lambda a: a * 2 + 1.5 - True,
    "scalar of the array": lambda a: a[0, 1] * a + a[1, 2],
    "slices": lambda a: (a[1:], a[::2, ::2], a[:, None], a[..., 0], a[-1]),
    "index array": lambda a: a[[2, 0, 1]],
    "index by an array": lambda a: a[np.arange(2)],
    "reflected": lambda a: (1 - a, 2 / (a + 10), 3 > a),
    "iteration": lambda a: [row * 2 for row in a],
    "flatten": lambda a: a.flatten(),
    "abs and neg": lambda a: (abs(a), -a, +a),
    "dtype": lambda a: (a.dtype == np.float32, a.dtype.name, a.itemsize, a.nbytes, a.size, a.ndim, a.shape, len(a)),
    "linspace": lambda a: np.linspace(0, 1, 5) * a[0, 0],
    "diag": lambda a: np.diag(a[0]),
    "diagonal": lambda a: (np.diagonal(a), np.diagonal(a) + 1),
    "diagflat": lambda a: np.diagflat(a[0]),
    "trace": lambda a: np.trace(a),
    "broadcast_to": lambda a: np.broadcast_to(a, (2, 4, 3)),
    "split": lambda a: np.split(a, 2),
    "array_split": lambda a: np.array_split(a, 3),
    "hsplit": lambda a: np.hsplit(a, 3),
    "vsplit": lambda a: np.vsplit(a, 2),
    "dsplit": lambda a: np.dsplit(a[..., None], 1),
    "median": lambda a: np.median(a, axis=1),
    "diff": lambda a: (np.diff(a), np.diff(a, n=2, axis=0)),
    "take": lambda a: np.take(a, [2, 0, -1], axis=0),
    "round": lambda a: np.round(a, 1),
    "around": lambda a: np.around(a),
    "real": lambda a: np.real(a) + a.real,
    "imag": lambda a: (np.imag(a), a.imag),
    "conj": lambda a: np.conj(a),
    "conjugate": lambda a: np.conjugate(a),
    "isreal": lambda a: np.isreal(a),
    "iscomplex": lambda a: np.iscomplex(a),
    "gradient": lambda a: np.gradient(a),
    "append": lambda a: (np.append(a, a), np.append(a, a, axis=0)),
    "atleast_3d": lambda a: np.atleast_3d(a),
    "meshgrid": lambda a: np.meshgrid(a[0], a[:, 0], indexing="ij"),
    "isposinf": lambda a: np.isposinf(a),
    "isneginf": lambda a: np.isneginf(a),
    "indices": lambda a: np.indices((2, 3)),
    "linalg.norm": lambda a: (np.linalg.norm(a), np.linalg.norm(a, axis=0), np.linalg.norm(a, 1)),
    "linalg.multi_dot": lambda a: np.linalg.multi_dot([a, a.T, a]),
    "strides": lambda a: (a.strides, a.T.strides, a[::2].strides),
    "an array of a number": lambda a: (np.asarray(a.max()), np.atleast_1d(a.max())),
    "limits": lambda a: a * 0 + np.iinfo(np.int16).max,
    "dtypes by name": lambda a: np.full_like(a, 2.5, dtype=np.dtype("float")),
    "metadata": lambda a: isinstance(a, np.ndarray) and not isinstance(a[0, 0], np.ndarray) and a.dtype.kind == "f",
}


def sample(dtype):
    values = np.array(SPECIAL, dtype=np.float64).reshape(4, 3)
    if np.dtype(dtype).kind in "iu":
        return np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100, 77]).astype(dtype).reshape(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return values.astype(dtype)


DTYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "uint8", "bool", "complex64")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_one_array_give_what_numpy_gives_or_break(dtype):
    functions = [getattr(np, name) for name in ONE]

    def make(function):
        return lambda a: function(a)

    traced = sum(agrees(make(function), sample(dtype), calls=1)["breaks"] == 0 for function in functions)
    assert traced >= (40 if dtype in ("float32", "float64") else 10)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("other", ("float32", "float64", "int64", "uint8", "bool"))
@pytest.mark.parametrize("dtype", ("float32", "float64", "int32", "uint8", "bool"))
def test_functions_of_two_arrays_promote_as_numpy_or_break(dtype, other):
    functions = [getattr(np, name) for name in TWO]

    def make(function):
        return lambda a, b: function(a, b)

    left, right = sample(dtype).reshape(12), sample(other).reshape(12)[::-1].copy()
    traced = sum(agrees(make(function), left, right, calls=1)["breaks"] == 0 for function in functions)
    assert traced >= 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fn", OTHER.values(), ids=OTHER)
def test_shapes_indices_operators_and_metadata(fn):
    stats = agrees(fn, sample("float32"))
    assert stats["breaks"] == 0, stats


def test_each_listed_function_has_a_test():
    tested = {*ONE, *TWO, *OTHER}
    aliases = {"abs", "radians", "degrees", "true_divide", "mod"}
    transforms = {name for name in array_functions.FUNCTIONS if name.startswith("fft.")}
    assert array_functions.FUNCTIONS - tested - transforms <= aliases


@pytest.mark.parametrize("dtype", ("float64", "complex128"))
def test_fourier_transforms_of_double_precision_are_one_graph(dtype):
    names = [name.removeprefix("fft.") for name in array_functions.FUNCTIONS if name.startswith("fft.")]
    a = np.linspace(-1, 3, 24).reshape(4, 6).astype(dtype) * (1j if dtype == "complex128" else 1)
    made = [eval(f"lambda a: np.fft.{name}(a)", {"np": np}) for name in names]
    traced = [name for name, fn in zip(names, made) if agrees(fn, a)["breaks"] == 0]
    assert len(traced) >= 12, sorted({*names} - {*traced})


def test_numpy_functions_take_tensors_where_they_give_arrays():
    in_one_graph(lambda x: np.ones_like(x, dtype=np.float64) + np.concatenate([x, x])[:2], X)
    broken = agrees(lambda x: np.sin(x * 1) + 1, X)  # a ufunc gives a tensor for a tensor
    assert broken["breaks"] == 1


def test_arrays_that_cannot_be_written_to_come_back_so():
    core.reset()
    compiled = core.compile(lambda a: (np.broadcast_to(a, (2, 2, 3)), a.imag, np.diagonal(a), a.real), backend="eager")
    given = X.numpy().copy()
    for _ in range(2):
        assert [array.flags.writeable for array in compiled(given)] == [False, False, False, True]
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def test_a_number_of_a_numpy_type_made_of_known_values_is_known():
    def fn(x):
        least = np.finfo(np.float32).min
        return x + least, x * np.float32(2), np.int64(3) + x, np.float32(1.5) * 2, type(least), least.dtype, least

    in_one_graph(fn, X)


# -- between tensors and arrays --------------------------------------------------------------------------------------


def test_from_a_tensor_through_numpy_to_a_tensor_is_one_graph():
    def fn(x):
        return torch.from_numpy(np.sin(x.cos().numpy()) * 2) + 1

    in_one_graph(fn, X)


def test_an_array_of_a_tensor_shares_its_memory():
    def fn(x):
        a = x.numpy()
        a[0] = 5
        a += 1
        y = torch.from_numpy(a)
        y.mul_(2)
        return a, x + 1

    in_one_graph(fn, X.clone())
    compiled = core.compile(lambda x: (x * 1, x.numpy()), backend="eager")
    tensor = X.clone()
    array = compiled(tensor)[1]
    array[0, 0] = 77
    assert tensor[0, 0] == 77


def test_an_array_from_outside_is_changed_in_place_and_comes_back_itself():
    def fn(x, a):
        a *= 2
        a[1:] += 1
        return a, a.T @ a

    in_one_graph(fn, X, np.ones((2, 3), np.float32))
    compiled = core.compile(fn, backend="eager")
    array = np.ones((2, 3), np.float32)
    assert compiled(X, array)[0] is array


def test_tensors_and_arrays_over_one_memory_are_told_apart_from_separate_ones():
    def fn(x, a):
        a += 1
        return x * 2

    compiled = core.compile(fn, backend="eager")
    for shared in (False, True, False):
        ours, theirs = X.clone(), X.clone()
        got = compiled(ours, ours.numpy() if shared else np.ones((2, 3), np.float32))
        want = fn(theirs, theirs.numpy() if shared else np.ones((2, 3), np.float32))
        assert torch.equal(got, want)


def test_conversions():
    def fn(x, a):
        return torch.as_tensor(a) + x, torch.tensor(a) * 2, np.asarray(x) + a, np.array(x) * a, torch.from_numpy(a[0])

    in_one_graph(fn, X, np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.astype(np.float64),
        lambda a: np.asfortranarray(a),
        lambda a: a[:, :2].copy(),
        lambda a: torch.from_numpy(a),
    ],
)
def test_another_dtype_layout_shape_or_type_is_noticed(change):
    def fn(a):
        return a * 2 + 1

    compiled = core.compile(fn, backend="eager")
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for value in (array, change(array), array):
        assert same(compiled(value), fn(value))


def test_a_second_shape_makes_sizes_symbolic():
    def fn(a):
        return (a * 2).sum(axis=0)

    compiled = core.compile(fn, backend="eager")
    for size in (3, 4, 5, 6):
        array = np.arange(2.0 * size).reshape(size, 2)
        assert same(compiled(array), fn(array))
    assert core.stats()["recompiles"] == 1


def test_numpy_under_aot_autograd_shares_memory_and_carries_gradients_around_it():
    def fn(x, w):
        a = x.numpy()
        a[0] = 5
        a += 1
        return (w * torch.from_numpy(np.sqrt(a))).sum(), a

    compiled = core.compile(fn, backend="aot_eager")
    results = []
    for call in (fn, compiled):
        x, w = X.clone(), torch.ones(2, 3, requires_grad=True)
        loss, array = call(x, w)
        loss.backward()
        array[1, 1] = 50
        results.append((x, w.grad, loss.detach()))
    assert all(torch.allclose(ours, theirs) for ours, theirs in zip(*results))
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


# -- what breaks -----------------------------------------------------------------------------------------------------


def under_autocast(x, a):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return a @ a.T, x @ x.T


def write_to_a_broadcast_array(x, a):
    wide = np.broadcast_to(a, (2, 2, 3))
    try:
        wide[0] = 1
    except ValueError as error:
        return str(error), x + 1


BROKEN = {
    "an if on an array": (lambda x, a: x * 2 if a.sum() > 1 else x, "values of a NumPy array"),
    "item": (lambda x, a: x * a.sum().item(), "needs the numbers"),
    "random numbers": (
        lambda x, a: x * 0 + torch.from_numpy(np.random.choice(a[0]) * a * 0),
        "numpy.random.choice() is not traced",
    ),
    "integer division": (lambda x, a: a.astype(np.int64) // -2, "floating-point numbers only"),
    "a function that is not listed": (lambda x, a: np.unique(a), "numpy.unique"),
    "a norm by singular values": (lambda x, a: np.linalg.norm(a, 2), "singular values"),
    "an array in a torch function": (lambda x, a: torch.mul(x, a), "a NumPy array in a call"),
    "a tensor with gradients": (lambda x, a: (x.requires_grad_().detach() * 2).numpy(), ""),
    "writing to a read-only array": (write_to_a_broadcast_array, "raises ValueError"),
    "out=": (lambda x, a: np.add(a, 1, out=a), "these arguments"),
    "autocast": (under_autocast, "under autocast"),
    "strings": (lambda x, a: np.array(["a"]), "raises NotImplementedError"),
}


@pytest.mark.parametrize(("fn", "reason"), BROKEN.values(), ids=BROKEN)
def test_everything_else_runs_in_python_for_a_reason(fn, reason):
    found = []
    from core.events import GraphBroken, subscribe

    stop = subscribe(lambda event: found.append(event) if isinstance(event, GraphBroken) else None)
    try:
        agrees(lambda x, a: fn(x, a), X, np.ones((2, 3), np.float32))
    finally:
        stop()
    assert any(reason in event.reason for event in found)
    assert all(event.remedy for event in found if reason in event.reason)


def test_readonly_reversed_and_foreign_arrays_are_left_to_python():
    def fn(x, a):
        return x + 1, a * 2

    readonly = np.ones((2, 3), np.float32)
    readonly.flags.writeable = False
    for array in (readonly, np.ones((2, 3))[::-1], np.array([1, "a"], dtype=object), np.ones(3, ">f4"), np.matrix([1])):
        stats = agrees(fn, X, array)
        assert stats["graphs"] == 1


def test_core_does_not_import_numpy_by_itself():
    code = "import sys, core; core.compile; core.list_backends(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_number_that_numpy_makes_of_known_numbers_takes_part_in_tensor_operations():
    def fn(x):
        return x / np.sqrt(x.shape[-1]), x * np.prod(x.shape), int(np.prod(x.shape)), x[np.int64(1)]

    in_one_graph(fn, X)
    assert agrees(lambda x: x + np.exp(1000.0 * x.shape[0]), X)["breaks"] == 1  # it warns


def test_a_number_of_a_numpy_type_from_outside_is_guarded_by_type_and_value():
    compiled = core.compile(lambda x, n: x * n, backend="eager")
    core.reset()
    for number in (np.float32(2), np.float32(2), np.float64(2), np.int64(3), 2.0):
        assert same(compiled(X, number), X * number)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (4, 0)


# -- whole numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8])
@pytest.mark.parametrize("divisor", [1, 3, 100])
def test_integers_are_divided_by_known_positive_ones(dtype, divisor):
    numbers = np.array([0, 1, 7, 100, 127], dtype=dtype)
    if dtype is not np.uint8:
        numbers = np.concatenate([numbers, -numbers, np.array([-128], dtype=dtype)])

    def f(array):
        return array // divisor, array % divisor, np.floor_divide(array, divisor), np.mod(array, divisor)

    in_one_graph(f, numbers)


@pytest.mark.parametrize("divisor", [0, -1, -3])
def test_integers_divided_by_zero_or_below_are_left_to_numpy(divisor):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stats = agrees(lambda array: array // divisor, np.array([-5, 0, 7]))
    assert stats["breaks"] == 1


def test_integers_divided_in_place_keep_their_memory():
    def f(array):
        array //= 3
        array %= 2
        return array

    in_one_graph(f, np.arange(-6, 6))


def test_numbers_known_while_tracing_are_computed_by_numpy():
    def f(x):
        width = np.lcm(4, 6)
        return x.repeat(int(width) // 4) + np.gcd(12, 8), x.shape[0] % width, np.sign(-3)

    in_one_graph(f, torch.ones(5))


def test_functions_of_known_numbers_break_on_arrays():
    assert agrees(lambda array: np.lcm(array, 4), np.array([3, 4]))["breaks"] == 1


def test_sizes_may_be_numbers_of_numpys_types():
    def f(x):
        rows = np.sum([1, 2])
        made = [np.zeros((rows, 2), dtype=np.int32) for _ in range(2)]
        return x + torch.tensor(np.stack(made, axis=0), dtype=torch.long, device=x.device)

    in_one_graph(f, torch.ones(2, 3, 2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool, torch.float32])
def test_a_tensor_of_another_dtype_is_a_copy_of_the_array(dtype):
    def f(array):
        made = torch.tensor(array, dtype=dtype)
        made.add_(1) if dtype is not torch.bool else made.logical_not_()
        return made, array

    in_one_graph(f, np.array([0.0, 1.0, 2.0], dtype=np.float32))


def test_a_tensor_that_wants_gradients_is_made_of_an_array_by_python():
    stats = agrees(lambda array: torch.tensor(array, requires_grad=True).detach(), np.ones(3))
    assert stats["breaks"] == 1


def test_an_array_is_made_of_numbers_and_of_arrays():
    def fn(x, y):
        return np.array([x, y]) * 2

    call = core.compile(fn, backend="eager", fullgraph=True)
    for given in (
        (np.float64(1), np.float64(2.5)),
        (np.arange(2), np.arange(2) + 2),
        (np.ones((2, 3)), np.ones((2, 3))),
    ):
        found, expected = call(*given), fn(*given)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_questions_about_dtypes_are_answered():
    def fn(x, n, array):
        whole = np.issubdtype(type(n), np.integer) + 2 * np.issubdtype(array.dtype, np.floating)
        return x + whole + (np.promote_types(array.dtype, np.float64) == np.float64)

    call = core.compile(fn, backend="eager", fullgraph=True)
    x = torch.zeros(2)
    for given in ((3, np.ones(2)), (3.5, np.ones(2, np.float32)), (3, np.ones(2, np.int64))):
        assert torch.equal(call(x, *given), fn(x, *given))


def test_a_tensor_is_made_of_numbers_out_of_an_array():
    def fn(array):
        return torch.LongTensor([array[0], array[2]]), torch.tensor([array[1], array[1]])

    call = core.compile(fn, backend="eager", fullgraph=True)
    given = np.array([3, 4, 5], dtype=np.int64)
    assert all(map(torch.equal, call(given), fn(given)))


def test_a_tensor_is_made_of_a_list_of_arrays():
    def fn(x, array):
        whole = torch.tensor([np.ones((2, 2), dtype=np.int32), np.zeros((2, 2), dtype=np.int32)])
        return torch.tensor((array, array * 2)), torch.tensor([x.numpy(), x.numpy() + 1]), whole

    given = torch.arange(3.0), np.array([3.5, 4.0])
    in_one_graph(fn, *given)
    with pytest.raises(ValueError, match="expected sequence of length 2"):
        core.compile(lambda x: torch.tensor([np.ones(2), np.ones(3)]), backend="eager")(X)


def test_a_dtype_equals_the_class_and_the_name_of_it():
    def fn(x, array):
        return x + 1, [array.dtype == other for other in (np.float64, "float64", float, np.float32, np.dtype(float), 3)]

    call = core.compile(fn, backend="eager", fullgraph=True)
    for given in (np.ones(2), np.ones(2, np.float32), np.ones(2, np.int64)):
        assert call(torch.ones(2), given)[1] == fn(torch.ones(2), given)[1]
