"""Drives GraphBuilder with plain Python functions and runs the graphs it gives: the reference for the graph tests."""

from __future__ import annotations

import torch

from core.errors import UserLine
from core.graph.builder import GraphBuilder, GraphValue
from core.graph.outputs import BASE, InputItself, Slot, SlotRef, ViewOfInput, ViewOfSlot
from core.graph.tree import map_tree

LINE = UserLine("program.py", 1, "program")


class Traced:
    """A tensor of the traced program: attribute access, methods, operators and torch functions go to the builder."""

    def __init__(self, builder, value):
        self.builder, self.value = builder, value

    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        builder = next(leaf.builder for leaf in _traced(args, kwargs or {}))
        return call(builder, fn, args, kwargs or {})

    def __getattr__(self, name):
        if name in ("shape", "ndim", "dtype", "device", "requires_grad"):
            return getattr(self.value.fake, name)
        if name in ("T", "mT", "real", "imag"):
            return call(self.builder, getattr, (self, name), {})
        if name == "data":
            return call(self.builder, getattr, (self, "data"), {})

        def method(*args, **kwargs):
            wrap = wrapper(self.builder)
            args, kwargs = map_tree(_value, ((self, *args), kwargs))
            return map_tree(wrap, self.builder.call_method(name, args, kwargs, line=LINE))

        return method

    def __iter__(self):
        return iter(self.unbind(0))


def _operator(name):
    def method(self, *args):
        wrap = wrapper(self.builder)
        args = map_tree(_value, (self, *args))
        result = map_tree(wrap, self.builder.call_method(name, args, {}, line=LINE))
        return self if isinstance(result, Traced) and result.value is self.value else result

    return method


for _name in (
    "add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv matmul neg pow getitem setitem eq gt lt ge le "
    "floordiv mod and or xor invert abs"
).split():
    setattr(Traced, f"__{_name}__", _operator(f"__{_name}__"))
Traced.__hash__ = object.__hash__


def _traced(*trees):
    found = []
    map_tree(lambda leaf: found.append(leaf) if isinstance(leaf, Traced) else None, trees)
    return found


def _value(leaf):
    return leaf.value if isinstance(leaf, Traced) else leaf


def wrapper(builder):
    """GraphValue -> Traced."""
    return lambda leaf: Traced(builder, leaf) if isinstance(leaf, GraphValue) else leaf


def call(builder, fn, args, kwargs):
    """Add fn(*args, **kwargs) to the graph of `builder`."""
    args, kwargs = map_tree(_value, (args, kwargs))
    return map_tree(wrapper(builder), builder.call_function(fn, args, kwargs, line=LINE))


def capture(program, inputs, *, dynamic=None, **options):
    """Run `program(builder, *traced)`-style code: `program(*traced)` gives a tuple of results.

    Returns the CapturedGraph and the results as the program gave them, GraphValues replaced by their position.
    """
    builder = GraphBuilder(**options)
    traced = []
    for at, example in enumerate(inputs):
        if isinstance(example, torch.Tensor):
            value = builder.add_tensor_input(example, f"arg{at}", dynamic_dims=(dynamic or {}).get(at))
        else:
            value = builder.add_scalar_input(example, f"arg{at}")
        traced.append(Traced(builder, value))
    try:
        results = program(*traced)
    except BaseException:
        builder.abort()
        raise
    results = results if isinstance(results, tuple) else (results,)
    return builder.finish([result.value for result in results], keep_unused=True)


def actual_inputs(captured, inputs):
    """The values of the placeholders for a call with `inputs`: lifted constants follow the program's own inputs."""
    own = iter(inputs)
    return [item.real if item.lifted else next(own) for item in captured.inputs]


def _take(step, base, slots):
    args = map_tree(lambda leaf: _leaf(leaf, base, slots), step.args)
    kwargs = {name: map_tree(lambda leaf: _leaf(leaf, base, slots), value) for name, value in step.kwargs}
    with torch.set_grad_enabled(step.grad and torch.is_grad_enabled()):
        result = step.op(*args, **kwargs)
    return result if step.item is None else result[step.item]


