"""What NumPy itself gives for a call: run on arrays of ones of the same dtypes, shapes and strides.

torch's layer of NumPy functions differs from NumPy in corners (promotion, scalars for arrays, views for copies). A call
is traced only where both agree on the kind of each result, its dtype, shape, and whose memory it shares. Which values a
function computes is not proven here: `array_functions` lists those that compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import Unsupported
from ..graph.geometry import extent, hint, storage_key
from ..graph.tree import leaves

LARGEST_TRIAL_BYTES = 1 << 28
"""Above this many bytes of operands a call isn't tried; it becomes a break."""

FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

REMEDY = "call it outside the compiled function, or use torch functions"


class Trial:
    """One call, tried: `ones` stands for each array that it was given."""

    def __init__(self) -> None:
        self._given: list[tuple[Any, Any]] = []  # (fake, array of ones)

    def ones(self, fake: Any, scalar: bool) -> Any:
        """The array of ones for an operand, the same for the same fake."""
        for known, array in self._given:
            if known is fake:
                return array[()] if scalar else array
        if extent(fake) * fake.element_size() > LARGEST_TRIAL_BYTES:
            raise Unsupported("a NumPy call on arrays of this size is not traced", remedy=REMEDY)
        sizes, strides = [hint(size) for size in fake.shape], [hint(stride) for stride in fake.stride()]
        array = torch.empty_strided(sizes, strides, dtype=fake.dtype).fill_(1).numpy()
        self._given.append((fake, array))
        return array[()] if scalar else array

    def run(self, what: str, call: Callable[[], Any]) -> Any:
        """The result. Raises Unsupported where NumPy raises: Python runs the call and sees why."""
        import numpy

        try:
            with numpy.errstate(all="ignore"):
                return call()
        except FAILURES as error:  # eager decides with the real values
            raise Unsupported(f"{what} raises {type(error).__name__} on arrays like these", remedy=REMEDY) from None

    def shares(self, tree: Any) -> bool:
        """True when one of these results, arrays or tensors, lies in the memory of an operand."""
        import numpy

        found = [leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves(tree)]
        arrays = [leaf for leaf in found if isinstance(leaf, numpy.ndarray)]
        return any(numpy.may_share_memory(array, ones) for array in arrays for _, ones in self._given)

    def check(self, what: str, array: Any, fake: Any, scalar: bool) -> None:
        """Raise Unsupported unless `fake`, the traced result, is what NumPy gave."""
        import numpy

        given = torch.from_numpy(numpy.empty(0, array.dtype)).dtype
        sizes = tuple(hint(size) for size in fake.shape)
        if fake.device.type != "cpu":
            raise Unsupported(f"{what} gives a tensor of {fake.device} in torch's layer of NumPy", remedy=REMEDY)
        if fake.dtype != given or sizes != array.shape:
            raise Unsupported(
                f"{what} gives {_words(given, array.shape)} in NumPy and {_words(fake.dtype, sizes)} in torch's layer",
                remedy=REMEDY,
            )
        if scalar:
            return
        if not array.flags.writeable:
            raise Unsupported(f"{what} gives an array that can't be written to", remedy=REMEDY)
        for operand, ones in self._given:
            shared = storage_key(operand) == storage_key(fake)
            if shared != numpy.may_share_memory(array, ones) and array.size:
                words = ("a copy", "a view") if shared else ("a view", "a copy")
                raise Unsupported(f"{what} gives {words[0]} in NumPy and {words[1]} in torch's layer", remedy=REMEDY)


def _words(dtype: Any, sizes: Any) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(sizes)}"
