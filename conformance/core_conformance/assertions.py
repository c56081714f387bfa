"""The one assertion of the suite: a compiled program does what eager does, in every respect that a program can see."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .aliases import relations
from .copies import copied, nudge
from .numerics import PRECISIONS, WIDE, Comparison, compare
from .observer import Observation, observing
from .subject import Subject, tensors_of
from .torch_compat import tree_flatten, tree_leaves

FOREIGN = ("dynamo:", "custom:")
"""Names of backends that are other compilers, and say so."""
NUDGES = (3, 15)
"""How many inputs moved by a rounding eager and the reference run on where a result fails: few, and if it still fails
more. Where results are small differences of large numbers, eager's error is none by chance in a run or two."""

RULES = (
    "structure",
    "shape",
    "dtype",
    "device",
    "strides",
    "numerics",
    "nan-positions",
    "mutation",
    "aliasing",
    "gradients",
    "requires_grad",
    "exception",
    "provenance",
    "stale-result",
    "buffer-reuse",
)
"""What a failed assertion's first line begins with, in brackets."""


def fail(rule: str, text: str) -> None:
    """Raise the AssertionError of a rule."""
    raise AssertionError(f"[{rule}] {text}")


@dataclass
class Run:
    """One call of one version of the program."""

    args: list[Any]
    result: Any = None
    error: Exception | None = None
    gradients: list[torch.Tensor | None] = field(default_factory=list)


@dataclass
class Versions:
    """The program compiled, in eager mode, and in float64. A module of each has parameters of its own."""

    compiled: Callable[..., Any]
    eager: Callable[..., Any]
    wide: Callable[..., Any] | None
    modules: tuple[torch.nn.Module, ...] = ()
    """(under test, eager, wide) where the program is a module."""


def assert_like_eager(
    subject: Subject,
    function: Callable[..., Any],
    make_inputs: Callable[[torch.Generator], Sequence[Any]],
    *,
    generator: torch.Generator,
    grad: bool = False,
    dynamic: bool | None = None,
    calls: int = 3,
    dtype: torch.dtype | None = None,
    options: dict[str, Any] | None = None,
    check_layout: bool = True,
    fullgraph: bool = True,
    random: bool = False,
    settle: Callable[[list[Any], Any, Any], Any] | None = None,
) -> None:
    """Compile `function` once and call it with fresh values, each time as eager: results, effects and gradients.

    make_inputs: generator -> the positional arguments; floating-point ones are cast to `dtype` where it is given. With
    `grad`, the floating-point inputs that want gradients (all, where none does) and a module's parameters get them
    checked. check_layout: strides are those of eager. random: the program draws numbers, so it has no reference in
    float64. settle: of a result that may differ from eager's, what has to be equal to it (see orders). Raises
    AssertionError with "[rule] text" in its first line; the rules are RULES.
    """
    versions = _versions(subject, function, dynamic=dynamic, options=options, fullgraph=fullgraph, dtype=dtype)
    check = _Check(subject, versions, generator, grad=grad, check_layout=check_layout, random=random, settle=settle)
    kept: list[tuple[Any, Any]] = []
    args: list[Any] = []
    for _ in range(calls):
        args = _cast(list(make_inputs(generator)), dtype)
        run = check.call(args)
        kept.append((run.result, copied(run.result)))
        _require_kept(kept)
    with observing() as observation:
        check.changed_in_place(args, _cast(list(make_inputs(generator)), dtype))
    _require_kept(kept)
    _require_declared(subject, observation)


def _require_declared(subject: Subject, observation: Observation) -> None:
    """What ran in torch, and which compilers were entered, is what the backend says."""
    subject.observed.compilers |= observation.compilers
    for watched in subject.watched:
        for text in watched.undeclared():
            fail("provenance", text)
    if observation.compilers and not subject.name.startswith(FOREIGN):
        fail("provenance", f"another compiler was used: {', '.join(sorted(observation.compilers))}")


