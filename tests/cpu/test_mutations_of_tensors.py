"""Tensors changed between calls: their data, dtype, shape, strides, storage, gradient flags, classes and overlaps."""

from __future__ import annotations

import types

import pytest
import torch
from mutations import check_mutation, wishes

X = torch.arange(6.0).reshape(2, 3) - 2


class OwnTensor(torch.Tensor):
    pass


def args():
    return (X.clone(),)


def held_tensor(change, start=None):
    """A mutation of a tensor that the program holds in its closure."""

    def mutation(later):
        held = X.clone() if start is None else start()

        def program(x):
            return x + held * 2, held.is_contiguous(), held.requires_grad, held.dtype, held.dim()

        return program, args, lambda: change(held)

    return mutation


def set_data(value):
    return lambda held: setattr(held, "data", value)


HELD = {
    "values written": held_tensor(lambda held: held.add_(5)),
    "data swapped": held_tensor(set_data(torch.ones(2, 3))),
    "data of another dtype": held_tensor(set_data(torch.ones(2, 3, dtype=torch.float64))),
    "data of whole numbers": held_tensor(set_data(torch.ones(2, 3, dtype=torch.int32))),
    "data of another shape": held_tensor(set_data(torch.ones(1, 3))),
    "data of another rank": held_tensor(set_data(torch.tensor(4.0))),
    "data of other strides": held_tensor(set_data(torch.ones(3, 2).t())),
    "data of an expanded tensor": held_tensor(set_data(torch.ones(1, 3).expand(2, 3))),
    "transposed in place": held_tensor(lambda held: held.t_(), lambda: torch.arange(9.0)[:9].view(3, 3)[:1]),
    "reshaped in place": held_tensor(lambda held: held.unsqueeze_(0)),
    "resized in place": held_tensor(lambda held: held.resize_(1, 3)),
    "set to another storage": held_tensor(lambda held: held.set_(torch.full((2, 3), 9.0))),
    "strides set in place": held_tensor(lambda held: held.as_strided_((2, 3), (0, 1))),
    "asking for gradients": held_tensor(lambda held: held.requires_grad_(True)),
    "no longer asking for gradients": held_tensor(
        lambda held: held.requires_grad_(False), lambda: X.clone().requires_grad_()
    ),
    "filled with random numbers": held_tensor(lambda held: held.fill_(7.0)),
    "written through numpy": held_tensor(lambda held: held.numpy().__setitem__((0, 0), 50.0)),
    "written through its storage": held_tensor(
        lambda held: held.untyped_storage().copy_(torch.ones(6).untyped_storage())
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_a_tensor_that_is_held_and_changed_is_followed(name):
    check_mutation(HELD[name])


ARGUMENTS = {
    "dtype": lambda: X.double(),
    "half dtype": lambda: X.half(),
    "whole numbers": lambda: X.int(),
    "truth values": lambda: X > 0,
    "complex numbers": lambda: X.to(torch.complex64),
    "conjugate": lambda: torch.complex(X, X + 1).conj(),
    "negative bit": lambda: torch.complex(X, X + 1).conj().imag,
    "rank": lambda: X[0],
    "first size": lambda: torch.cat([X, X]),
    "size of one": lambda: X[:1],
    "size of zero": lambda: X[:0],
    "last size of one": lambda: X[:, :1],
    "both of one": lambda: X[:1, :1],
    "strides": lambda: X.t().contiguous().t(),
    "expanded": lambda: X[:1].expand(2, 3),
    "sliced with a step": lambda: torch.arange(24.0).view(4, 6)[::2, ::2],
    "with an offset": lambda: torch.arange(8.0)[2:].view(2, 3),
    "wanting gradients": lambda: X.clone().requires_grad_(),
    "with a history": lambda: X.clone().requires_grad_() * 2,
    "parameter": lambda: torch.nn.Parameter(X.clone()),
    "buffer": lambda: torch.nn.Buffer(X.clone()),
    "subclass": lambda: X.as_subclass(OwnTensor),
    "inference tensor": lambda: made_in_inference(),
    "on meta": lambda: X.to("meta"),
    "sparse": lambda: X.to_sparse(),
    "compressed sparse": lambda: X.to_sparse_csr(),
    "zero tensor": lambda: torch._efficientzerotensor((2, 3)),
    "number": lambda: 3.0,
    "whole number": lambda: 3,
    "none": lambda: None,
    "list": lambda: [1.0, 2.0],
    "numpy array": lambda: X.numpy(),
    "channels last": lambda: torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last),
}


def made_in_inference():
    with torch.inference_mode():
        return X.clone()


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_of_another_kind_is_followed_and_back(name):
    def mutation(later):
        makers = [lambda: X.clone()]

        def program(x):
            if x is None:
                return -1
            if not isinstance(x, torch.Tensor):
                return x
            kind = (x.dtype, x.dim(), x.is_contiguous(), x.stride() if x.layout is torch.strided else None, x.shape)
            if x.layout is not torch.strided or x.device.type == "meta":
                return kind
            return (x * 2).sum(), kind, x.requires_grad, x.is_leaf, x.is_conj(), x.is_neg(), x.storage_offset()

        return (
            program,
            lambda: (makers[0](),),
            lambda: makers.insert(0, ARGUMENTS[name]),
            lambda: makers.pop(0),
            lambda: makers.insert(0, ARGUMENTS[name]),
        )

    strange = ("sparse", "compressed sparse", "zero tensor", "numpy array", "inference tensor", "subclass", "on meta")
    alike = ("buffer", "subclass")  # to this program
    check_mutation(wishes(matters=name not in alike, captured=name not in strange)(mutation))


def pairs(*makers):
    """A mutation of two tensor arguments that are written to and read."""

    def mutation(later):
        left = list(makers)

        def program(x, y):
            x.mul_(2)
            z = y + x
            y.add_(1)
            return z, x.sum(), x is y

        return program, lambda: left[0](), *[lambda: left.pop(0)] * (len(makers) - 1)

    return mutation


def apart():
    return X.clone(), X + 1


def one():
    x = X.clone()
    return x, x


def view_of_the_other():
    x = X.clone()
    return x, x.view(2, 3)


def overlapping():
    memory = torch.arange(9.0)
    return memory[:6].view(2, 3), memory[3:].view(2, 3)


def side_by_side():
    memory = torch.arange(12.0)
    return memory[:6].view(2, 3), memory[6:].view(2, 3)


def interleaved():
    memory = torch.arange(12.0).view(2, 6)
    return memory[:, ::2], memory[:, 1::2]


def turned_over():
    memory = torch.arange(9.0).view(3, 3)
    return memory[:2], memory.t()[:2]


def detached():
    x = X.clone()
    return x, x.detach()


OVERLAPS = {
    "one tensor twice, then apart": pairs(one, apart, one),
    "apart, then one tensor twice": pairs(apart, one, apart),
    "apart, then a view of the other": pairs(apart, view_of_the_other, apart, one),
    "apart, then overlapping": pairs(apart, overlapping, apart),
    "overlapping, then apart": pairs(overlapping, apart, view_of_the_other),
    "apart, then side by side in one storage": pairs(apart, side_by_side, overlapping),
    "apart, then interleaved": pairs(apart, interleaved, overlapping),
    "overlapping, then turned over": pairs(overlapping, turned_over, overlapping),
    "a view of the other, then detached": pairs(view_of_the_other, detached, apart),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_arguments_that_share_memory_on_some_calls_are_followed(name):
    check_mutation(wishes(settles=False)(OVERLAPS[name]))


def attribute_of_a_tensor_changed(later):
    held = X.clone()
    held.k = 2.0
    return (
        (lambda x: x * held.k),
        args,
        lambda: setattr(held, "k", 3.0),
        lambda: delattr(held, "k"),
    )


def attribute_of_a_parameter_changed(later):
    held = torch.nn.Parameter(X.clone())
    held.tags = ["a"]
    return (
        (lambda x: x * len(held.tags) + getattr(held, "more", 1.0)),
        args,
        lambda: held.tags.append("b"),
        lambda: setattr(held, "more", 4.0),
    )


def attribute_of_a_subclass_changed(later):
    class Own(torch.Tensor):
        scale = 2.0

    held = X.as_subclass(Own)
    held.k = 2.0

    def program(x):
        return (x * held.k * held.scale).as_subclass(torch.Tensor)

    return (
        program,
        args,
        lambda: setattr(held, "k", 3.0),
        lambda: setattr(Own, "scale", 5.0),
        lambda: setattr(held, "scale", 7.0),
    )


def torch_function_of_a_subclass_replaced(later):
    class Own(torch.Tensor):
        pass

    held = X.as_subclass(Own)

    def change():
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {})) * 3

        Own.__torch_function__ = classmethod(__torch_function__)

    return (lambda x: torch.add(x, held).as_subclass(torch.Tensor)), args, change


