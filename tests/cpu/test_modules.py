"""What core.compile(module) returns: another view of the same module. Everything done to one is seen by the other."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import pickle
import weakref

import pytest
import torch
from compare import same
from torch import nn

import core

X = torch.arange(12.0).reshape(4, 3) / 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.norm = nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(5, 2)
        self.scale = 1.0
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x))))) * self.scale + self.shift

    def generate(self, x, steps):
        outputs = []
        for _ in range(steps):
            y = self(x)
            outputs.append(y)
            x = x + y.sum()
        return outputs


def pair(**options):
    """A module and its compiled view."""
    torch.manual_seed(0)
    module = Net().eval()
    return module, core.compile(module, backend="eager", **options)


def alike(compiled, module, *args):
    got, want = compiled(*args), module(*args)
    assert same(got, want), (got, want)


def frames():
    return core.stats()["frames"]


def test_it_is_the_module_to_isinstance_names_and_state():
    module, compiled = pair(fullgraph=True)
    alike(compiled, module, X)
    assert isinstance(compiled, Net)
    assert type(compiled).__name__ == "Net"
    assert compiled.__class__ is Net
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert [name for name, _ in compiled.named_parameters()] == [name for name, _ in module.named_parameters()]
    assert compiled.first is module.first
    assert repr(compiled) == repr(module)
    assert list(compiled.children()) == list(module.children())
    assert next(compiled.modules()) is compiled
    assert inspect.signature(compiled.forward) == inspect.signature(module.forward)
    assert (core.stats()["graphs"], frames()) == (1, 1)


def test_the_original_stays_uncompiled():
    module, _ = pair()
    module(X)
    assert frames() == 0


def test_train_and_eval_reach_both():
    module, compiled = pair()
    alike(compiled, module, X)
    compiled.train()
    assert module.training
    assert module.norm.training
    twin = copy.deepcopy(module)
    torch.manual_seed(1)
    got = compiled(X)
    torch.manual_seed(1)
    assert torch.equal(got, twin(X))
    assert torch.equal(module.norm.running_mean, twin.norm.running_mean)
    assert module.norm.num_batches_tracked == twin.norm.num_batches_tracked
    compiled.eval()
    alike(compiled, module, X)
    assert frames() == 2


def test_hooks_added_and_removed_later_run():
    module, compiled = pair()
    alike(compiled, module, X)
    handle = module.first.register_forward_hook(lambda mod, args, out: out * 2)
    alike(compiled, module, X)
    other = compiled.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    alike(compiled, module, X)
    handle.remove()
    alike(compiled, module, X)
    other.remove()
    alike(compiled, module, X)
    log = []
    module.register_forward_hook(lambda mod, args, kw, out: log.append(sorted(kw)) or out + 1, with_kwargs=True)
    assert same(compiled(x=X), module(x=X))
    assert log == [["x"], ["x"]]


def test_global_module_hooks_run():
    module, compiled = pair()
    alike(compiled, module, X)
    handle = nn.modules.module.register_module_forward_hook(
        lambda mod, args, out: out + 1 if isinstance(mod, nn.Linear) else None
    )
    try:
        alike(compiled, module, X)
    finally:
        handle.remove()
    alike(compiled, module, X)


def test_backward_hooks_run_as_often_as_in_eager():
    module, compiled = pair()
    alike(compiled, module, X)
    log = []
    module.first.register_full_backward_hook(lambda mod, grads_in, grads_out: log.append(len(grads_out)))
    for call in (compiled, module):
        call(X.clone().requires_grad_()).sum().backward()
    assert log == [1, 1]


def test_deepcopy_and_copy_give_compiled_modules():
    module, compiled = pair()
    alike(compiled, module, X)
    deep = copy.deepcopy(compiled)
    assert isinstance(deep, Net)
    assert deep.first is not compiled.first
    with torch.no_grad():
        deep.first.weight.zero_()
    alike(compiled, module, X)
    count = frames()
    plain = copy.deepcopy(module)
    plain.load_state_dict(deep.state_dict())
    alike(deep, plain, X)
    assert frames() > count
    alike(copy.copy(compiled), module, X)


def test_pickle_and_torch_save_hold_the_original():
    module, compiled = pair()
    alike(compiled, module, X)
    loaded = pickle.loads(pickle.dumps(compiled))
    assert type(loaded) is Net
    alike(loaded, module, X)
    buffer = io.BytesIO()
    torch.save(compiled, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert type(loaded) is Net
    alike(loaded, module, X)


def test_dtype_conversions():
    module, compiled = pair()
    alike(compiled, module, X)
    compiled.double()
    alike(compiled, module, X.double())
    compiled.bfloat16()
    alike(compiled, module, X.bfloat16())
    module.half()
    assert compiled.first.weight.dtype == torch.float16
    compiled.float()
    alike(compiled, module, X)


def test_load_state_dict_copies_or_assigns():
    module, compiled = pair()
    alike(compiled, module, X)
    compiled.load_state_dict(Net().state_dict())
    alike(compiled, module, X)
    assert frames() == 1
    module.load_state_dict(Net().state_dict(), assign=True)
    alike(compiled, module, X)
    module.load_state_dict(Net().state_dict(), assign=True)
    alike(compiled, module, X)
    assert frames() == 2


def test_every_way_of_changing_a_weight_is_seen():
    module, compiled = pair()
    alike(compiled, module, X)

    def assign_data():
        module.first.weight.data = torch.randn(5, 3)

    def copy_data():
        module.first.weight.data.copy_(torch.ones(5, 3))

    def replace():
        module.first.weight = nn.Parameter(torch.randn(5, 3))

    def freeze():
        module.first.weight.requires_grad_(False)

    def add():
        with torch.no_grad():
            module.first.weight.add_(1)

    def write_through_numpy():
        module.first.weight.detach().numpy()[:] = 3

    def drop_bias():
        module.first.bias = None

    def replace_layer():
        module.first = nn.Linear(3, 5, bias=False)

    def replace_by_identity():
        module.first, module.norm, module.last = nn.Identity(), nn.Identity(), nn.Linear(3, 2)

    def buffer_to_number():
        del module.shift
        module.shift = 3.0

    for change in (
        assign_data,
        copy_data,
        replace,
        freeze,
        add,
        write_through_numpy,
        drop_bias,
        replace_layer,
        replace_by_identity,
        buffer_to_number,
    ):
        change()
        alike(compiled, module, X)
        count = frames()
        alike(compiled, module, X)
        assert frames() == count, change.__name__


def test_attribute_writes_and_an_instance_forward():
    module, compiled = pair()
    alike(compiled, module, X)
    compiled.scale = 3.0
    assert module.scale == 3.0
    alike(compiled, module, X)
    module.extra = 1
    assert compiled.extra == 1
    del compiled.extra
    assert not hasattr(module, "extra")
    compiled.forward = lambda x: x * 7
    alike(compiled, module, X)
    del compiled.forward
    alike(compiled, module, X)


def test_methods_that_call_self_run_compiled():
    module, compiled = pair()
    with torch.no_grad():
        assert same(compiled.generate(X, 3), module.generate(X, 3))
    assert (core.stats()["graphs"], frames()) == (1, 1)


def test_a_module_that_stores_tensors_in_forward():
    class Stateful(Net):
        def forward(self, x):
            self.seen = super().forward(x)
            self.shift = self.shift + 1
            return self.seen * 2

    torch.manual_seed(0)
    module = Stateful().eval()
    twin = copy.deepcopy(module)
    compiled = core.compile(module, backend="eager")
    for _ in range(4):
        assert same(compiled(X), twin(X))
        assert same(module.seen, twin.seen)
        assert same(module.shift, twin.shift)
    assert frames() <= 2


def test_training_steps_match_eager():
    module, compiled = pair()
    module.drop.p = 0.0
    module.train()
    twin = copy.deepcopy(module)
    ours = torch.optim.SGD(compiled.parameters(), 0.1, momentum=0.9)
    theirs = torch.optim.SGD(twin.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        for model, optimizer in ((compiled, ours), (twin, theirs)):
            optimizer.zero_grad()
            model(X).pow(2).sum().backward()
            optimizer.step()
        assert all(torch.allclose(a, b) for a, b in zip(module.parameters(), twin.parameters()))
    assert frames() == 1


def test_a_compiled_submodule_keeps_the_keys_and_works_inside():
    module, _ = pair()
    keys = list(module.state_dict())
    module.first = core.compile(module.first, backend="eager")
    assert list(module.state_dict()) == keys
    alike(module, copy.deepcopy(module), X)
    assert core.stats()["graphs"] >= 1
    alike(core.compile(module, backend="eager"), module, X)


def test_a_method_and_a_decorated_forward():
    module, _ = pair()
    assert same(core.compile(module.forward, backend="eager")(X), module(X))
    want = module(X)
    module.forward = core.compile(module.forward, backend="eager")
    assert same(module(X), want)

    class Decorated(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        @core.compile(backend="eager")
        def forward(self, x):
            return self.layer(x) + 1

    one, two = Decorated(), Decorated()
    assert same(one(X), one.layer(X) + 1)
    assert same(two(X), two.layer(X) + 1)
    assert same(copy.deepcopy(one)(X), one(X))


def test_containers_that_grow_and_shrink():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
            self.named = nn.ModuleDict({"a": nn.Linear(3, 3)})
            self.chain = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
            self.weights = nn.ParameterList([torch.ones(3), torch.ones(3)])

        def forward(self, x):
            for index, layer in enumerate(self.items):
                x = layer(x) * (index + 1)
            for layer in self.named.values():
                x = layer(x)
            return self.chain(x) + self.weights[0] + self.weights[1] + len(self.items)

    holder = Holder()
    compiled = core.compile(holder, backend="eager")
    changes = (
        lambda: None,
        lambda: holder.items.append(nn.Linear(3, 3)),
        lambda: holder.items.__setitem__(1, nn.Identity()),
        lambda: holder.named.__setitem__("b", nn.Linear(3, 3)),
        lambda: holder.chain.append(nn.Tanh()),
        lambda: holder.items.__delitem__(0),
    )
    for change in changes:
        change()
        alike(compiled, holder, X)
    assert frames() <= len(changes)


def test_shared_parameters_become_separate_and_shared_again():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(self.one(x))

    module = Tied()
    compiled = core.compile(module, backend="eager")
    alike(compiled, module, X)
    module.two.weight = nn.Parameter(torch.randn(3, 3))
    alike(compiled, module, X)
    module.one.weight = module.two.weight
    alike(compiled, module, X)


def test_modules_with_their_own_call_and_getattr():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

        def __call__(self, x):
            return super().__call__(x) + 1

        def forward(self, x):
            return self.inner(x) * self.scale

    module = Wrapper(Net().eval())
    compiled = core.compile(module, backend="eager")
    alike(compiled, module, X)
    module.inner.scale = 4.0
    alike(compiled, module, X)
    assert compiled.scale == 4.0


def test_lazy_and_parametrized_modules():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LazyLinear(4)

        def forward(self, x):
            return self.layer(x)

    lazy = Lazy()
    compiled = core.compile(lazy, backend="eager")
    assert same(compiled(X), lazy(X))
    alike(compiled, lazy, X)

    module, _ = pair()
    nn.utils.parametrizations.weight_norm(module.first)
    compiled = core.compile(module, backend="eager")
    alike(compiled, module, X)
    with torch.no_grad():
        module.first.parametrizations.weight.original0.mul_(2)
    alike(compiled, module, X)


def test_wrong_arguments_raise_what_the_module_raises():
    module, compiled = pair()
    with pytest.raises(TypeError) as ours:
        compiled()
    with pytest.raises(TypeError) as theirs:
        module()
    assert str(ours.value) == str(theirs.value)


def test_a_buffer_that_was_none_and_becomes_a_tensor():
    class Optional(Net):
        def forward(self, x):
            return super().forward(x) if self.offset is None else super().forward(x) + self.offset

    module = Optional().eval()
    module.register_buffer("offset", None)
    compiled = core.compile(module, backend="eager")
    alike(compiled, module, X)
    module.offset = torch.ones(2)
    alike(compiled, module, X)
    assert "offset" in compiled.state_dict()


def test_dropping_both_frees_the_module_and_the_view_alone_keeps_working():
    module, compiled = pair()
    alike(compiled, module, X)
    want = module(X)
    del module
    gc.collect()
    assert same(compiled(X), want)
    gone = weakref.ref(compiled.first)
    del compiled
    gc.collect()
    assert gone() is None


def test_apply_to_and_requires_grad_return_and_reach_the_state():
    module, compiled = pair()
    alike(compiled, module, X)
    compiled.apply(lambda mod: None)
    assert same(compiled.to("cpu")(X), module(X))
    compiled.requires_grad_(False)
    assert not any(p.requires_grad for p in module.parameters())
    alike(compiled, module, X)


def test_the_module_that_runs_compiled_is_the_very_module_that_was_given():
    class Registered(torch.nn.Module):
        def forward(self, x, known):
            return x * 2 if id(self) == known else x * 3

    module, x = Registered(), torch.ones(2)
    compiled = core.compile(module, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, id(module)), x * 2)
    other = Registered()
    assert torch.equal(core.compile(other, backend="eager", fullgraph=True)(x, id(module)), x * 3)
