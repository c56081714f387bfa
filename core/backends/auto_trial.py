"""One candidate of backend="auto" on trial: run on copies of real inputs, held against eager, and timed.

Enters: a captured graph and the inputs of one call. Leaves: results as plain tensors, a verdict on them, and seconds.
Nothing the user can see changes: inputs are copied with the memory that they share, gradients go to the copies.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..graph.captured import CapturedGraph

Run = Callable[..., Any]

NOISE = 2.0
"""How many standard errors of the median count as noise."""

FACTORS = {torch.float16: 3.0, torch.bfloat16: 3.0}
"""How many times eager's error is allowed, by dtype; 2 for the others."""

ELEMENT = 8.0
SHARE = 0.999
"""An element may be off by ELEMENT times the larger of eager's error and an ulp of the result's scale; SHARE of them
must hold that, all must hold ten times that."""


class Copies:
    """Makes copies of the inputs of one call: tensors that share memory share it in the copy too."""

    def __init__(self, captured: CapturedGraph, inputs: Sequence[Any]) -> None:
        self.captured = captured
        self._taken = self._copied(inputs)  # the values of this call: later runs start from them
        self._grad = [isinstance(value, torch.Tensor) and value.requires_grad for value in inputs]

    def make(self, convert: Callable[[torch.Tensor], torch.Tensor] | None = None) -> list[Any]:
        """A fresh copy, of which what requires gradients in the call does so again."""
        made = self._copied(self._taken)
        if convert is not None:
            made = [convert(value) if isinstance(value, torch.Tensor) else value for value in made]
        return [
            value.requires_grad_() if grad and not value.requires_grad else value
            for value, grad in zip(made, self._grad)
        ]

    @staticmethod
    def _copied(inputs: Sequence[Any]) -> list[Any]:
        storages: dict[int, torch.UntypedStorage] = {}
        made = []
        with torch.no_grad():
            for value in inputs:
                if not isinstance(value, torch.Tensor):
                    made.append(value)
                    continue
                source = value.detach()
                key = source.untyped_storage()._cdata
                if key not in storages:
                    storages[key] = source.untyped_storage().clone()
                empty = torch.empty(0, dtype=source.dtype, device=source.device)
                made.append(empty.set_(storages[key], source.storage_offset(), source.shape, source.stride()))
        return made


def size_bytes(inputs: Iterable[Any]) -> int:
    """Memory that a copy of some inputs takes."""
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in inputs if isinstance(t, torch.Tensor)}
    return sum(storages.values())


def run_once(captured: CapturedGraph, run: Run, inputs: Sequence[Any]) -> list[Any]:
    """Outputs, inputs written to, and gradients of one run, detached. `inputs` are copies."""
    outputs = run(*inputs)
    results = [value.detach() if isinstance(value, torch.Tensor) else value for value in outputs]
    results += [inputs[index].detach() for index in sorted(captured.mutated)]
    if captured.needs_grad:
        results += _gradients(outputs, inputs)
    return results


