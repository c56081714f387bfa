"""What programs written for torch.compile do, through core under another name: each usage works or says why not."""

import io
import os

import numpy as np
import pytest
import torch
from torch import nn

import core as tc
import core.errors

X = torch.arange(12.0).reshape(4, 3) / 7 - 0.5
USAGES = []


def usage(fn):
    USAGES.append(fn)
    return fn


@usage
def decorator():
    @tc.compile
    def f(a, b):
        return torch.sin(a) + torch.cos(b)

    assert torch.allclose(f(X, X), X.sin() + X.cos())


@usage
def decorator_with_options():
    @tc.compile(fullgraph=True, dynamic=True)
    def f(a):
        return a.relu()

    f(X)
    f(torch.randn(9, 3))
    assert tc.stats()["recompiles"] == 0


@usage
def method_of_class():
    class M:
        def __init__(s):
            s.k = 2

        @tc.compile
        def f(s, a):
            return a * s.k

    assert torch.equal(M().f(X), X * 2)


@usage
def method_that_is_decorated_already():
    class M:
        @tc.compile
        @staticmethod
        def s(a):
            return a + 1

        @tc.compile
        @classmethod
        def c(cls, a):
            return a + len(cls.__name__)

    for m in (M, M()):
        assert torch.equal(m.s(X), X + 1) and torch.equal(m.c(X), X + 1)
    assert tc.stats()["graphs"] == 2


@usage
def module_wrapped():
    m = nn.Linear(3, 3)
    c = tc.compile(m)
    assert torch.equal(c(X), m(X))
    assert list(c.state_dict()) == list(m.state_dict())


@usage
def module_in_place():
    m = nn.Linear(3, 3)
    w = m(X)
    tc.compile_module_(m)
    assert torch.equal(m(X), w)


@usage
def modes():
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        f = tc.compile(lambda a: a + 1, backend="inductor", mode=mode)
        assert torch.equal(f(X), X + 1)


@usage
def options_of_inductor():
    try:
        tc.compile(lambda a: a + 1, backend="inductor", options={"epilogue_fusion": True, "max_autotune": False})(X)
    except tc.errors.InvalidOption:
        pass


@usage
def custom_backend():
    seen = []

    def be(gm, inputs):
        seen.append(len(gm.graph.nodes))
        return gm.forward

    tc.compile(lambda a: a.sin().cos(), backend=be)(X)
    assert seen


@usage
def backend_prints_graph():
    def be(gm, inputs):
        gm.print_readable(print_output=False)
        return gm

    tc.compile(lambda a: a + 1, backend=be)(X)


@usage
def disable_a_callee():
    @tc.disable
    def g(a):
        return a * 2

    f = tc.compile(lambda a: g(a + 1) + 1)
    assert torch.equal(f(X), (X + 1) * 2 + 1)
    assert tc.stats()["breaks"] >= 1


@usage
def disable_nonrecursive():
    @tc.disable(recursive=False, reason="why")
    def g(a):
        return a * 2

    tc.compile(lambda a: g(a + 1) + 1)(X)


@usage
def disable_context_of_torch():
    @torch.compiler.disable
    def g(a):
        return a * 2

    tc.compile(lambda a: g(a + 1) + 1)(X)


@usage
def allow_in_graph():
    def g(a):
        return a * 2

    tc.allow_in_graph(g)
    assert torch.equal(tc.compile(lambda a: g(a) + 1, fullgraph=True)(X), X * 2 + 1)


@usage
def assume_constant():
    @tc.assume_constant_result
    def g():
        return int(os.environ.get("NOPE", "3"))

    assert torch.equal(tc.compile(lambda a: a + g(), fullgraph=True)(X), X + 3)


@usage
def substitute():
    def orig(a, b):
        return a.foo(b)

    @tc.substitute_in_graph(orig)
    def poly(a, b):
        return a + b

    try:
        assert torch.equal(tc.compile(lambda a: orig(a, a), fullgraph=True)(X), X + X)
    except TypeError:
        pass


@usage
def is_compiling():
    def f(a):
        return a + 1 if tc.is_compiling() and torch.compiler.is_compiling() else a - 1

    assert torch.equal(tc.compile(f)(X), X + 1) and torch.equal(f(X), X - 1)


@usage
def reset():
    f = tc.compile(lambda a: a + 1)
    f(X)
    tc.reset()
    assert tc.stats()["graphs"] == 0
    f(X)
    assert tc.stats()["graphs"] == 1


@usage
def stance_eager():
    f = tc.compile(lambda a: a + 1)
    with tc.set_stance("force_eager"):
        f(X)
    assert tc.stats()["graphs"] == 0
    f(X)
    assert tc.stats()["graphs"] == 1


@usage
def stance_fail():
    f = tc.compile(lambda a: a + 1, dynamic=False)
    f(X)
    with tc.set_stance("fail_on_recompile"):
        try:
            f(torch.randn(7))
            pytest.fail("nothing was raised")
        except RuntimeError:
            pass


@usage
def stance_eager_then_compile():
    f = tc.compile(lambda a: a + 1)
    with tc.set_stance("eager_then_compile"):
        f(X)
        f(torch.randn(5, 3))


@usage
def stance_eager_on_recompile_decorator():
    f = tc.compile(lambda a: a + 1, dynamic=False)
    f(X)

    @tc.set_stance("eager_on_recompile")
    def run():
        return f(torch.randn(9))

    run()
    assert tc.stats()["graphs"] == 1


@usage
def stance_skip_guards():
    f = tc.compile(lambda a: a + 1)
    f(X)
    with tc.set_stance("default", skip_guard_eval_unsafe=True):
        f(X)


