"""torch.autograd.Function inside captured code: both its halves are traced, or the graph breaks and eager runs it."""

from __future__ import annotations

import contextlib

import pytest
import torch
from observed import BACKENDS, agrees

import core
from core import torch_compat

Function = torch.autograd.Function
SCALE = 2.0


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad * ctx.factor, None


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_forward_and_backward_are_one_graph(backend):
    agrees(lambda: (lambda x: Scaled.apply(x, 3) + 1, (leaf(4),)), backend)


def test_apply_without_gradients(backend):
    agrees(lambda: (lambda x: Scaled.apply(x, 3) + 1, (torch.randn(4),)), backend)

    def under_no_grad(x):
        with torch.no_grad():
            y = Scaled.apply(x, 3)
        return y + x

    agrees(lambda: (under_no_grad, (leaf(4),)), backend)


def test_setup_context_and_needs_input_grad(backend):
    class Product(Function):
        @staticmethod
        def forward(x, y, factor=3.0):
            return x * y * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, y, ctx.factor = inputs
            ctx.save_for_backward(x, y)

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            grads = [
                g * other * ctx.factor if need else None
                for g, other, need in zip((grad, grad), (y, x), ctx.needs_input_grad)
            ]
            return *grads, None

    agrees(lambda: (lambda x, y: Product.apply(x, y) + Product.apply(x, y, 2.0), (leaf(4), torch.randn(4))), backend)
    # By keyword: what this torch does with it, which up to 2.11 is a TypeError that leaves no graph.
    graphs = 1 if torch_compat.function_apply_refuses_keywords() is None else None
    agrees(
        lambda: (lambda x, y: Product.apply(x, y) + Product.apply(x, y, factor=2.0), (leaf(4), torch.randn(4))),
        backend,
        graphs=graphs,
    )


def test_marks_non_differentiable_dirty_and_once_differentiable(backend):
    class Largest(Function):
        @staticmethod
        def forward(ctx, x):
            at = x.argmax()
            ctx.mark_non_differentiable(at)
            ctx.save_for_backward(at)
            return x.sin(), at

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad, grad_at):
            return grad * 3 + ctx.saved_tensors[0]

    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 5

    def fn(x):
        y, at = Largest.apply(x)
        return Doubled.apply(y * 1) + 1, at

    agrees(lambda: (fn, (leaf(4),)), backend)


