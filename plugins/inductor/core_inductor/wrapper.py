"""The wrapper: the straight-line Python program that calls kernels and ATen, and the translation unit of its kernels.

Enters: a Plan. Leaves: a `CompiledProgram`: C++ source, kernel specs, Python source. The Python source is executed with
a namespace of five names: `torch`, `kernel` (position -> callable) and `view` (layout -> callable) from the runtime,
`constants` and `callables` (dicts); it defines `call(*args) -> tuple`. It binds every callable once, at module level,
so that a call is locals and globals only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .cpp import math as cpp_math
from .cpp.accumulate import print_accumulate
from .cpp.context import Signature
from .cpp.functions import Functions
from .cpp.ops import Expressions
from .cpp.printer import print_kernel
from .ir import expr
from .ir.expr import Index
from .ir.graph import LoopGraph, leaves
from .ir.nodes import Accumulate, Extern, ExternResult, Input, Loops, Node, Scalar, Strided, dense_strides
from .runtime.spec import KernelSpec, OutputSpec
from .sched.memory import CallStep, KernelStep, NumberStep, Plan, Step, reads


class UnboundSize(ValueError):
    """A symbolic size of the graph is neither an argument nor the size or stride of one."""


@dataclass
class CompiledProgram:
    """One compiled graph, all of it text and data except `constants` and `callables`.

    extern_calls: calls of ATen in one run. kernel_calls: kernel launches in one run (`kernels` holds each distinct one
    once). constants: tensors and objects by attribute name. callables: what has no path of its own.
    storable: False when the program needs objects that only this process has.
    """

    cpp_source: str
    kernels: list[KernelSpec]
    python_source: str
    constants: dict[str, Any]
    extern_calls: int
    kernel_calls: int = 0
    callables: dict[str, Any] = field(default_factory=dict)
    fallbacks: list[tuple[str, str]] = field(default_factory=list)
    provenance: dict[str, list[str]] = field(default_factory=dict)

    @property
    def storable(self) -> bool:
        """Whether the program can be written to disk and run by another process."""
        return not self.callables and all(_is_plain(constant) for constant in self.constants.values())


def _is_plain(constant: Any) -> bool:
    """Whether a constant is nothing but its elements in the CPU's memory."""
    return (
        type(constant) in (torch.Tensor, torch.nn.Parameter)
        and constant.layout is torch.strided
        and constant.device.type == "cpu"
        and not (constant.is_conj() or constant.is_neg() or constant.is_quantized)
    )


