"""Whether numbers are right: a rule of two parts, measured against eager's own error.

Enters: the result under test, eager's result, and a reference in float64 on the same values. Leaves: a Comparison.

1. The root mean square error may be FACTOR times that of eager (more where it is the mean of few elements), and one
   rounding of the result more.
2. Each element's error is set against what is usual there: the largest of eager's error at that element, a rounding of
   the element, the typical error among elements of like size, and (where the caller measured them) eager's errors on
   inputs that are a rounding away and how far the reference moves between those. 99.9 % of the elements may have
   `ELEMENT` times that, all of them ten times.

The first part finds a computation in a lower precision, the second finds single wrong elements, which no mean shows.
Integers, truth values and the places of NaN and infinities have no tolerance; but where eager has NaN and the reference
a number, that number is right too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

FACTOR = {torch.float16: 3.0, torch.bfloat16: 3.0}
"""k of the first part; 2 for what is not named."""
FEW = 4.0
"""A mean over n elements is itself uncertain: k grows by FEW / sqrt(n), to five times for a single number."""
ELEMENT = 16.0
"""c of the second part. See docs/conformance.md for the calibration of both."""
STRAY = 0.001
"""The share of elements that may exceed c, up to ten times it."""
CONDITION_LIMIT = 1024.0
"""How many roundings of a typical element a measured condition may be worth."""
NEIGHBOURS = 64
"""How many elements of like size make the typical error."""
PRECISIONS = {"tf32": torch.float16, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Labels of runs in a lower precision: a dtype with the spacing of numbers that is calculated with."""
WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}


@dataclass(frozen=True)
class Comparison:
    """The verdict. `rule` is what failed ("" for none), `where` the index of the worst element, `text` says it."""

    ok: bool
    rule: str = ""
    error_ratio: float = 0.0
    where: tuple[int, ...] = ()
    text: str = ""


def compare(
    got: torch.Tensor,
    eager: torch.Tensor,
    reference: torch.Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    samples: Sequence[torch.Tensor] = (),
    moves: Sequence[torch.Tensor] = (),
) -> Comparison:
    """Compare a result with eager's and with a reference of higher precision.

    reference: None where the operation has none in float64, and for float64 itself; eager is the reference then.
    dtype: what was calculated in, where it is coarser than the results' own. samples: more of eager's errors, on inputs
    that are roundings away. moves: how far the reference moves between such inputs.
    """
    different = _metadata(got, eager)
    if different is not None:
        return different
    got, eager = got.detach(), eager.detach()
    if not (eager.is_floating_point() or eager.is_complex()):
        return _exact(got, eager)
    if got.numel() == 0:
        return Comparison(True)
    eager = _found_again(got, eager, reference)
    misplaced = _misplaced(got, eager)
    if misplaced is not None:
        return misplaced
    coarse = _rounding(eager.dtype) if dtype is None else max(_rounding(eager.dtype), _rounding(dtype))
    errors = _errors(got, eager, reference, coarse, samples, moves)
    return Comparison(True) if errors is None else _verdict(errors, got, eager)


def measures(
    got: torch.Tensor,
    eager: torch.Tensor,
    reference: torch.Tensor,
    samples: Sequence[torch.Tensor] = (),
    moves: Sequence[torch.Tensor] = (),
) -> tuple[float, torch.Tensor]:
    """What the two parts of the rule look at: the root mean square error as a multiple of what is allowed before the
    factor, and each element's error as a multiple of what is usual there. Arguments are those of `compare`."""
    errors = _errors(got.detach(), eager.detach(), reference, _rounding(eager.dtype), samples, moves)
    if errors is None:
        return 0.0, torch.zeros(0, dtype=torch.float64)
    spread = 1.0 + FEW / math.sqrt(errors.error.numel())
    allowed = spread * errors.mean_usual + errors.rounding + errors.least
    return float(_rms(errors.error)) / allowed, errors.error / errors.usual