def test_tensors_on_the_context_and_outputs_that_are_inputs_or_views(backend):
    class Kept(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.doubled = x * 2
            ctx.shape = x.shape
            return (x * w).sum(0)

        @staticmethod
        def backward(ctx, grad):
            return grad.expand(ctx.shape) * 1.0, grad * ctx.doubled

    class Reversed(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return -grad

    class Rows(Function):
        @staticmethod
        def forward(ctx, x):
            return x[0], x[1] * 2

        @staticmethod
        def backward(ctx, first, second):
            return torch.stack([first, second])

    agrees(lambda: (lambda x, w: Kept.apply(x, w), (leaf(2, 4), leaf(2, 4))), backend)
    agrees(lambda: (lambda x: Reversed.apply(x * 1) * 2, (leaf(3),)), backend)
    agrees(lambda: (lambda x: Rows.apply(x)[0] * 3 + Rows.apply(x)[1], (leaf(2, 3),)), backend)


def test_tensors_read_freely_get_no_gradient(backend):
    def build():
        w = torch.nn.Parameter(torch.randn(3))

        class Weighted(Function):
            @staticmethod
            def forward(ctx, x):
                return x * w

            @staticmethod
            def backward(ctx, grad):
                return grad * w

        return lambda x: Weighted.apply(x), (leaf(3),), lambda: w

    agrees(build, backend)


def test_a_function_applied_in_another_one_and_in_a_loop(backend):
    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            return x.exp()

        @staticmethod
        def backward(ctx, grad):
            return grad * 7

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            y = Inner.apply(x)
            ctx.save_for_backward(y)
            return y * 2

        @staticmethod
        def backward(ctx, grad):
            return Inner.apply(grad) * ctx.saved_tensors[0]

    def fn(x):
        for factor in range(1, 4):
            x = Scaled.apply(x, factor)
        return Outer.apply(x)

    agrees(lambda: (fn, (leaf(3),)), backend)


def test_counters_in_every_callable_equal_eagers(backend):
    def build():
        log = []

        class Counted(Function):
            @staticmethod
            def forward(x):
                log.append("forward")
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                log.append("setup")

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        return lambda x: Counted.apply(x).sin(), (leaf(4),), lambda: list(log)

    agrees(build, backend)


def test_a_backward_with_side_effects_breaks_the_graph(backend):
    def build():
        log = []

        class Logged(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                log.append("backward")
                return grad * 2

        return lambda x: Logged.apply(x).sin(), (leaf(4),), lambda: list(log)

    agrees(build, backend, graphs=2, breaks=1)


def test_a_global_read_in_backward_is_guarded():
    global SCALE

    class Global(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad * SCALE

    compiled = core.compile(lambda x: Global.apply(x), backend="eager")
    try:
        for SCALE in (2.0, 5.0):
            x = leaf(3)
            compiled(x).sum().backward()
            assert torch.equal(x.grad, torch.full((3,), SCALE))
    finally:
        SCALE = 2.0
    assert core.stats()["recompiles"] == 1


def test_tensors_that_escape_exceptions_and_wrong_counts_break_the_graph(backend):
    def escaping():
        kept = []

        class Escaping(Function):
            @staticmethod
            def forward(ctx, x):
                y = x * 2
                kept.append(y)
                return y + 1

            @staticmethod
            def backward(ctx, grad):
                return grad

        return lambda x: Escaping.apply(x), (leaf(3),), lambda: list(kept)

    def raising():
        class Raising(Function):
            @staticmethod
            def forward(ctx, x):
                raise ValueError("no")

            @staticmethod
            def backward(ctx, grad):
                return grad

        def fn(x):
            try:
                return Raising.apply(x)
            except ValueError:
                return x * 2

        return fn, (leaf(3),)

    def miscounted():
        class Miscounted(Function):
            @staticmethod
            def forward(ctx, x, y):
                return x * y

            @staticmethod
            def backward(ctx, grad):
                return grad

        def fn(x, y):
            try:
                torch.autograd.backward(Miscounted.apply(x, y).sum())
            except RuntimeError as error:
                return str(error)

        return fn, (leaf(3), leaf(3))

    agrees(escaping, backend, graphs=None, breaks=1)
    agrees(raising, backend, graphs=None, breaks=1)
    agrees(miscounted, backend, graphs=None, breaks=None)


def test_the_layout_of_an_incoming_gradient_is_not_baked_in(backend):
    class ByLayout(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2 if grad.is_contiguous() else grad * 3

    agrees(lambda: (lambda x: ByLayout.apply(x).sum(), (leaf(30),)), backend, graphs=2, breaks=1)


def test_gradients_that_are_not_materialized_break_the_graph(backend):
    class Sparse(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            return first if second is None else first + second

    agrees(lambda: (lambda x: Sparse.apply(x)[0], (leaf(3),)), backend, graphs=None, breaks=1)


def test_outputs_that_are_no_tensors_and_unused_outputs(backend):
    class Mixed(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, 7, None, x * 3

        @staticmethod
        def backward(ctx, first, seven, nothing, last):
            assert seven is None and nothing is None
            return first * 3 + last

    agrees(lambda: (lambda x: Mixed.apply(x)[:3], (leaf(3),)), backend)


def test_functions_under_autocast(backend):
    class MatMul(Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad @ w.t(), x.t() @ grad

    def fn(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return MatMul.apply(x, w).float()

    agrees(lambda: (fn, (leaf(3, 3), leaf(3, 3))), backend)


def test_random_numbers_in_forward(backend):
    class Dropped(Function):
        @staticmethod
        def forward(ctx, x):
            mask = (torch.rand_like(x) > 0.5).float()
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    agrees(lambda: (lambda x: Dropped.apply(x), (leaf(30),)), backend)


def test_double_backward_through_a_traced_function():
    x = leaf(3)
    results = []
    for fn in (lambda t: Scaled.apply(t, 2), core.compile(lambda t: Scaled.apply(t, 2), backend="eager")):
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        results.append((first, second))
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_autograd_shows_the_users_name():
    compiled = core.compile(lambda x: Scaled.apply(x, 3), backend="eager")
    assert compiled(leaf(2)).grad_fn.name() == "ScaledBackward"


class Keeping(torch.autograd.Function):
    """Leaves what it made in a list that it is handed."""

    @staticmethod
    def forward(ctx, x, kept):
        y = x * 2
        kept.append(y)
        ctx.save_for_backward(y)
        ctx.kept = kept
        return y + 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None


def test_a_function_that_keeps_nothing_for_a_backward_is_a_call_like_any_other():
    def fn(x):
        kept = []
        y = Keeping.apply(x, kept)
        return y, kept[0], torch.is_grad_enabled()

    for x in (torch.randn(3), leaf(3)):
        with torch.no_grad() if x.requires_grad else contextlib.nullcontext():
            core.reset()
            got, want = core.compile(fn, backend="aot_eager", fullgraph=True)(x), fn(x)
        assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1]) and got[2] is want[2]
        assert not got[0].requires_grad and core.stats()["graphs"] == 1


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, in_place):
        if in_place:
            ctx.mark_dirty(x)
            x.mul_(2)
        return x, torch.is_grad_enabled(), ctx.needs_input_grad

    @staticmethod
    def backward(ctx, gradient, *rest):
        return gradient, None


@pytest.mark.parametrize("in_place", [False, True])
def test_an_argument_that_a_function_returns_is_a_view_of_it_or_itself_when_written_to(in_place):
    def fn(x):
        y, enabled, needs = Same.apply(x, in_place)
        return y, y is x, enabled, needs, torch.is_grad_enabled()

    x, other = torch.ones(3), torch.ones(3)
    got, want = core.compile(fn, backend="eager", fullgraph=True)(x), fn(other)
    assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    assert got[0]._is_view() is want[0]._is_view() and got[0].data_ptr() == x.data_ptr()


def test_an_error_in_a_forward_without_history_leaves_the_grad_mode_as_it_was():
    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            raise ValueError("no")

    def fn(x):
        try:
            return Refusing.apply(x)
        except ValueError:
            return x + 1, torch.is_grad_enabled()

    got = core.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    assert torch.equal(got[0], torch.ones(2) + 1) and got[1] and core.stats()["breaks"] == 0


def test_a_backward_that_is_compiled_by_itself_reads_what_its_forward_saved():
    graphs = []

    def backend(graph_module, inputs):
        graphs.append(graph_module)
        return graph_module.forward

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            doubled = a + a
            ctx.save_for_backward(doubled, b)
            ctx.factor = 3
            return doubled * b

        @staticmethod
        @core.compile(backend=backend, fullgraph=True)
        def backward(ctx, gradient):
            doubled, b = ctx.saved_tensors
            first = gradient * doubled.sin() * ctx.factor if ctx.needs_input_grad[0] else None
            return first, gradient * b if ctx.needs_input_grad[1] else None

    for second_takes_gradients in (False, False, True):
        a, b = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=second_takes_gradients)
        Function.apply(a, b).sum().backward()
        assert torch.allclose(a.grad, (a.detach() * 2).sin() * 3)
        assert torch.equal(b.grad, b.detach()) if second_takes_gradients else b.grad is None
    assert len(graphs) == 2


def test_a_forward_that_goes_on_behind_a_break_leaves_its_tensors_on_the_real_context():
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            doubled = a * 2
            print(end="")
            ctx.save_for_backward(doubled.sin(), a)
            ctx.factor = 3
            ctx.mark_non_differentiable(doubled)
            return doubled.exp(), doubled

        @staticmethod
        def backward(ctx, gradient, _):
            sine, a = ctx.saved_tensors
            return gradient * sine * ctx.factor * a

    def fn(x):
        first, second = Function.apply(x * 1.5)
        return first + second, second.requires_grad

    core.reset()
    gradients = []
    for run in (fn, core.compile(fn, backend="eager"), fn):
        x = torch.linspace(0, 1, 4).requires_grad_()
        result, differentiable = run(x)
        result.sum().backward()
        gradients.append((result, x.grad, differentiable))
    assert repr(gradients[0]) == repr(gradients[1])
    stats = core.stats()
    assert (stats["breaks"], stats["skipped"]) == (2, 0), stats