def _leaf(leaf, base, slots):
    if leaf is BASE:
        return base
    return slots[leaf.index] if isinstance(leaf, SlotRef) else leaf


def finish_call(epilogue, inputs, slots):
    """The reference executor of an epilogue: write back, then make the outputs."""
    for write in epilogue.write_backs:
        target = inputs[write.input]
        if write.mode == "grad":
            target.copy_(slots[write.slot])
        elif write.mode == "data":
            target.data.copy_(slots[write.slot])
        else:
            with torch.no_grad():
                target.copy_(slots[write.slot])
    made = {}
    for output in epilogue.outputs:
        if output not in made:
            made[output] = _make(output, inputs, slots)
    return tuple(made[output] for output in epilogue.outputs)


def _make(output, inputs, slots):
    if isinstance(output, Slot):
        return slots[output.index]
    if isinstance(output, InputItself):
        return inputs[output.index]
    assert isinstance(output, (ViewOfInput, ViewOfSlot))
    value = inputs[output.index] if isinstance(output, ViewOfInput) else slots[output.index]
    for step in output.steps:
        value = _take(step, value, slots)
    return value


def run_functional(graph, inputs):
    """A call of a FunctionalGraph: the nodes below autograd, the epilogue above it."""
    with torch.no_grad():
        slots = graph.module(*[leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in inputs])
    return finish_call(graph.epilogue, inputs, slots)


class _Joint(torch.autograd.Function):
    """Runs a JointGraph whole in the forward and again in the backward: slow, and right by construction."""

    @staticmethod
    def forward(ctx, joint, *inputs):
        plain = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in inputs]
        ctx.joint, ctx.plain, ctx.state = joint, plain, torch.get_rng_state()
        with torch.no_grad():
            results = joint.module(*plain, *_zero_tangents(joint, plain))
        slots = results[: joint.forward_outputs]
        plain_slots = [
            slot
            for slot, info in zip(slots, joint.epilogue.slots)
            if isinstance(slot, torch.Tensor) and not info.differentiable
        ]
        ctx.mark_non_differentiable(*plain_slots)
        return tuple(slots)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):
        joint = ctx.joint
        tangents = [_restrided(grads[at], info) for at, info in zip(joint.tangent_slots, joint.tangent_infos)]
        state = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.no_grad():
            results = joint.module(*ctx.plain, *tangents)
        torch.set_rng_state(state)
        return (None, *(None if at is None else results[at] for at in joint.gradients))


def _restrided(grad, info):
    """The incoming gradient in the layout that the backward was recorded for."""
    if not all(isinstance(number, int) for number in (*info.size, *info.stride)):
        return grad.contiguous()
    return torch.empty_strided(info.size, info.stride, dtype=info.dtype).copy_(grad)


def _zero_tangents(joint, plain):
    """Zero tangents of the right sizes: the forward slots don't depend on them, but the nodes run all the same."""
    made = []
    for info in joint.tangent_infos:
        sizes = [size if isinstance(size, int) else evaluate(size, joint.shapes, plain) for size in info.size]
        made.append(_restrided(torch.zeros(sizes, dtype=info.dtype), info))
    return made


def evaluate(size, facts, inputs):
    values = {}
    for symbol, place in facts.bindings.items():
        value = inputs[place.input]
        reads = {"size": lambda v, p: v.shape[p.dim], "stride": lambda v, p: v.stride(p.dim)}
        reads |= {"offset": lambda v, p: v.storage_offset(), "value": lambda v, p: v}
        values[symbol] = reads[place.kind](value, place)
    return int(size.node.expr.subs(values))


def run_joint(joint, inputs):
    """A call of a JointGraph with gradients."""
    slots = _Joint.apply(joint, *inputs)
    return finish_call(joint.epilogue, inputs, slots)