def _gradients(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Gradients of a weighted sum of the outputs: the same weights for every candidate."""
    carrying = [value for value in outputs if isinstance(value, torch.Tensor) and value.requires_grad]
    leaves = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]
    if not carrying or not leaves:
        return []
    tangents = [_tangent(value) for value in carrying]
    return list(torch.autograd.grad(carrying, leaves, tangents, allow_unused=True))


def _tangent(output: torch.Tensor) -> torch.Tensor:
    """Numbers from -1 to 1 that depend on the place alone."""
    count = torch.arange(output.numel(), device=output.device, dtype=torch.float64)
    return ((count * 0.7548776662466927) % 1 * 2 - 1).reshape(output.shape).to(output.dtype)


# -- numerics ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """ratio: the candidate's error as a multiple of eager's; reason: why it is refused, empty when it is right."""

    ratio: float = 0.0
    reason: str = ""


class Reference:
    """What a call gives: eager's results in the graph's own dtypes, and in float64 where that can be had."""

    def __init__(self, captured: CapturedGraph, copies: Copies) -> None:
        self.eager = run_once(captured, captured.module.forward, copies.make())
        self.exact = self._in_float64(captured, copies) or self.eager

    def _in_float64(self, captured: CapturedGraph, copies: Copies) -> list[Any] | None:
        try:
            exact = run_once(captured, captured.module.forward, copies.make(_widened))
        except RuntimeError:
            return None  # the program itself fixes a dtype: eager's own results are the reference then
        return exact if all(_is_wide(value) for value in exact) else None

    def judge(self, results: Sequence[Any]) -> Verdict:
        """Hold a candidate's results against the reference, in two parts: the error as a whole, and each element."""
        worst = 0.0
        if len(results) != len(self.eager):
            return Verdict(reason=f"{len(results)} results, eager has {len(self.eager)}")
        for index, (got, eager, exact) in enumerate(zip(results, self.eager, self.exact)):
            verdict = _compare(got, eager, exact)
            if verdict.reason:
                return Verdict(verdict.ratio, f"result {index}: {verdict.reason}")
            worst = max(worst, verdict.ratio)
        return Verdict(worst)


def _widened(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def _is_wide(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dtype is torch.float64


def _compare(got: Any, eager: Any, exact: Any) -> Verdict:
    if not isinstance(eager, torch.Tensor):
        return Verdict(reason="" if got is None and eager is None or got == eager else f"{got!r}, eager has {eager!r}")
    if not isinstance(got, torch.Tensor):
        return Verdict(reason=f"{type(got).__name__}, eager has a tensor")
    if got.dtype is not eager.dtype or got.shape != eager.shape:
        return Verdict(reason=f"{got.dtype} {tuple(got.shape)}, eager has {eager.dtype} {tuple(eager.shape)}")
    if not eager.is_floating_point():
        return Verdict(reason="" if torch.equal(got, eager) else "values differ where eager's are exact")
    return _compare_floats(got.double(), eager.double(), exact.double(), eager.dtype)


def _compare_floats(got: Any, eager: Any, exact: Any, dtype: torch.dtype) -> Verdict:
    finite = torch.isfinite(eager)
    same = torch.equal(got.nan_to_num(0, 1, -1)[~finite], eager.nan_to_num(0, 1, -1)[~finite])
    if not torch.equal(torch.isfinite(got), finite) or not same:
        return Verdict(float("inf"), "NaN or infinity stand elsewhere than in eager's result")
    got, eager, exact = got[finite], eager[finite], exact[finite]
    if got.numel() == 0:
        return Verdict()
    eps = torch.finfo(dtype).eps
    scale = float(exact.square().mean().sqrt())
    ours, theirs = got - exact, eager - exact
    error, baseline = float(ours.square().mean().sqrt()), float(theirs.square().mean().sqrt())
    unit = eps * scale
    ratio = error / max(baseline, unit, torch.finfo(torch.float64).tiny)
    if error > FACTORS.get(dtype, 2.0) * baseline + unit:
        return Verdict(ratio, f"root mean square error {error:.3g}, eager's is {baseline:.3g}")
    allowed = ELEMENT * torch.maximum(theirs.abs(), eps * (exact.abs() + scale))
    over = ours.abs() > allowed
    if float(over.double().mean()) > 1 - SHARE or bool((ours.abs() > 10 * allowed).any()):
        return Verdict(ratio, f"{int(over.sum())} of {over.numel()} elements are further off than eager explains")
    return Verdict(ratio)


# -- time -------------------------------------------------------------------------------------------------------------


def measure(
    captured: CapturedGraph, runs: Sequence[Run], copies: Copies, seconds: float, *, rounds: int = 10
) -> list[list[float]]:
    """Seconds of each run, one a round, taken in turn; warmed up before. Ends with the time, after 3 rounds or more."""
    inputs = [copies.make() for _ in runs]
    for run, given in zip(runs, inputs):
        run_once(captured, run, given)
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    while len(times[0]) < 3 or (time.perf_counter() < end and len(times[0]) < 20 * rounds):
        turn = len(times[0]) % len(runs)  # nobody always runs behind the same one
        for at in [*range(turn, len(runs)), *range(turn)]:
            _settle(inputs[at])
            begin = time.perf_counter()
            run_once(captured, runs[at], inputs[at])
            _settle(inputs[at])
            times[at].append(time.perf_counter() - begin)
    return times


def _settle(inputs: Sequence[Any]) -> None:
    """Wait for a device that works behind the program's back."""
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs):
        torch.cuda.synchronize()


def ratio_of(times: Sequence[float], base: Sequence[float]) -> tuple[float, float]:
    """(median of the paired ratios to `base`, how far noise may move it)."""
    ratios = [one / other for one, other in zip(times, base)]
    middle = statistics.median(ratios)
    spread = 1.4826 * statistics.median(abs(ratio - middle) for ratio in ratios)
    return middle, NOISE * 1.2533 * spread / len(ratios) ** 0.5
