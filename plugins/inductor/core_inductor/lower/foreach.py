"""Operations on lists of tensors, as in a step of an optimizer: the same operation on each tensor, which is what
eager's kernels do on the CPU. What a step does to one parameter becomes one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from .registry import LOWERINGS, lowers

UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()

OF_TWO = {
    "add": "add.Tensor",
    "sub": "sub.Tensor",
    "mul": "mul.Tensor",
    "div": "div.Tensor",
    "clamp_min": "clamp_min",
    "clamp_max": "clamp_max",
    "maximum": "clamp_min",
    "minimum": "clamp_max",
    "pow": "pow.Tensor_Scalar",
}
"""List operations with a list, a number or numbers behind the list, and what they do to one tensor."""

OF_THREE = {"lerp": "lerp.Scalar", "addcmul": "addcmul", "addcdiv": "addcdiv"}

FACTORS = frozenset({"alpha", "value"})
"""Keywords that are the same for each tensor."""


@dataclass
class Part:
    """What a lowering reads of an fx node, for one tensor of a list."""

    node: fx.Node
    meta: dict[str, Any]

    def __str__(self) -> str:
        return self.node.name


def _each(name: str) -> Callable[..., Any]:
    def lower(lowering: Any, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
        one = LOWERINGS[f"aten::{name}"]
        fakes = node.meta["val"]
        if not isinstance(fakes, (list, tuple)) or not kwargs.keys() <= FACTORS:
            return NotImplemented
        results = []
        for k, fake in enumerate(fakes):
            given = [a[k] if isinstance(a, (list, tuple)) else a for a in args]
            results.append(one(lowering, Part(node, {"val": fake}), *given, **kwargs))
            if results[-1] is NotImplemented:
                return NotImplemented
        return tuple(results)

    return lower


for _name in UNARY:
    lowers(f"_foreach_{_name}")(_each(_name))
for _name, _one in OF_TWO.items():
    lowers(*(f"_foreach_{_name}.{kind}" for kind in ("Scalar", "ScalarList", "List")))(_each(_one))
for _name in ("add", "mul", "div"):
    lowers(f"_foreach_{_name}.Tensor")(_each(OF_TWO[_name]))
for _name, _one in OF_THREE.items():
    lowers(f"_foreach_{_name}.Scalar", f"_foreach_{_name}.ScalarList")(_each(_one))
lowers("_foreach_lerp.List")(_each("lerp.Tensor"))
lowers("_foreach_pow.List")(_each("pow.Tensor_Tensor"))