class WrapperPrinter:
    """Prints one plan."""

    def __init__(self, plan: Plan) -> None:
        settle_shapes(plan)
        self.plan = plan
        self.graph: LoopGraph = plan.graph
        self.expressions = Expressions()
        self.functions = Functions()
        self.specs: dict[KernelSpec, tuple[int, str]] = {}
        self.bound: dict[str, str] = {}
        self.lines: list[str] = []
        self.names: dict[Node, str] = {}
        self.sizes: set[str] = set()
        self.externs = 0
        self.launches = 0
        self.provenance: dict[str, list[str]] = {}
        self.count = 0
        self.used = used_nodes(plan)
        self.returning = False  # outputs have to be views that torch knows of; extern arguments need not
        # Shapes before `linear_form` changes any: an out= buffer must have the shape that was planned.
        self.planned = {s.out: (s.out.sizes, s.out.strides) for s in plan.steps if isinstance(s, CallStep) and s.out}

    def print(self) -> CompiledProgram:
        """The whole program."""
        for node in self.graph.inputs:
            self.names[node] = self.constant(node) if node.constant is not None else node.name
        for step in self.plan.steps:
            if isinstance(step, KernelStep):
                self.kernel(step)
            elif isinstance(step, CallStep):
                self.call(step)
            else:
                self.number(step)
            self.deaths(step)
        self.returning = True
        returned = ", ".join(self.argument(o) for o in self.graph.outputs)
        self.lines.append(f"return ({returned}{',' if len(self.graph.outputs) == 1 else ''})")
        return CompiledProgram(
            self.translation_unit(),
            list(self.specs),
            self.python(),
            self.graph.constants,
            self.externs,
            self.launches,
            self.graph.callables,
            provenance=self.provenance,
        )

    # --- text of values -----------------------------------------------------------------------------------------------

    def constant(self, node: Input) -> str:
        """A module-level name for a constant tensor."""
        return self.bind(f"constants[{node.constant!r}]", node.name)

    def bind(self, path: str, hint: str) -> str:
        """A module-level name for an expression that never changes."""
        known = self.bound.get(path)
        if known is None:
            taken = set(self.bound.values())
            known = (
                hint
                if hint not in taken
                else next(f"{hint}_{k}" for k in range(1, 10**6) if f"{hint}_{k}" not in taken)
            )
            self.bound[path] = known
        return known

    def size(self, e: Index) -> str:
        """A size as Python text; remembers the symbols it needs."""
        if isinstance(e, int):
            return str(e)
        self.sizes.update(a.name for a in expr.atoms_of(e) if isinstance(a, expr.SizeVar))
        return expr.text(e)

    def tuple_of(self, values: tuple[Index, ...]) -> str:
        """A tuple display."""
        inner = ", ".join(self.size(v) for v in values)
        return f"({inner}{',' if len(values) == 1 else ''})"

    def argument(self, value: Any) -> str:
        """Any argument of an extern call, or an output."""
        if isinstance(value, Strided):
            return self.tensor(value)
        if isinstance(value, Scalar):
            if value.expr is not None:
                return self.size(value.expr)
            return value.name or "None"
        if isinstance(value, list):
            return f"[{', '.join(self.argument(v) for v in value)}]"
        if isinstance(value, tuple):
            return f"({', '.join(self.argument(v) for v in value)}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.argument(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self.argument(value.start)}, {self.argument(value.stop)}, {self.argument(value.step)})"
        return self.plain(value)

    def plain(self, value: Any) -> str:
        """A constant: a literal where Python has one, else a module-level name."""
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if value - value == 0 else f"float({str(value)!r})"
        if isinstance(value, complex):
            return repr(value)
        text = repr(value) if type(value).__module__ == "torch" else ""
        if text.startswith("torch.") and text.replace(".", "").replace("_", "").isalnum():
            return self.bind(text, text.replace(".", "_"))
        if type(value).__name__ == "device" and type(value).__module__ == "torch":
            return self.bind(f"torch.device({str(value)!r})", "device")
        key = f"o{len(self.graph.callables)}"
        self.graph.callables[key] = value
        return self.bind(f"callables[{key!r}]", key)

    def tensor(self, value: Strided) -> str:
        """A tensor, as the node's own or as a view of it."""
        name = self.names[value.node]
        if value.is_whole and not (self.returning and value.strides != value.node.strides):
            return name
        if not self.returning:
            return self.view(name, value)
        as_strided = self.bind("torch.as_strided", "as_strided")
        offset = self.size(value.offset)
        if isinstance(value.node, Input) or not self.owned_at_zero(value.node):
            base = f"{name}.storage_offset()"
            offset = base if offset == "0" else f"{base} + {offset}"
        arguments = [name, self.tuple_of(value.sizes), self.tuple_of(value.strides)]
        if offset != "0":
            arguments.append(offset)
        return f"{as_strided}({', '.join(arguments)})"

    def view(self, name: str, value: Strided) -> str:
        """A tensor on the memory of another that lives no longer than one extern call: no dispatch, no tracking."""
        ints: list[Index] = []

        def entry(e: Index) -> str:
            if isinstance(e, int):
                return str(e)
            if e not in ints:
                ints.append(e)
            return f"('int', {ints.index(e)})"

        sizes, strides = ("".join(f"{entry(e)}, " for e in part) for part in (value.sizes, value.strides))
        bound = self.bind(f"view(({sizes}), ({strides}), {entry(value.offset)}, {len(ints)})", "view_of")
        return f"{bound}({', '.join([name, *map(self.size, ints)])})"

    @staticmethod
    def owned_at_zero(node: Node) -> bool:
        """Buffers of kernels start at offset 0 of their storage; what ATen returns may not."""
        return not hasattr(node, "extern") or bool(getattr(node, "trusted_strides", False))

    # --- steps --------------------------------------------------------------------------------------------------------

    def fresh_name(self) -> str:
        """A new local name."""
        self.count += 1
        return f"b{self.count - 1}"

    def kernel(self, step: KernelStep) -> None:
        """A kernel call; equal kernels share one function and one callable."""
        kernel = step.kernel
        ints = kernel.size_names()
        extra_ints: list[Index] = []
        outputs = tuple(self.output_spec(n, ints, extra_ints) for n in kernel.outputs)
        floats = kernel.float_names()
        arguments = step.arguments
        over = [
            (n, kernel.inputs[r])
            for n, r in zip(kernel.outputs, step.reuse)
            if r is not None and r < len(kernel.inputs)
        ]
        in_place = frozenset(n for pair in over for n in pair)
        signature = Signature(kernel.inputs, kernel.outputs, ints, floats, in_place)
        body, parallel = print_kernel(kernel, signature, self.expressions)
        function = self.functions.kernel(body, len(kernel.inputs), len(step.extra), len(outputs))
        numbers = len(ints) + len(extra_ints), len(floats)
        bound = self.callable(KernelSpec(function, len(arguments), outputs, tuple(step.reuse), *numbers, parallel))
        texts = [self.names[n] for n in arguments]
        texts += ints
        self.sizes.update(ints)
        texts += [self.size(e) for e in extra_ints]
        texts += floats
        for node in kernel.outputs:
            self.names[node] = self.fresh_name()
        targets = ", ".join(self.names[n] for n in kernel.outputs)
        self.lines.append(f"{targets} = {bound}({', '.join(texts)})")
        self.launches += 1
        self.provenance.setdefault(function, list(dict.fromkeys(str(o) for o in kernel.origins)))

    def callable(self, spec: KernelSpec) -> str:
        """The name of a kernel's callable; equal ones are one."""
        function = spec.name
        position, bound = self.specs.get(spec, (-1, ""))
        if position < 0:
            same = sum(1 for known in self.specs if known.name == function)
            position, bound = len(self.specs), function if not same else f"{function}_{same}"
            self.specs[spec] = (position, bound)
        return self.bind(f"kernel({position})", bound)

    def accumulate(self, call: Extern, what: Accumulate) -> None:
        """The kernel that stands for a call."""
        text, parallel = print_accumulate(what, self.expressions)
        function = self.functions.named(text)
        (result,) = call.results
        output = self.output_spec(result, [], [])
        bound = self.callable(KernelSpec(function, len(call.args), (output,), parallel=parallel))
        name = self.names[result] = self.fresh_name()
        self.lines.append(f"{name} = {bound}({', '.join(self.argument(a) for a in call.args)})")
        self.launches += 1
        self.provenance.setdefault(function, [str(call.origin)])

    def output_spec(self, node: Node, names: list[str], extra: list[Index]) -> OutputSpec:
        """Sizes and strides of an output; symbolic ones become extra int arguments."""

        def entry(e: Index) -> int | tuple[str, int]:
            if isinstance(e, int):
                return e
            text = expr.text(e)
            if text in names:
                return ("int", names.index(text))
            if e not in extra:
                extra.append(e)
            return ("int", len(names) + extra.index(e))

        return OutputSpec(tuple(entry(s) for s in node.sizes), tuple(entry(s) for s in node.strides), node.dtype)

    def call(self, step: CallStep) -> None:
        """An extern call, its results, and the check of strides that kernels rely on."""
        call = step.call
        if call.kernel is not None:
            self.accumulate(call, call.kernel)
            return
        out = step.out
        linear = None if out is not None else linear_form(call)
        if linear is not None:
            self.externs += 1
            name = self.names[call.results[0]] = self.fresh_name()
            function = self.bind("torch.nn.functional.linear", "linear")
            self.lines.append(f"{name} = {function}({', '.join(self.argument(a) for a in linear)})")
            return
        path = call.path or f"callables[{call.name!r}]"
        if out is not None and call.out_path is not None:
            path = call.out_path
        function = self.bind(path, _short_name(path, call.name))
        texts = [self.argument(a) for a in call.args]
        texts += [f"{k}={self.argument(v)}" for k, v in call.kwargs.items()]
        if out is not None:
            texts.append(f"out={self.tensor(Strided(out, *self.planned[out], 0))}")
        line = f"{function}({', '.join(texts)})"
        self.externs += 1
        self._bind_results(call, line)

    def _bind_results(self, call: Any, line: str) -> None:
        if call.binds:
            self.lines.append(f"{call.binds} = {line}")
            return
        single = len(call.results) == 1 and call.results[0].position is None
        if single:
            name = self.names[call.results[0]] = self.fresh_name()
            self.lines.append(f"{name} = {line}.resolve_neg()" if call.negated else f"{name} = {line}")
        else:
            self.lines.append(f"{call.name} = {line}")
            sized = [result for _, result, _ in call.size_binds]
            used = [r for r in call.results if r in self.used or r in sized]
            for result in used:
                self.names[result] = self.fresh_name()
                self.lines.append(f"{self.names[result]} = {call.name}[{result.position}]")
            if used and not self._scalars_of(call):
                self.lines.append(f"del {call.name}")
        self.lines += [f"{symbol} = {self.names[result]}.shape[{dim}]" for symbol, result, dim in call.size_binds]
        for result in call.results:
            if result in self.names and not result.trusted_strides and result in self.used:
                self._check_strides(result)

    def _scalars_of(self, call: Any) -> bool:
        return len(call.results) < len(call.origin.meta["val"]) if call.origin is not None else True

    def _check_strides(self, node: Node) -> None:
        """Copy a result whose real strides differ from the recorded ones (dimensions of size 1 aside)."""
        name, strides = self.names[node], self.tuple_of(node.strides)
        restride = self.bind("restride", "restride")
        self.lines.append(f"if {name}.stride() != {strides}: {name} = {restride}({name}, {strides})")

    def number(self, step: NumberStep) -> None:
        """A Python number."""
        number = step.number
        function = self.bind(number.path, _short_name(number.path, number.name))
        self.lines.append(f"{number.name} = {function}({', '.join(self.argument(a) for a in number.args)})")
        self.lines += [
            f"{symbol} = {number.name}" for symbol, (source, _) in self.graph.bindings.items() if source == number.name
        ]

    def deaths(self, step: Step) -> None:
        """Forget buffers that nothing reads any more."""
        names = [self.names[n] for n in step.dies if n in self.names and not isinstance(n, Input)]
        if names:
            self.lines.append(f"del {', '.join(dict.fromkeys(names))}")

    # --- whole texts --------------------------------------------------------------------------------------------------

    def python(self) -> str:
        """The module that defines `call`."""
        head = [f"import {m}" for m in ("math", "operator") if any(p.startswith(f"{m}.") for p in self.bound)]
        head += [f"{name} = {path}" for path, name in self.bound.items() if path != "restride"]
        if "restride" in self.bound:
            head += RESTRIDE.splitlines()
        arguments = ", ".join(a.name for a in self.graph.arguments)
        body = [f"{name} = {source}.{how}" for name, source, how in self._bindings()] + self.lines
        return "\n".join([*head, "", "", f"def call({arguments}):", *(f"    {line}" for line in body), ""])

    def _bindings(self) -> list[tuple[str, str, str]]:
        unbound = self.sizes - self.graph.bindings.keys()
        if unbound:
            raise UnboundSize(f"no argument says what {', '.join(sorted(unbound))} is")
        found = []
        arguments = {argument.name for argument in self.graph.arguments}
        for name, (source, how) in self.graph.bindings.items():
            if name in self.sizes and source in arguments:  # else it is bound where it is computed
                found.append((name, source, how) if how else (name, source, "__index__()"))
        return found

    def translation_unit(self) -> str:
        """All functions with the math they call."""
        if not self.functions.texts:
            return ""
        parts = [cpp_math.header(self.expressions.used), *self.functions.printed()]
        return "\n\n".join(p for p in parts if p) + "\n"


