"""torch.autograd.Function: its forward, setup_context and backward are traced, and applying it becomes one node.

The code of the backward runs while the forward is traced, so what it reads is read then and guarded, and it may change
nothing: a backward with side effects breaks the graph and runs in Python, when the gradient arrives.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from .. import torch_compat
from ..errors import Unsupported
from ..graph.function_region import FunctionPlan, stand_in, traced_function
from ..graph.region import Region
from ..graph.wrapper_tensors import Build, is_wrapper, plain_tensors, put_together
from ..variables.autograd_function import FunctionContextVariable
from ..variables.base import VariableTracker
from ..variables.function import FunctionVariable, UserFunctionVariable
from ..variables.object import find_on_type
from ..variables.tensor import TensorVariable
from .backward import guard_hooks
from .regions import refuse_escapes, tensors_in, trace_body
from .special_calls import function
from .tensor_hooks import refuse_pending

VT = VariableTracker
Place = tuple[str, int]

OUTSIDE = "call the Function outside the compiled function"
_once_code = torch.autograd.function.once_differentiable(lambda ctx: None).__code__  # the code of every wrapper


class Subject(Protocol):
    """What is applied: an autograd.Function class, or an operator with a gradient formula in Python."""

    name: str
    once: bool

    def forward(self, ctx: FunctionContextVariable, args: list[VT]) -> VT:
        """Trace the forward and what sets up the context."""

    def backward(self) -> VT:
        """The function to call with the context and the gradients."""


# A function of torch's, or from torch 2.14 on one in C, which is another object for each class that it is asked of.
_APPLY = torch.autograd.Function.apply


@function(getattr(_APPLY, "__func__", _APPLY))
def apply(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """cls.apply(*args)."""
    cls = args[0].as_python_object()  # type: ignore[attr-defined]
    refusal = torch_compat.function_apply_refuses_keywords() if kwargs else None
    if refusal is not None:
        tx.raise_exception(TypeError, refusal)
    if issubclass(cls, torch.autograd.function.NestedIOFunction):
        raise Unsupported("a NestedIOFunction is not traced", remedy=OUTSIDE)
    subject = FunctionClass(tx, args[0], cls)
    return Application(tx, subject).run(subject.bound(args[1:], kwargs))


@function(torch.autograd.grad)
def gradients(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """torch.autograd.grad of tensors in the graph: the engine runs on the fakes, which have no hooks."""
    refuse_pending(tx)
    for item in tx.builder.inputs:
        if item.is_tensor and item.requires_grad and item.source is not None:
            guard_hooks(tx, item.source, tx.builder.real_input(item), "_backward_hooks")
    return tx.graph_call(torch.autograd.grad, args, kwargs)


class FunctionClass:
    """A user's subclass of autograd.Function."""

    def __init__(self, tx: Any, owner: VT, cls: type) -> None:
        self.tx = tx
        self.owner = owner
        self.cls = cls
        self.name = cls.__name__
        self.has_setup = cls.setup_context is not torch.autograd.Function.setup_context  # type: ignore[attr-defined]
        raw, _ = find_on_type(cls, "backward")
        code = getattr(getattr(raw, "__func__", raw), "__code__", None)
        self.once = isinstance(code, types.CodeType) and code is _once_code

    def bound(self, args: list[VT], kwargs: dict[str, VT]) -> list[VT]:
        """The arguments of forward; with setup_context its defaults count as arguments."""
        forward = self._method("forward") if self.has_setup else None
        if not isinstance(forward, FunctionVariable) or forward.code.co_flags & 0x0C or forward.code.co_kwonlyargcount:
            if kwargs:
                raise Unsupported("Function.apply with keywords is not traced", remedy="pass arguments by position")
            return args
        values = forward.bind(self.tx, args, kwargs)
        return [values[name].realize(self.tx) for name in forward.code.co_varnames[: forward.code.co_argcount]]

    def _method(self, name: str) -> VT:
        return self.owner.get_attr(self.tx, name).realize(self.tx)

    def forward(self, ctx: FunctionContextVariable, args: list[VT]) -> VT:
        tx = self.tx
        if not self.has_setup:
            return tx.call_function(self._method("forward"), [ctx, *args])
        result = tx.call_function(self._method("forward"), args).realize(tx)
        tx.call_function(self._method("setup_context"), [ctx, tx.new_tuple(args), result])
        return result

    def backward(self) -> VT:
        """The user's function: `backward` or its other name `vjp`, without the wrapper of once_differentiable."""
        name = "backward"
        if self.cls.backward is torch.autograd.Function.backward:  # type: ignore[attr-defined]
            name = "vjp"
        found = self._method(name)
        if isinstance(found, UserFunctionVariable) and found.code is _once_code:
            return self.tx.wrap(found.fn.__wrapped__, None, constant=True)  # type: ignore[attr-defined]
        return found