def method_of_a_subclass_replaced(later):
    class Own(torch.Tensor):
        def own(self):
            return self + 1

    held = X.as_subclass(Own)
    return (
        (lambda x: (held.own() * x).as_subclass(torch.Tensor)),
        args,
        lambda: setattr(Own, "own", lambda self: self * 8),
    )


def gradient_appears_and_goes(later):
    held = torch.ones(3, requires_grad=True)

    def program(x):
        return x if held.grad is None else x * held.grad

    return (
        program,
        args,
        lambda: setattr(held, "grad", torch.full((3,), 4.0)),
        lambda: setattr(held, "grad", torch.full((3,), 5.0)),
        lambda: held.grad.add_(1),
        lambda: setattr(held, "grad", None),
    )


def hook_of_a_tensor_added(later):
    held = torch.ones(3, requires_grad=True)

    def program(x):
        held.grad = None
        (x * held).sum().backward()
        return held.grad

    return program, args, lambda: held.register_hook(lambda g: g * 3)


def accumulation_hook_added(later):
    held, seen = torch.ones(3, requires_grad=True), []

    def program(x):
        held.grad = None
        (x * held).sum().backward()
        return held.grad + len(seen)

    return program, args, lambda: held.register_post_accumulate_grad_hook(lambda p: seen.append(1))