def _cast(args: list[Any], dtype: torch.dtype | None) -> list[Any]:
    return args if dtype is None else copied(args, dtype)


def _versions(
    subject: Subject, function: Callable[..., Any], *, dtype: torch.dtype | None, **compile_options: Any
) -> Versions:
    if not isinstance(function, torch.nn.Module):
        return Versions(subject.compile(function, **compile_options), function, function)
    mine, eager = copy.deepcopy(function), copy.deepcopy(function)
    if dtype is not None:
        mine, eager = mine.to(dtype), eager.to(dtype)
    wide = copy.deepcopy(eager).double()
    return Versions(subject.compile(mine, **compile_options), eager, wide, (mine, eager, wide))


def _require_kept(kept: list[tuple[Any, Any]]) -> None:
    """Results of earlier calls still have the values that they had."""
    for number, (result, snapshot) in enumerate(kept):
        for now, before in zip(tensors_of(result), tensors_of(snapshot)):
            if not same_bits(now, before):
                fail("buffer-reuse", f"the result of call {number} was changed by a later call")


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal values in equal places, NaN like NaN."""
    if one.shape != other.shape or one.dtype is not other.dtype:
        return False
    a, b = one.detach(), other.detach()
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.dtype is torch.complex32:
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    return bool(((a == b) | ((a != a) & (b != b))).all())


class _Judge:
    """The numbers of one call: its reference in float64, and runs on inputs a rounding away where those decide."""

    def __init__(self, check: _Check, before: list[Any], seed: int, weights: list[torch.Tensor]) -> None:
        self.check = check
        self.before = before
        self.seed = seed
        self.weights = weights
        self.dtype = _coarsest(before, PRECISIONS.get(check.subject.precision))
        self.wide = None if check.random else self._run_wide(before, weights)
        self._near: list[tuple[Run, Run]] = []
        self._nudged = 0

    def _run_wide(self, args: list[Any], weights: list[torch.Tensor]) -> Run | None:
        program = self.check.versions.wide
        if program is None:
            return None
        run = self.check.run(program, copied(args, torch.float64), self.seed, weights, 2)
        return run if run.error is None else None

    def near(self, count: int) -> list[tuple[Run, Run]]:
        """(eager, wide) on the same inputs, `count` times, each a rounding away from those of the call."""
        if self.wide is None or self.dtype is None:
            return []
        kept = [(buffer, buffer.clone()) for m in self.check.versions.modules[1:] for buffer in m.buffers()]
        while self._nudged < count:
            self._nudged += 1
            args = copied(self.before)
            nudge(args, self.check.generator)
            weights = [weight.to(self.dtype) for weight in self.weights]  # what backward begins with is an input too
            nudge(weights, self.check.generator)
            wide = self._run_wide(args, weights)
            eager = self.check.run(self.check.versions.eager, copied(args), self.seed, weights, 1)
            if wide is not None and eager.error is None:
                self._near.append((eager, wide))
        for buffer, value in kept:
            buffer.copy_(value)
        return self._near

    def compare(self, rule: str, what: str, mine: Run, eager: Run, pick: Callable[[Run], list[torch.Tensor]]) -> None:
        """Compare the tensors that `pick` finds in the runs. Raises AssertionError."""
        references = pick(self.wide) if self.wide is not None else []
        for at, (one, other) in enumerate(zip(pick(mine), pick(eager))):
            reference = references[at] if at < len(references) else None
            one, other, reference = _strided(one), _strided(other), _strided(reference)
            if reference is not None and reference.dtype is not WIDE.get(other.dtype, other.dtype):
                reference = None
            verdict = compare(one, other, reference, dtype=self.dtype)
            if not verdict.ok:
                verdict = self._second_look(verdict, one, other, reference, pick, at)
            self.check.subject.observed.note_error(verdict.error_ratio)
            if not verdict.ok:
                fail(rule if verdict.rule == "numerics" else verdict.rule, f"{what} {at}: {verdict.text}")

    def _second_look(
        self,
        verdict: Comparison,
        one: torch.Tensor,
        other: torch.Tensor,
        reference: torch.Tensor | None,
        pick: Callable[[Run], list[torch.Tensor]],
        at: int,
    ) -> Comparison:
        """The comparison again, with what inputs a rounding away say of the numbers' condition."""
        if (
            verdict.rule != "numerics"
            or reference is None
            or not reference.is_floating_point() | reference.is_complex()
        ):
            return verdict
        for count in NUDGES:
            samples, moves = [], []
            for eager, wide in self.near(count):
                values, exact = pick(eager), pick(wide)
                if at < min(len(values), len(exact)) and values[at].shape == exact[at].shape == reference.shape:
                    value, truth = _strided(values[at]).detach(), _strided(exact[at]).detach()
                    samples.append(value.to(truth.dtype) - truth)
                    moves.append((truth - reference.detach()) / 2)  # roundings of one unit, half of which is an error
            verdict = compare(one, other, reference, dtype=self.dtype, samples=samples, moves=moves)
            if verdict.ok:
                break
        return verdict