def _metadata(got: torch.Tensor, eager: torch.Tensor) -> Comparison | None:
    if got.dtype is not eager.dtype:
        return Comparison(False, "dtype", text=f"{got.dtype}, eager has {eager.dtype}")
    if got.shape != eager.shape:
        return Comparison(False, "shape", text=f"{tuple(got.shape)}, eager has {tuple(eager.shape)}")
    return None


def _exact(got: torch.Tensor, eager: torch.Tensor) -> Comparison:
    differs = (got != eager).reshape(-1)
    count = int(differs.sum())
    if not count:
        return Comparison(True)
    at = int(differs.nonzero()[0])
    where = _index(at, eager.shape)
    text = (
        f"{count} of {eager.numel()} elements differ; at {list(where)}: {_item(got, at)}, eager has {_item(eager, at)}"
    )
    return Comparison(False, "numerics", math.inf, where, text)


def _rounding(dtype: torch.dtype) -> float:
    """The spacing of numbers at one, 0.0 for dtypes that do not round."""
    return torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0


@dataclass(frozen=True)
class _Errors:
    """The errors of a result, and what they are set against; one row of numbers each, of the finite elements alone."""

    places: torch.Tensor
    got: torch.Tensor
    eager: torch.Tensor
    reference: torch.Tensor
    error: torch.Tensor
    usual: torch.Tensor
    """What is usual at each element."""
    mean_usual: float
    rounding: float
    """One rounding of a typical element, and what the inputs' roundings move."""
    least: float


def _errors(
    got: torch.Tensor,
    eager: torch.Tensor,
    reference: torch.Tensor | None,
    eps: float,
    samples: Sequence[torch.Tensor],
    moves: Sequence[torch.Tensor],
) -> _Errors | None:
    """None where no element is finite in all versions."""
    own = reference is None or eager.dtype in (torch.float64, torch.complex128) or reference.shape != eager.shape
    wanted = eager if own or reference is None else reference.detach()
    g, e, r, size = _flat(got), _flat(eager), _flat(wanted), _modulus(wanted)
    usable = g.isfinite() & e.isfinite() & r.isfinite()
    if not bool(usable.any()):
        return None
    places = torch.arange(g.numel())[usable]
    g, e, r, size = g[usable], e[usable], r[usable], size[usable]
    moved = _largest(moves, usable, size)
    moved = torch.minimum(moved, CONDITION_LIMIT * eps * size.clamp(min=float(_rms(size))))
    rounding = torch.maximum(eps * size, moved)
    error, of_eager = (g - r).abs(), (e - r).abs()
    mean_usual = float(_rms(of_eager))
    if own:  # nothing says how far eager is off: two roundings of the result, and what those of the inputs are worth
        of_eager = 2.0 * rounding
        mean_usual = float(_rms(of_eager))
    elif samples:
        drawn = [_flat(sample).abs()[usable].nan_to_num(0.0, 0.0, 0.0) for sample in samples]
        mean_usual = max(mean_usual, float(_rms(torch.stack([of_eager, *drawn]))))
        of_eager = torch.maximum(of_eager, torch.stack(drawn).amax(0))
    least = torch.finfo(eager.dtype).smallest_normal * eps
    usual = torch.maximum(of_eager, rounding)
    usual = torch.maximum(usual, _typical(usual, size)).clamp(min=least)
    return _Errors(places, g, e, r, error, usual, mean_usual, eps * float(_rms(r)) + float(_rms(moved)), least)


