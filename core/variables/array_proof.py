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
        self.takes_numbers = False  # whether numbers of NumPy's types stand for Python's: where no array gives a dtype
        self._given: list[tuple[Any, Any]] = []  # (fake, array of ones)
        self._numbers: list[Any] = []  # arrays that stand for scalars in torch's layer

    def ones(self, fake: Any, scalar: bool, read_only: bool = False) -> Any:
        """What an operand is in the trial: ones, in the same memory for the same fake."""
        array = self._memory(fake)
        if scalar:
            return array[()]
        if read_only:
            array = array.view()
            array.flags.writeable = False
        return array

    def tensor(self, fake: Any) -> Any:
        """As `ones`, for an operand that is a tensor in the program."""
        return torch.from_numpy(self._memory(fake))

    def number(self, scalar: Any) -> Any:
        """A tensor in place of a NumPy scalar, for torch's layer."""
        import numpy

        array = numpy.array(scalar)
        self._numbers.append(array)
        return torch.from_numpy(array)

    def of_array(self, array: Any) -> Any:
        """The tensor over an array of the trial, also over one that can't be written to."""
        import numpy

        for _, ones in self._given:
            if not array.flags.writeable and numpy.may_share_memory(array, ones):
                return torch.from_numpy(ones)
        return torch.from_numpy(array)

    def _memory(self, fake: Any) -> Any:
        for known, array in self._given:
            if known is fake:
                return array
        if extent(fake) * fake.element_size() > LARGEST_TRIAL_BYTES:
            raise Unsupported("a NumPy call on arrays of this size is not traced", remedy=REMEDY)
        sizes, strides = [hint(size) for size in fake.shape], [hint(stride) for stride in fake.stride()]
        array = torch.empty_strided(sizes, strides, dtype=fake.dtype).fill_(1).numpy()
        self._given.append((fake, array))
        return array

    def run(self, what: str, call: Callable[[], Any], errors: str = "ignore") -> Any:
        """The result. errors: what NumPy does about an overflow and its kin.

        Raises Unsupported where NumPy raises: Python runs the call and sees why.
        """
        import numpy

        try:
            with numpy.errstate(all=errors):
                return call()
        except FAILURES as error:  # eager decides with the real values
            raise Unsupported(f"{what} raises {type(error).__name__} on arrays like these", remedy=REMEDY) from None

    def shares(self, tree: Any) -> bool:
        """True when one of these results, arrays or tensors, lies in the memory of an operand."""
        import numpy

        found = [leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves(tree)]
        arrays = [leaf for leaf in found if isinstance(leaf, numpy.ndarray)]
        theirs = [*(ones for _, ones in self._given), *self._numbers]
        return any(numpy.may_share_memory(array, one) for array in arrays for one in theirs)

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
        for operand, ones in self._given:
            shared = storage_key(operand) == storage_key(fake)
            if shared != numpy.may_share_memory(array, ones) and array.size:
                words = ("a copy", "a view") if shared else ("a view", "a copy")
                raise Unsupported(f"{what} gives {words[0]} in NumPy and {words[1]} in torch's layer", remedy=REMEDY)


def _words(dtype: Any, sizes: Any) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(sizes)}"