class _Check:
    """The comparisons of one program."""

    def __init__(
        self,
        subject: Subject,
        versions: Versions,
        generator: torch.Generator,
        *,
        grad: bool,
        check_layout: bool,
        random: bool,
        settle: Callable[[list[Any], Any, Any], Any] | None,
    ) -> None:
        self.subject = subject
        self.versions = versions
        self.generator = generator
        self.grad = grad
        self.check_layout = check_layout
        self.random = random
        self.settle = settle

    # -- one call ----------------------------------------------------------------------------------------------------

    def call(self, args: list[Any]) -> Run:
        """Run all versions on copies of `args` and compare. Returns the run of the compiled one."""
        if self.grad:
            _want_gradients(args)
        before = copied(args)
        seed = int(torch.randint(2**31, (), generator=self.generator))
        weights: list[torch.Tensor] = []
        eager = self.run(self.versions.eager, copied(args), seed, weights, 1)
        mine = self.run(self.versions.compiled, copied(args), seed, weights, 0)
        self._compare(mine, eager, before, seed, weights)
        return mine

    def run(
        self, program: Callable[..., Any], args: list[Any], seed: int, weights: list[torch.Tensor], which: int
    ) -> Run:
        """One version of the program on `args`: that of `which` in Versions.modules, or a function."""
        run = Run(args)
        torch.manual_seed(seed)
        try:
            run.result = program(*args)
            if self.grad:
                run.gradients = self._gradients(run, weights, which)
        except Exception as error:  # the program's own, or the backend's: they are compared by class
            run.error = error
        return run

    def _gradients(self, run: Run, weights: list[torch.Tensor], which: int) -> list[torch.Tensor | None]:
        outputs = [t for t in tensors_of(run.result) if t.requires_grad]
        inputs = [t for t in tensors_of(run.args) if t.requires_grad and t.is_leaf]
        if self.versions.modules:
            inputs += [p for p in self.versions.modules[which].parameters() if p.requires_grad]
        if not outputs or not inputs:
            return []
        for output in outputs[len(weights) :]:
            # Quarters up to 4: the same numbers in every dtype.
            weights.append(torch.randint(-16, 17, output.shape, generator=self.generator).double() / 4)
        given = [w.to(o.device, o.dtype) for w, o in zip(weights, outputs)]
        return list(torch.autograd.grad(outputs, inputs, given, allow_unused=True))

    # -- comparisons -------------------------------------------------------------------------------------------------

    def _compare(self, mine: Run, eager: Run, before: list[Any], seed: int, weights: list[torch.Tensor]) -> None:
        if mine.error is not None or eager.error is not None:
            _require_same_error(mine.error, eager.error)
            return
        got, expected = tree_flatten(mine.result), tree_flatten(eager.result)
        if got[1] != expected[1]:
            fail("structure", f"the result is {_outline(mine.result)}, eager's is {_outline(eager.result)}")
        for at, (one, other) in enumerate(zip(got[0], expected[0])):
            self._require_alike(one, other, f"result {at}")
        self._require_same_relations(mine, eager)
        self._numbers(mine, eager, _Judge(self, before, seed, weights), before)

    def _require_alike(self, got: Any, expected: Any, what: str) -> None:
        if not isinstance(expected, torch.Tensor):
            if isinstance(got, torch.Tensor) or type(got) is not type(expected):
                fail("structure", f"{what} is a {type(got).__name__}, eager's is a {type(expected).__name__}")
            if not isinstance(expected, (float, complex)) and got != expected:
                fail("numerics", f"{what} is {got!r}, eager's is {expected!r}")
            return
        if type(got) is not type(expected):
            fail("structure", f"{what} is a {type(got).__name__}, eager's is a {type(expected).__name__}")
        for rule, have, want in (
            ("shape", tuple(got.shape), tuple(expected.shape)),
            ("dtype", got.dtype, expected.dtype),
            ("device", got.device, expected.device),
            ("strides", got.layout, expected.layout),
            ("requires_grad", got.requires_grad, expected.requires_grad),
        ):
            if have != want:
                fail(rule, f"{what} has {rule} {have}, eager's has {want}")
        if self.check_layout and expected.layout is torch.strided and expected.numel():
            have, want = _strides(got), _strides(expected)
            if have != want:
                fail("strides", f"{what} of shape {tuple(got.shape)} has strides {have}, eager's has {want}")

    def _require_same_relations(self, mine: Run, eager: Run) -> None:
        got = relations(tensors_of(mine.result), tensors_of(mine.args))
        expected = relations(tensors_of(eager.result), tensors_of(eager.args))
        if got != expected:
            extra, missing = sorted(got - expected), sorted(expected - got)
            fail(
                "aliasing", "; ".join([*(f"only here: {r}" for r in extra), *(f"only in eager: {r}" for r in missing)])
            )

    def _numbers(self, mine: Run, eager: Run, judge: _Judge, before: list[Any]) -> None:
        settled = mine if self.settle is None else replace(mine, result=self.settle(before, mine.result, eager.result))
        judge.compare("numerics", "result", settled, eager, lambda run: tensors_of(run.result))
        floats = [leaf for leaf in tree_leaves(eager.result) if isinstance(leaf, (float, complex))]
        ours = [leaf for leaf in tree_leaves(mine.result) if isinstance(leaf, (float, complex))]
        for at, (one, other) in enumerate(zip(ours, floats)):
            verdict = compare(torch.tensor(one), torch.tensor(other), dtype=judge.dtype)
            if not verdict.ok:
                fail(verdict.rule, f"number {at}: {verdict.text}")
        self._effects(mine, eager, judge, before)
        if len(mine.gradients) != len(eager.gradients):
            fail("gradients", f"{len(mine.gradients)} gradients, eager gives {len(eager.gradients)}")
        for at, (one, other) in enumerate(zip(mine.gradients, eager.gradients)):
            if (one is None) != (other is None):
                fail("gradients", f"gradient {at} is {'None' if one is None else 'there'}, not so in eager")
        given = eager.gradients
        judge.compare("gradients", "gradient", mine, eager, lambda run: _present(run.gradients, given))

    def _effects(self, mine: Run, eager: Run, judge: _Judge, before: list[Any]) -> None:
        """Inputs have after the call the values that eager gives them, untouched ones bit for bit."""
        for at, (now, want, was) in enumerate(zip(tensors_of(mine.args), tensors_of(eager.args), tensors_of(before))):
            if now.shape != want.shape or now.dtype is not want.dtype or _strides(now) != _strides(want):
                fail("mutation", f"input {at} has another shape, dtype or layout after the call than in eager")
            if same_bits(want, was) and not same_bits(now, was):
                fail("mutation", f"input {at} was changed by the call, eager leaves it alone")
        judge.compare("mutation", "input", mine, eager, lambda run: tensors_of(run.args))
        if self.versions.modules:
            under_test, in_eager = (dict(m.named_buffers()) for m in self.versions.modules[:2])
            for name, buffer in in_eager.items():
                verdict = compare(under_test[name], buffer, dtype=judge.dtype)
                if not verdict.ok:
                    fail("mutation", f"buffer {name}: {verdict.text}")

    # -- values that change under the compiled program ---------------------------------------------------------------

    def changed_in_place(self, args: list[Any], fresh: list[Any]) -> None:
        """The same objects with new values: what the compiled program gives must follow them."""
        old, new = tensors_of(args), tensors_of(fresh)
        if not old or [(t.shape, t.dtype) for t in old] != [(t.shape, t.dtype) for t in new]:
            return
        subjects, eagers = copied(args), copied(args)
        seed = int(torch.randint(2**31, (), generator=self.generator))
        first = self.run(self.versions.compiled, subjects, seed, [], 0)
        if first.error is not None:
            return
        before = copied(first.result)
        self.run(self.versions.eager, eagers, seed, [], 1)
        try:
            for target in (subjects, eagers):
                _overwrite(target, fresh)
        except RuntimeError:
            return  # memory that can't be written to: expanded, or overlapping
        values = copied(eagers)
        weights: list[torch.Tensor] = []
        eager = self.run(self.versions.eager, eagers, seed, weights, 1)
        mine = self.run(self.versions.compiled, subjects, seed, weights, 0)
        try:
            self._compare(mine, eager, values, seed, weights)
        except AssertionError as error:
            stale = all(same_bits(a, b) for a, b in zip(tensors_of(mine.result), tensors_of(before)))
            if stale and tensors_of(before):
                text = "inputs were changed in place, and the results are those of their old values"
                fail("stale-result", f"{text}\n{error}")
            raise error