def _largest(values: Sequence[torch.Tensor], usable: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    rows = [_flat(value).abs()[usable].nan_to_num(0.0, 0.0, 0.0) for value in values]
    return torch.stack(rows).amax(0) if rows else torch.zeros_like(like)


def _verdict(errors: _Errors, got: torch.Tensor, eager: torch.Tensor) -> Comparison:
    mean_error = float(_rms(errors.error))
    spread = 1.0 + FEW / math.sqrt(errors.error.numel())
    allowed = FACTOR.get(eager.dtype, 2.0) * spread * errors.mean_usual + errors.rounding + errors.least
    ratio = mean_error / max(errors.mean_usual, errors.rounding, errors.least)
    excess = errors.error / errors.usual
    worst = int(excess.argmax())
    at = int(errors.places[worst])
    where = _index(at // 2 if got.is_complex() else at, got.shape)
    g, e, r = (float(row[worst]) for row in (errors.got, errors.eager, errors.reference))
    values = f"worst, {float(excess[worst]):.3g} times, at {list(where)}: {g!r}, eager {e!r}, reference {r!r}"
    if mean_error > allowed:
        text = (
            f"root mean square error {mean_error:.3g}, allowed {allowed:.3g}, eager {errors.mean_usual:.3g}; {values}"
        )
        return Comparison(False, "numerics", ratio, where, text)
    strays = int((excess > ELEMENT).sum())
    if strays > int(STRAY * excess.numel()) or float(excess[worst]) > 10 * ELEMENT:
        text = f"{strays} of {excess.numel()} elements are off by more than {ELEMENT:g} times what is usual; {values}"
        return Comparison(False, "numerics", ratio, where, text)
    return Comparison(True, error_ratio=ratio)


def _found_again(got: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor | None) -> torch.Tensor:
    """Eager's result, with the reference's numbers where eager alone has none.

    Kernels for many elements at a time lose what those for one keep: `fmod` by a divisor near zero. A number in such a
    place is held against the reference as any other is; NaN there is eager's.
    """
    if reference is None or reference.shape != eager.shape:
        return eager
    reference = reference.detach().to(eager.device)
    lost = eager.isnan() & reference.isfinite() & got.isfinite()
    return torch.where(lost, reference.to(eager.dtype), eager) if bool(lost.any()) else eager


def _misplaced(got: torch.Tensor, eager: torch.Tensor) -> Comparison | None:
    """The first place where one is NaN or infinite and the other is not the same."""
    g, e = _flat(got), _flat(eager)
    wrong = (g.isnan() != e.isnan()) | ((g.isinf() | e.isinf()) & (g != e) & ~(g.isnan() | e.isnan()))
    count = int(wrong.sum())
    if not count:
        return None
    at = int(wrong.nonzero()[0])
    where = _index(at // 2 if got.is_complex() else at, got.shape)
    text = f"{count} elements: NaN or infinity elsewhere; at {list(where)}: {float(g[at])!r}, eager {float(e[at])!r}"
    return Comparison(False, "nan-positions", math.inf, where, text)


def _typical(error: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """For each element, the root mean square error among the elements next to it in size."""
    count = error.numel()
    near = min(NEIGHBOURS, count)
    order = size.argsort()
    total = torch.cat((torch.zeros(1, dtype=error.dtype), (error[order] ** 2).cumsum(0)))
    middle = torch.arange(count)
    low = (middle - near // 2).clamp(0, count - near)
    result = torch.empty_like(error)
    result[order] = ((total[low + near] - total[low]).clamp(min=0.0) / near).sqrt()
    return result


def _flat(value: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor in a row, on the CPU, in float64; a complex number is two."""
    value = value.resolve_conj().resolve_neg() if value.is_complex() else value.resolve_neg()
    wide = value.to("cpu", torch.complex128 if value.is_complex() else torch.float64).contiguous()
    return (torch.view_as_real(wide) if wide.is_complex() else wide).reshape(-1)


def _modulus(value: torch.Tensor) -> torch.Tensor:
    """The absolute value of each number; both parts of a complex number get that of the whole."""
    if not value.is_complex():
        return _flat(value).abs()
    return _flat(value).view(-1, 2).norm(dim=1).repeat_interleave(2)


def _rms(value: torch.Tensor) -> torch.Tensor:
    return value.square().mean().sqrt()


def _index(at: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(at), shape)) if shape else ()


def _item(value: torch.Tensor, at: int) -> object:
    return value.reshape(-1)[at].item()