class Application:
    """One application being traced."""

    def __init__(self, tx: Any, subject: Subject) -> None:
        self.tx = tx
        self.subject = subject
        self.name = subject.name
        self.moment = VariableTracker().made
        self.inner: list[Any] = []
        self.free: list[Any] = []

    def run(self, args: list[VT]) -> VT:
        """What the application returns."""
        tx = self.tx
        self.inputs = [arg for arg in args if isinstance(arg, TensorVariable)]
        needs = tuple(isinstance(arg, TensorVariable) and arg.fake.requires_grad for arg in args)
        ctx = FunctionContextVariable(needs)
        if not (torch.is_grad_enabled() and any(needs)) and not tx.builder.in_transform():
            return self._without_history(ctx, args)
        with tx.builder.region(f"{self.name}_forward", grad=False, writes=True) as forward:
            result = trace_body(tx, f"{self.name}.forward", lambda: self.subject.forward(ctx, args))
            results = self._results(result)
            if forward.inside_transform():
                raise Unsupported("an autograd.Function inside a function transform is not traced", remedy=OUTSIDE)
        self.forward = forward
        self.outputs = [item for item in results if isinstance(item, TensorVariable)]
        self.grads: list[Any] = []
        regions: tuple[Region, ...] = (forward,)
        backward, gradients, takes = None, [], ()
        saved: tuple[Place, ...] = ()
        if torch.is_grad_enabled() and any(needs):
            region, gradients, values = self._trace_backward(ctx, args, results)
            regions = (forward, region)
            backward = region.close(values)
            takes = tuple(self._place(value) for value in [*region.own_inputs, *region.inputs()])
            saved = tuple(self._place(item.value) for item in ctx.saved if isinstance(item, TensorVariable))
        refuse_escapes(tx, self.moment, regions)
        graph = forward.close([*(out.value for out in self.outputs), *self.inner])
        plan = FunctionPlan(
            forward_takes=tuple(self._place(value) for value in forward.inputs()),
            backward_takes=takes,
            saved=tuple(dict.fromkeys(saved)),
            outputs=len(self.outputs),
            inner=len(self.inner),
            dirty=tuple(self._dirty(ctx)),
            non_differentiable=tuple(at for at, out in enumerate(self.outputs) if self._is_marked(ctx, out)),
            gradients=tuple(gradients),
            function=stand_in(self.name, self.subject.once),
        )
        made = tx.builder.call_function(
            traced_function,
            (plan, graph, backward, tuple(self.free), *(item.value for item in self.inputs)),
            {},
            line=tx.line,
        )
        return self._rebuilt(result, results, [tx.graph_result(value) for value in made])

    def _without_history(self, ctx: FunctionContextVariable, args: list[VT]) -> VT:
        """What the application returns where autograd keeps nothing of it: the forward is a function that is called.

        An argument that is returned as it came is returned as a view of it.
        """
        tx = self.tx
        before = tx.builder.set_grad_enabled(False, line=tx.line)
        try:
            result = self.subject.forward(ctx, args).realize(tx)
            results = self._results(result)
            given = [item for item in self.inputs if not any(item is dirty for dirty in ctx.dirty)]
            made = [
                tx.graph_method("view_as", [item, item], {}) if any(item is arg for arg in given) else item
                for item in results
                if isinstance(item, TensorVariable)
            ]
        finally:
            tx.builder.set_grad_enabled(before, line=tx.line)
        return self._rebuilt(result, results, made)

    def _results(self, result: VT) -> list[VT]:
        """What forward returned, one element an output of the Function."""
        items = result.unpack(self.tx) if result.python_type() is tuple else [result]
        items = [item.realize(self.tx) for item in items]
        for item in items:
            if not isinstance(item, TensorVariable) and any(tensors_in(item)):
                raise Unsupported(
                    "the forward of an autograd.Function returns tensors inside another object",
                    remedy="return the tensors themselves",
                )
        if not any(isinstance(item, TensorVariable) for item in items):
            raise Unsupported("the forward of an autograd.Function returns no tensor", remedy=OUTSIDE)
        return items

    # -- backward --------------------------------------------------------------------------------------------------

    def _trace_backward(
        self, ctx: FunctionContextVariable, args: list[VT], results: list[VT]
    ) -> tuple[Region, list[int | None], list[Any]]:
        """The region, per tensor input the place of its gradient, and the values that the region returns."""
        tx = self.tx
        name = f"{self.name}.backward"
        with (
            torch_compat.without_autocast(),  # as where the backward will run
            tx.builder.region(f"{self.name}_backward", grad=False, siblings=(self.forward,)) as region,
            tx.side_effects.sealed(
                f"{name} changes something outside of it", "keep side effects out of the backward, or " + OUTSIDE
            ),
        ):
            region.open_layouts = True
            grads = [self._gradient(region, item) for item in results]
            ctx.in_backward = True
            function = self.subject.backward()
            result = trace_body(tx, name, lambda: tx.call_function(function, [ctx, *grads]))
            is_tuple = result.python_type() is tuple
            given = [item.realize(tx) for item in (result.unpack(tx) if is_tuple else [result])]
            gradients, values = self._gradients(args, given)
        return region, gradients, values

    def _gradient(self, region: Region, output: VT) -> VT:
        """What backward gets for an output: a gradient of its shape, None where the output is no tensor."""
        tx = self.tx
        if not isinstance(output, TensorVariable):
            return tx.constant(None)
        fake = tx.run_on_fakes(gradient_like, [output.fake], {})
        value = tx.builder.add_region_input(region, fake)
        self.grads.append(value)
        return tx.graph_result(value)

    def _gradients(self, args: Sequence[VT], given: list[VT]) -> tuple[list[int | None], list[Any]]:
        while len(given) > len(args) and self._is_none(given[-1]):
            given.pop()
        if len(given) != len(args):
            raise Unsupported(
                f"{self.name}.backward returns {len(given)} gradients for {len(args)} arguments of forward",
                remedy="return one gradient an argument, None where there is none",
            )
        places: list[int | None] = []
        values: list[Any] = []
        for arg, gradient in zip(args, given):
            if isinstance(gradient, TensorVariable) and isinstance(arg, TensorVariable):
                places.append(len(values))
                values.append(gradient.value)
            elif not self._is_none(gradient):
                raise Unsupported(
                    f"{self.name}.backward returns {gradient.describe()} as a gradient",
                    remedy="return tensors for tensors and None for everything else",
                )
            elif isinstance(arg, TensorVariable):
                places.append(None)
        return places, values

    @staticmethod
    def _is_none(tracker: VT) -> bool:
        return tracker.is_constant() and tracker.as_constant() is None

    # -- how the graphs fit together -------------------------------------------------------------------------------

    def _place(self, value: Any) -> Place:
        """The name of a value in the plan; see FunctionPlan."""
        for at, item in enumerate(self.inputs):
            if item.value is value:
                return "input", at
        for at, grad in enumerate(self.grads):
            if grad is value:
                return "grad", at
        if value.region is not self.forward:
            return self._indexed("free", self.free, value)
        for at, item in enumerate(self.outputs):
            if item.value is value:
                return "output", at
        return self._indexed("inner", self.inner, value)

    @staticmethod
    def _indexed(kind: str, values: list[Any], value: Any) -> Place:
        for at, known in enumerate(values):
            if known is value:
                return kind, at
        values.append(value)
        return kind, len(values) - 1

    def _dirty(self, ctx: FunctionContextVariable) -> list[int]:
        places = [self._place(item.value) for item in ctx.dirty if isinstance(item, TensorVariable)]
        if any(kind != "input" for kind, _ in places):
            raise Unsupported("mark_dirty of a tensor that is no input is not traced", remedy=OUTSIDE)
        return [at for _, at in places]

    @staticmethod
    def _is_marked(ctx: FunctionContextVariable, output: TensorVariable) -> bool:
        return any(item is output for item in ctx.non_differentiable)

    def _rebuilt(self, result: VT, results: list[VT], made: list[VT]) -> VT:
        """What apply returns: the tensors of the node in place of those made inside the region."""
        tensors = iter(made)
        items = [next(tensors) if isinstance(item, TensorVariable) else item for item in results]
        return self.tx.new_tuple(items) if result.python_type() is tuple else items[0]


def gradient_like(fake: Any) -> Any:
    """A fresh fake of what arrives for a result: of its shape, and made as it is where it is a wrapper tensor."""
    if not is_wrapper(fake):
        return torch.empty(tuple(fake.shape), dtype=fake.dtype, device=fake.device)
    return put_together(Build.of(fake.detach()), (torch.empty_like(part) for part in plain_tensors(fake)))