def linear_form(call: Extern) -> tuple[Strided, ...] | None:
    """(x, weight, bias) when the call is addmm or mm of a plain x and a transposed plain weight.

    `linear` computes the same product and needs no views: x keeps its leading dimensions, and so does the result, whose
    node gets that shape here (kernels read its memory only, so their offsets stay right).
    """
    schema = getattr(call.target, "_schema", None)
    if schema is None or schema.name not in ("aten::addmm", "aten::mm") or call.kwargs or len(call.results) != 1:
        return None
    bias, x, weight = call.args if schema.name == "aten::addmm" and len(call.args) == 3 else (None, *call.args[:2])
    result = call.results[0]
    node = weight.node
    turned = weight.offset == 0 and weight.sizes == node.sizes[::-1] and weight.strides == node.strides[::-1]
    if len(node.sizes) != 2 or not turned or (bias is not None and (not bias.is_whole or len(bias.sizes) != 1)):
        return None
    source = x.node
    if not x.is_whole:
        flat = x.offset == 0 and len(source.sizes) > 2 and source.sizes[-1] == x.sizes[-1]
        plain = source.strides == expr.row_major(source.sizes) and x.strides == expr.row_major(x.sizes)
        if not flat or not plain or isinstance(source, ExternResult) and not source.trusted_strides:
            return None
        result.sizes = (*source.sizes[:-1], node.sizes[0])
        result.strides = expr.row_major(result.sizes)
        x = Strided(source, source.sizes, source.strides, 0)
    weight = Strided(node, node.sizes, node.strides, 0)
    return (x, weight) if bias is None else (x, weight, bias)