def tensors_in_a_dict_replaced(later):
    held = {"a": X.clone()}
    return (
        (lambda x: x + held["a"]),
        args,
        lambda: held.update(a=X + 5),
        lambda: held.update(a=X.double()),
        lambda: held.update(a=X[0]),
        lambda: held.update(a=None or 3.0),
    )


def tensor_becomes_a_number(later):
    held = types.SimpleNamespace(k=torch.tensor(2.0))
    return (
        (lambda x: x * held.k),
        args,
        lambda: setattr(held, "k", 2.5),
        lambda: setattr(held, "k", 3),
        lambda: setattr(held, "k", torch.tensor(3, dtype=torch.int64)),
        lambda: setattr(held, "k", torch.tensor([3.0])),
    )


def storage_resized_to_nothing_and_back(later):
    held = X.clone()

    def program(x):
        return x + held.untyped_storage().size()

    return program, args, lambda: held.untyped_storage().resize_(0), lambda: held.untyped_storage().resize_(24)


def versions_counted(later):
    held = X.clone()
    return (lambda x: x + held._version), args, lambda: held.add_(1)


def item_of_a_tensor_read(later):
    held = torch.tensor(3.0)
    return (lambda x: x * held.item() if held > 2 else x - 1), args, lambda: held.fill_(1.0), lambda: held.fill_(9.0)


@pytest.mark.parametrize(
    "mutation",
    [
        value
        for value in list(globals().values())
        if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:1] == ("later",)
    ],
    ids=lambda mutation: mutation.__name__,
)
def test_what_a_program_reads_of_tensors_is_followed(mutation):
    check_mutation(wishes(captured=False, settles=False)(mutation))