def _overwrite(target: list[Any], fresh: list[Any]) -> None:
    with torch.no_grad():
        for tensor, source in zip(tensors_of(target), tensors_of(fresh)):
            tensor.detach().copy_(source.detach())


def _want_gradients(args: list[Any]) -> None:
    tensors = [t for t in tensors_of(args) if t.is_floating_point() or t.is_complex()]
    if not any(t.requires_grad for t in tensors):
        for tensor in tensors:
            tensor.requires_grad_()


def _present(values: list[torch.Tensor | None], wanted: list[torch.Tensor | None]) -> list[torch.Tensor]:
    return [value for value, want in zip(values, wanted) if value is not None and want is not None]


def _coarsest(value: Any, label: torch.dtype | None) -> torch.dtype | None:
    floating = [t.dtype for t in tensors_of(value) if t.is_floating_point() or t.is_complex()]
    floating += [label] if label is not None and floating else []
    return max(floating, key=lambda dtype: torch.finfo(dtype).eps, default=None)


def _strided(tensor: Any) -> Any:
    return tensor.to_dense() if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided else tensor


def _outline(value: Any) -> str:
    return str(tree_flatten(value)[1])


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides that say where elements lie: those of dimensions with more than one."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)


def _require_same_error(mine: Exception | None, eager: Exception | None) -> None:
    if mine is None:
        fail("exception", f"no error, eager raises {type(eager).__name__}: {eager}")
    if eager is None:
        raise AssertionError(f"[exception] {type(mine).__name__}: {mine}") from mine
    if not isinstance(mine, type(eager)):
        raise AssertionError(
            f"[exception] {type(mine).__name__}: {mine}\neager raises {type(eager).__name__}: {eager}"
        ) from mine