def settle_shapes(plan: Plan) -> None:
    """Give a kernel's output the one shape in which it is needed as a tensor, so that nobody has to make a view of it.

    Kernels address memory by offsets that are already fixed; only the tensor's sizes and strides change.
    """
    wanted: dict[Node, set[tuple]] = {}
    sources: list[Any] = [plan.graph.outputs]
    sources += [(s.call.args, s.call.kwargs) for s in plan.steps if isinstance(s, CallStep)]
    for leaf in leaves(sources):
        if isinstance(leaf, Strided) and isinstance(leaf.node, Loops):
            wanted.setdefault(leaf.node, set()).add((leaf.sizes, leaf.strides, leaf.offset))
    for node, shapes in wanted.items():
        if len(shapes) != 1:
            continue
        ((sizes, strides, offset),) = shapes
        if offset == 0 and expr.product(sizes) == node.numel and dense_strides(sizes, strides):
            node.sizes, node.strides = sizes, strides


def used_nodes(plan: Plan) -> set[Node]:
    """Nodes that some step or the outputs read."""
    found = {o.node for o in plan.graph.outputs if isinstance(o, Strided)}
    for step in plan.steps:
        found.update(reads(step))
    return found


RESTRIDE = """
def restride(tensor, strides):
    sizes = tensor.shape
    if all(n == 1 or a == b for n, a, b in zip(sizes, tensor.stride(), strides)) or 0 in sizes:
        return tensor
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
"""


def _short_name(path: str, fallback: str) -> str:
    parts = path.split(".")
    if parts[0] == "torch" and len(parts) > 2:
        return "_".join(p for p in parts[3:] if p != "default") or parts[-1]
    return parts[-1] if path.startswith(("torch.", "operator.", "math.")) else f"call_{fallback}"