@usage
def list_of_backends():
    assert "inductor" in tc.list_backends()


@usage
def mark_dynamic():
    a = torch.randn(5, 3)
    tc.mark_dynamic(a, 0, min=2, max=64)
    f = tc.compile(lambda a: a * 2, fullgraph=True)
    f(a)
    f(torch.randn(8, 3))
    assert tc.stats()["recompiles"] == 0


@usage
def mark_dynamic_violated():
    a = torch.randn(5, 3)
    tc.mark_dynamic(a, 0)
    try:
        tc.compile(lambda a: a + torch.ones(5, 3))(a)
        pytest.fail("nothing was raised")
    except tc.errors.CoreError:
        pass


@usage
def mark_static():
    a = torch.randn(5, 3)
    tc.mark_static(a, 0)
    f = tc.compile(lambda a: a * 2, dynamic=True)
    f(a)


@usage
def maybe_mark():
    a = torch.randn(5, 3)
    tc.maybe_mark_dynamic(a, 0)
    tc.compile(lambda a: a * 2)(a)


@usage
def mark_unbacked():
    a = torch.randn(5, 3)
    tc.mark_unbacked(a, 0)
    tc.compile(lambda a: a * 2, fullgraph=True)(a)


@usage
def dynamo_mark_names():
    a = torch.randn(5, 3)
    torch._dynamo.mark_dynamic(a, 0)
    f = tc.compile(lambda a: a * 2)
    f(a)
    f(torch.randn(6, 3))
    assert tc.stats()["recompiles"] == 0


@usage
def guard_filter():
    f = tc.compile(lambda a: a + 1, options={"guard_filter_fn": tc.skip_guard_on_all_nn_modules_unsafe})
    f(X)


@usage
def guard_filters_all():
    for n in (
        "skip_guard_on_inbuilt_nn_modules_unsafe",
        "keep_tensor_guards_unsafe",
        "skip_guard_on_globals_unsafe",
        "skip_all_guards_unsafe",
    ):
        tc.compile(lambda a: a + 1, options={"guard_filter_fn": getattr(tc, n)})(X)


@usage
def nested_region():
    @tc.nested_compile_region
    def g(a):
        return a.sin()

    tc.compile(lambda a: g(g(a)), fullgraph=True)(X)


@usage
def cudagraph_step():
    tc.cudagraph_mark_step_begin()
    tc.compile(lambda a: a + 1)(X)


@usage
def training():
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    o = torch.optim.Adam(m.parameters())

    @tc.compile
    def step(a):
        o.zero_grad()
        l = m(a).square().mean()
        l.backward()
        o.step()
        return l

    a = step(X)
    b = step(X)
    assert b < a


@usage
def compiled_optimizer_step():
    p = nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    o = torch.optim.SGD([p], lr=0.1)
    f = tc.compile(lambda: o.step(), fullgraph=False)
    f()
    assert torch.allclose(p, torch.full((3,), 0.9))


@usage
def explain():
    e = tc.explain(lambda a: (print("hi"), a + 1)[1])(X)
    str(e)
    assert e.graph_count >= 1


@usage
def export_like():
    g = tc.capture(lambda a: a.sin() + 1, X)
    str(g)


@usage
def numpy_code():
    def f(a, b):
        return np.sum(a[:, :, None] * b[:, None, :], axis=(-2, -1))

    r = tc.compile(f)(np.ones((2, 3)), np.ones((2, 3)))
    assert isinstance(r, np.ndarray)


@usage
def wrap_numpy():
    f = tc.wrap_numpy(lambda a: np.sin(a))
    f(X)


@usage
def vmap_grad():
    f = tc.compile(lambda a: torch.vmap(torch.func.grad(lambda r: (r**2).sum()))(a), fullgraph=True)
    assert torch.allclose(f(X), 2 * X)


@usage
def cond():
    f = tc.compile(lambda a: torch.cond(a.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (a,)), fullgraph=True)
    f(X)


@usage
def cache_artifacts():
    f = tc.compile(lambda a: a + 1, backend="inductor")
    f(X)
    r = tc.save_cache_artifacts()
    r and tc.load_cache_artifacts(r[0])


@usage
def fullgraph_error():
    try:
        tc.compile(lambda a: (print(1), a + 1)[1] if False else a.item(), fullgraph=True, capture_scalar_outputs=False)(
            X[0, 0]
        )
        pytest.fail("nothing was raised")
    except tc.Unsupported as e:
        assert "remedy" in str(e)


@usage
def name_and_limit():
    tc.compile(lambda a: a + 1, name="mine", recompile_limit=2, isolate_recompiles=True)(X)


@usage
def is_exporting():
    assert tc.is_exporting() is False


@usage
def config_patch():
    with tc.config.patch(recompile_limit=3):
        tc.compile(lambda a: a + 1)(X)


@usage
def save_and_load_model():
    m = tc.compile(nn.Linear(3, 3))
    b = io.BytesIO()
    torch.save(m.state_dict(), b)
    b.seek(0)
    nn.Linear(3, 3).load_state_dict(torch.load(b))


@usage
def set_enable_guard_collectives():
    tc.set_enable_guard_collectives(False)


@usage
def load_compiled_function_exists():
    assert callable(tc.load_compiled_function)


@pytest.mark.parametrize("program", USAGES, ids=lambda program: program.__name__)
def test_a_usage_of_torch_compile_works_here(program, monkeypatch):
    monkeypatch.setenv("CORE_BACKEND", "eager")
    torch.manual_seed(0)
    program()
