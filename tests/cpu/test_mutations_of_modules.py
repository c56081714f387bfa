"""Modules changed between calls: their hooks, forwards, classes, parameters, buffers and the dicts that hold them."""

from __future__ import annotations

import types

import pytest
import torch
import torch.nn.utils.prune
from mutations import check_mutation, wishes
from torch import nn

X = torch.arange(6.0).reshape(2, 3) - 2


class Net(nn.Module):
    """A layer, an activation, a buffer and a number; made anew as a class of its own by `net()`."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.act = nn.ReLU()
        self.register_buffer("offset", torch.ones(3))
        self.scale = 2.0

    def forward(self, x):
        return self.act(self.inner(x)) * self.scale + self.offset


def net():
    torch.manual_seed(3)
    return type("OwnNet", (Net,), {})()


def args():
    return (X.clone(),)


def through(module):
    """A program that calls the module."""

    def program(x):
        return module(x) + 1

    return program


def gradients(module):
    """A program with a backward inside, so that backward hooks show."""

    def program(x):
        x = x.detach().requires_grad_()
        module(x).sum().backward()
        return x.grad

    return program


def changed(change):
    """A mutation: the program that calls a net, and `change(net)`."""

    def mutation(later):
        module = net()
        return through(module), args, lambda: change(module)

    mutation.__name__ = change.__name__
    return mutation


def forward_replaced_on_the_instance(module):
    module.forward = lambda x: x * 3


def forward_replaced_on_the_instance_of_a_submodule(module):
    module.inner.forward = lambda x: x * 3


def forward_replaced_on_the_class(module):
    type(module).forward = lambda self, x: x * self.scale


def call_replaced_on_the_class(module):
    type(module).__call__ = lambda self, x: x - self.scale


def class_swapped(module):
    module.__class__ = type("Other", (type(module),), {"forward": lambda self, x: self.inner(x) - 5})


def class_of_a_submodule_swapped(module):
    module.act.__class__ = nn.Sigmoid


def class_of_a_submodule_in_the_dict_swapped(module):
    module._modules["act"].__class__ = nn.Tanh


def forward_of_a_base_class_replaced(module):
    type(module).__bases__ = (type("Between", (Net,), {"forward": lambda self, x: x * 11}),)


def code_of_forward_replaced(module):
    def forward(self, x):
        return Net.forward(self, x)

    type(module).forward = forward
    forward.__code__ = (lambda self, x: x * 4).__code__


def submodule_replaced(module):
    module.act = nn.Sigmoid()


def submodule_replaced_in_the_dict(module):
    module._modules["act"] = nn.Sigmoid()


def dict_of_submodules_replaced(module):
    module._modules = {"inner": module.inner, "act": nn.Sigmoid()}


def submodule_hidden_by_the_instance_dict(module):
    module.__dict__["act"] = nn.Sigmoid()


def submodule_set_to_none(module):
    module.act = None


def submodule_deleted(module):
    del module.act


def submodule_hidden_by_the_class(module):
    type(module).act = property(lambda self: nn.Sigmoid())


def parameter_replaced(module):
    module.inner.weight = nn.Parameter(torch.ones(3, 3))


def parameter_replaced_in_the_dict(module):
    module.inner._parameters["weight"] = nn.Parameter(torch.ones(3, 3))


def dict_of_parameters_replaced(module):
    module.inner._parameters = {"weight": nn.Parameter(torch.ones(3, 3)), "bias": None}


def parameter_set_to_none(module):
    module.inner.bias = None


def parameter_becomes_a_plain_tensor(module):
    del module.inner.weight
    module.inner.weight = torch.ones(3, 3)


def parameter_hidden_by_the_instance_dict(module):
    module.inner.__dict__["weight"] = torch.ones(3, 3)


def parameter_of_another_shape(module):
    module.inner.weight = nn.Parameter(torch.ones(1, 3))
    module.inner.bias = None


def parameter_shared_with_another(module):
    module.inner.bias = nn.Parameter(module.inner.weight.detach()[0])


def data_of_a_parameter_swapped(module):
    module.inner.weight.data = torch.ones(3, 3)


def data_of_a_parameter_of_another_dtype(module):
    module.inner.weight.data = module.inner.weight.data.double()


def data_of_a_parameter_of_another_shape(module):
    module.inner.weight.data = torch.ones(1, 3)


def strides_of_a_parameter_changed(module):
    module.inner.weight.data = module.inner.weight.data.t()


def parameter_frozen(module):
    module.requires_grad_(False)


def buffer_replaced(module):
    module.offset = torch.full((3,), 5.0)


def buffer_replaced_in_the_dict(module):
    module._buffers["offset"] = torch.full((3,), 5.0)


def dict_of_buffers_replaced(module):
    module._buffers = {"offset": torch.full((2, 1), 5.0)}


def buffer_set_to_none(module):
    module.offset = None


def buffer_hidden_by_the_instance_dict(module):
    module.__dict__["offset"] = 3.0


def buffer_of_another_dtype(module):
    module.offset = torch.full((3,), 2, dtype=torch.int64)


def number_changed(module):
    module.scale = 3.0


def number_becomes_a_tensor(module):
    module.scale = torch.tensor(3.0)


def number_becomes_a_parameter(module):
    del module.scale
    module.scale = nn.Parameter(torch.tensor(3.0))


def number_hidden_by_a_property(module):
    type(module).scale = property(lambda self: 7.0)


def number_deleted(module):
    del module.scale


def getattr_of_the_class_replaced(module):
    def __getattr__(self, name):
        return torch.full((3,), 9.0) if name == "offset" else nn.Module.__getattr__(self, name)

    type(module).__getattr__ = __getattr__


def getattribute_of_the_class_replaced(module):
    def __getattribute__(self, name):
        return 9.0 if name == "scale" else object.__getattribute__(self, name)

    type(module).__getattribute__ = __getattribute__


def forward_hook_added(module):
    module.inner.register_forward_hook(lambda m, i, o: o * 2)


def forward_hook_with_keywords_added(module):
    module.register_forward_hook(lambda m, i, k, o: o * 2, with_kwargs=True)


def forward_hook_that_is_always_called_added(module):
    module.act.register_forward_hook(lambda m, i, o: o * 2, always_call=True)


def forward_pre_hook_added(module):
    module.register_forward_pre_hook(lambda m, i: (i[0] * 2,))


def forward_pre_hook_with_keywords_added(module):
    module.register_forward_pre_hook(lambda m, i, k: ((i[0] * 3,), k), with_kwargs=True)


def hook_put_into_the_dict(module):
    module._forward_hooks[10**6] = lambda m, i, o: o - 8


def dict_of_hooks_replaced(module):
    module.act._forward_pre_hooks = {1: lambda m, i: (i[0] * 2,)}


def weight_norm_added(module):
    nn.utils.parametrizations.weight_norm(module.inner)
    module.inner.parametrizations.weight.original0.data.fill_(2.0)


def parametrization_added(module):
    nn.utils.parametrize.register_parametrization(module.inner, "weight", Halved())


class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2


def pruned(module):
    nn.utils.prune.custom_from_mask(module.inner, "weight", torch.eye(3))


def moved_to_double(module):
    module.double()


def weights_loaded(module):
    module.load_state_dict({name: torch.ones_like(value) for name, value in module.state_dict().items()})


def weights_assigned(module):
    state = {name: torch.ones(2, 3) if "weight" in name else torch.ones(1) for name in module.state_dict()}
    module.inner.weight = nn.Parameter(torch.zeros(2, 3))
    module.inner.bias = nn.Parameter(torch.zeros(1))
    module.offset = torch.zeros(1)
    module.load_state_dict({name: torch.ones_like(value) for name, value in state.items()} | {"offset": torch.ones(1)})
    module.inner.weight = nn.Parameter(torch.ones(1, 3))


def forward_bound_from_another_instance(module):
    other = net()
    other.scale = 100.0
    module.forward = types.MethodType(type(other).forward, other)


CHANGES = [
    value
    for value in list(globals().values())
    if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:1] == ("module",)
]
CHANGES = [change for change in CHANGES if change not in (through, gradients)]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_net_that_is_changed_is_followed(change):
    check_mutation(wishes(matters=change is not parameter_frozen)(changed(change)))


def hooks_removed(later):
    module = net()
    handles = [
        module.inner.register_forward_hook(lambda m, i, o: o * 2),
        module.register_forward_pre_hook(lambda m, i: (i[0] + 1,)),
        module.act.register_forward_hook(lambda m, a, k, o: o + 1, with_kwargs=True),
    ]
    return through(module), args, *[handle.remove for handle in handles]


def order_of_hooks_changed(later):
    module = net()
    module.register_forward_hook(lambda m, i, o: o * 2)
    return through(module), args, lambda: module.register_forward_hook(lambda m, i, o: o + 3, prepend=True)


def what_a_hook_reads_changed(later):
    module, factor = net(), [1.0]
    module.register_forward_hook(lambda m, i, o: o * factor[0])
    return through(module), args, lambda: factor.__setitem__(0, 4.0)


def hooks_of_all_modules_added_and_removed(later):
    module, handles = net(), []

    def add():
        register = nn.modules.module.register_module_forward_hook
        handles.append(register(lambda m, i, o: o + 3 if isinstance(m, nn.Linear) else None))
        later.callback(handles[-1].remove)

    def add_before():
        register = nn.modules.module.register_module_forward_pre_hook
        handles.append(register(lambda m, i: (i[0] * 2,) if isinstance(m, nn.Linear) else None))
        later.callback(handles[-1].remove)

    return through(module), args, add, add_before, lambda: handles[0].remove(), lambda: handles[1].remove()


@wishes(captured=False, settles=False)
def backward_hook_added_and_removed(later):
    module, handles = net(), []

    def add():
        handles.append(module.inner.register_full_backward_hook(lambda m, gi, go: (gi[0] * 5,)))

    return gradients(module), args, add, lambda: handles[0].remove()


@wishes(captured=False, settles=False)
def backward_pre_hook_added(later):
    module = net()
    return gradients(module), args, lambda: module.act.register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))


@wishes(captured=False, settles=False)
def hook_of_a_parameter_added(later):
    module = net()

    def program(x):
        module.zero_grad()
        module(x).sum().backward()
        return module.inner.weight.grad.clone()

    return program, args, lambda: module.inner.weight.register_hook(lambda g: g * 2)


def training_toggled(later):
    module = net()
    module.act = nn.BatchNorm1d(3)
    return through(module), args, module.eval, module.train, module.act.eval


def training_written_to_the_dict(later):
    module = net()
    module.act = nn.BatchNorm1d(3)
    return through(module), args, lambda: module.act.__dict__.__setitem__("training", False)


def layer_appended_to_a_list(later):
    layers = nn.ModuleList([nn.Linear(3, 3)])

    def program(x):
        for layer in layers:
            x = layer(x)
        return x

    return program, args, lambda: layers.append(nn.ReLU()), lambda: layers.insert(0, nn.Tanh()), lambda: layers.pop(1)


def layer_of_a_sequence_replaced(later):
    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def delete():
        del layers[0]

    return through(layers), args, lambda: layers.__setitem__(1, nn.Tanh()), lambda: layers.append(nn.ReLU()), delete


def order_of_a_dict_of_layers_changed(later):
    layers = nn.ModuleDict({"a": nn.Tanh(), "b": nn.ReLU()})

    def program(x):
        for name, layer in layers.items():
            x = layer(x) + len(name)
        return x

    def move():
        layers["a"] = layers.pop("a")

    return program, args, move, lambda: layers.update({"c": nn.Sigmoid()})


def parameter_appended_to_a_list(later):
    weights = nn.ParameterList([torch.ones(3)])

    def program(x):
        return sum(x * weight for weight in weights)

    return program, args, lambda: weights.append(torch.full((3,), 2.0)), lambda: weights.__setitem__(0, torch.zeros(3))


def parameter_put_into_a_dict(later):
    weights = nn.ParameterDict({"a": torch.ones(3)})

    def program(x):
        return sum(x * weight for weight in weights.values()) + len(weights)

    return program, args, lambda: weights.update({"b": torch.ones(3)}), lambda: weights.pop("a")


def names_of_parameters_changed(later):
    module = net()

    def program(x):
        return x + sum(len(name) * parameter.sum() for name, parameter in module.named_parameters())

    return program, args, lambda: module.register_parameter("another", nn.Parameter(torch.ones(2)))


def modules_walked_over(later):
    module = net()

    def program(x):
        return x + len(list(module.modules())) + len(list(module.named_children()))

    return program, args, lambda: module.add_module("more", nn.ReLU()), lambda: module.act.add_module("sub", nn.ReLU())


def buffer_made_persistent_or_not(later):
    module = net()

    def program(x):
        return x * len(module.state_dict())

    return (
        program,
        args,
        lambda: module.register_buffer("more", torch.ones(1), persistent=False),
        lambda: module._non_persistent_buffers_set.clear(),
    )


def a_module_given_as_an_argument_is_another(later):
    modules = [net(), net()]
    modules[1].scale = 9.0

    def program(x, module):
        return module(x)

    return program, lambda: (X.clone(), modules[0]), modules.reverse, lambda: modules.__setitem__(0, nn.ReLU())


def a_module_shared_by_two_names_is_parted(later):
    module = net()
    module.twin = module.inner

    def program(x):
        return module.inner(x) + module.twin(x), module.inner is module.twin

    return (
        program,
        args,
        lambda: setattr(module, "twin", nn.Linear(3, 3)),
        lambda: setattr(module, "inner", module.twin),
    )


def two_parameters_become_one(later):
    module = net()
    module.other = nn.Parameter(torch.zeros(3, 3))

    def program(x):
        module.zero_grad()
        (x @ module.inner.weight + x @ module.other).sum().backward()
        return module.inner.weight.grad.clone(), module.other.grad.clone()

    return program, args, lambda: setattr(module, "other", module.inner.weight)


@wishes(matters=False)
def spectral_norm_counts_its_calls(later):
    module = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
    return through(module), args, module.eval, module.train


def a_lazy_layer_gets_its_shape(later):
    width = [3]
    module = nn.LazyLinear(2)

    def program(x):
        return module(x).shape

    def reset():
        fresh = nn.LazyLinear(4)
        module.__class__, module.__dict__ = fresh.__class__, fresh.__dict__

    return program, lambda: (torch.ones(2, width[0]),), lambda: None if width[0] == 3 else reset(), reset


def a_method_of_an_extra_name_changed(later):
    module = net()
    type(module).extra = lambda self, x: self(x) * 2

    def program(x):
        return module.extra(x)

    return (
        program,
        args,
        lambda: setattr(type(module), "extra", lambda self, x: x),
        lambda: setattr(module, "extra", lambda x: x * 8),
    )


def class_attribute_changed_and_hidden(later):
    module = net()
    type(module).depth = 1

    def program(x):
        return x * module.depth

    return program, args, lambda: setattr(type(module), "depth", 2), lambda: setattr(module, "depth", 3)


def hasattr_changes(later):
    module = net()

    def program(x):
        return x * (2 if hasattr(module, "extra") else 3) + getattr(module, "more", 5)

    def delete():
        del module.extra

    return (
        program,
        args,
        lambda: setattr(module, "extra", None),
        delete,
        lambda: module.register_buffer("more", torch.ones(3)),
        lambda: setattr(type(module), "extra", 1),
    )


MUTATIONS = [
    value
    for value in list(globals().values())
    if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:1] == ("later",)
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_what_a_program_reads_of_modules_is_followed(mutation):
    check_mutation(mutation)
