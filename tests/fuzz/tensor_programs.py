"""Random programs of tensors: straight lines of views, writes, values, random numbers and gradients.

A program is written while it runs: each line is tried on the tensors at hand, and most of those that raise are dropped,
so that shapes, dtypes and layouts go together without being known beforehand.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from programs import Program
from tensor_functions import ALGEBRA, ASSIGNMENTS, FUNCTIONS, NUMBERS, PLACES
from tensor_steps import GRADIENTS, MADE, RANDOM, VALUES, VIEWS, WRITES, Step

HEADER = "import torch\nimport torch.nn.functional as F\n"
SHAPES = ("n, 4", "n, 4", "n, 4", "4, 4", "4,", "n,", "", "2, n, 4", "n, 1", "1, 4", "0, 4", "n, 4, 4, 4", "2, 4, n, 4")
REAL = ("float32",) * 6 + ("float64", "bfloat16", "float16")
OTHER = ("int64", "int64", "int32", "uint8", "int8", "bool", "complex64")
SIZES = ((3, 3, 3, 3), (3, 3, 5, 2), (3, 5, 4, 3), (2, 2, 2, 6))
FAMILIES = ((VIEWS, 5), (WRITES, 4), (VALUES, 6), (RANDOM, 0.4), (GRADIENTS, 0.5))
FURTHER = ((VIEWS, 2), (WRITES, 1), (VALUES, 1.5), (GRADIENTS, 0.3), (FUNCTIONS, 4), (ALGEBRA, 2), (NUMBERS, 3))
FURTHER += ((PLACES, 3), (ASSIGNMENTS, 3))
LARGEST = 4096


class TensorWriter:
    """Writes one program of steps of the families, which have weights; `space` is where it has run so far."""

    def __init__(self, seed: int, families: Sequence[tuple[Sequence[Step], float]] = FAMILIES) -> None:
        self.families = families
        self.rng = random.Random(seed)
        self.space: dict[str, Any] = {}
        self.names: list[str] = []
        self.leaves: list[str] = []
        self.made = 0
        self.breaking = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def program(self) -> Program:
        arguments = self.arguments()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec("\n".join([HEADER, *arguments]), self.space)
            torch.manual_seed(0)
            values = self.space["arguments"](0)
            self.space.update(zip(self.names, values))
            self.leaves = [name for name in self.names if self.space[name].requires_grad]
            parameters = list(self.names)
            lines = self.block(self.rng.choice((3, 5, 7, 9)))
        results = list(dict.fromkeys([self.names[-1], *self.rng.sample(self.names, min(len(self.names), 3))]))
        body = [f"def program({', '.join(parameters)}):", *("    " + line for line in lines)]
        body.append(f"    return {', '.join(results)},")
        return Program(0, "\n".join([HEADER, *body, "", "", *arguments, ""]), self.breaking)

    # -- arguments -------------------------------------------------------------------------------------------------

    def arguments(self) -> list[str]:
        """`arguments(call)` and the names that it gives."""
        lines = ["def arguments(call):", f"    n = {self.rng.choice(SIZES)}[call]", "    torch.manual_seed(call)"]
        for at in range(self.rng.randint(1, 3)):
            name = "xyz"[at]
            lines += [f"    {line}" for line in self.argument(name)]
            self.names.append(name)
        if len(self.names) > 1 and self.chance(0.15):
            lines.append(f"    {self.names[1]} = {self.rng.choice(('x', 'x[...]', 'x.detach()', 'x.reshape(-1)'))}")
        return [*lines, f"    return {', '.join(self.names)},"]

    def argument(self, name: str) -> list[str]:
        shape = self.rng.choice(SHAPES)
        dtype = self.rng.choice(REAL) if self.chance(0.75) else self.rng.choice(OTHER)
        sizes = [size.strip() for size in shape.split(",") if size.strip()]
        made = f"torch.randn({', '.join(sizes) or '()'})"
        layouts = [made] * 3
        if len(sizes) > 1:
            layouts.append(
                f"torch.randn({', '.join(reversed(sizes))}).permute({', '.join(map(str, range(len(sizes))[::-1]))})"
            )
            layouts.append(f"torch.randn({', '.join(sizes)}, 2)[..., 1]")
            layouts.append(f"torch.randn({sizes[0]}, {', '.join(sizes[1:-1] + ['6'])})[..., 1:{sizes[-1]} + 1]")
        if len(sizes) == 4:
            layouts += [f"{made}.contiguous(memory_format=torch.channels_last)"] * 2
        if sizes and self.chance(0.06):
            layouts = [f"torch.randn({', '.join(['1', *sizes[1:]])}).expand({', '.join(sizes)})"]
        made = self.rng.choice(layouts)
        if dtype == "bool":
            return [f"{name} = {made} > 0"]
        if dtype == "complex64":
            made = f"torch.complex({made}, {made})"
        elif dtype in OTHER:
            made = f"({made} * 3).to(torch.{dtype})" if dtype != "uint8" else f"({made} * 3).abs().to(torch.uint8)"
        elif dtype != "float32":
            made = f"{made}.to(torch.{dtype})"
        lines = [f"{name} = {made}"]
        if (dtype in REAL or dtype == "complex64") and self.chance(0.4):
            lines.append(f"{name}.requires_grad_()")
            if self.chance(0.6):
                lines.append(f"{name} = {name} * 1")
        return lines

    # -- lines -----------------------------------------------------------------------------------------------------

    def block(self, steps: int) -> list[str]:
        lines: list[str] = []
        for _ in range(steps):
            lines += self.line()
        return lines

    def line(self) -> list[str]:
        """A line that runs, or now and then one that raises within a `try`; nothing where none was found."""
        for _ in range(6):
            step = self.step()
            if step is None:
                continue
            text, name = step
            quiet = self.chance(0.1)
            lines = ["with torch.no_grad():", f"    {text}"] if quiet else [text]
            kept = self.kept()
            try:
                exec("\n".join(lines), self.space)
                fine = self.fits(name)
            except (
                RuntimeError,
                ValueError,
                IndexError,
                TypeError,
                AssertionError,
                NotImplementedError,
                ArithmeticError,
            ):
                self.space.update(kept)
                if not self.chance(0.03):
                    continue
                lines = [
                    "try:",
                    *("    " + line for line in lines),
                    "except Exception as error:",
                    "    print(type(error).__name__)",
                ]
                return lines
            if not fine:
                self.space.update(kept)
                continue
            if name is not None:
                self.names.append(name)
            return lines
        return []

    def kept(self) -> dict[str, Any]:
        return {name: self.space[name] for name in self.names}

    def fits(self, name: str | None) -> bool:
        if name is None:
            return all(self.space[other].numel() <= LARGEST for other in self.names)
        value = self.space[name]
        return isinstance(value, torch.Tensor) and value.numel() <= LARGEST

    def step(self) -> tuple[str, str | None] | None:
        """(text, the name that it defines)."""
        if self.chance(0.05):
            return self.bound(self.rng.choice(MADE).format(k=self.rng.randint(0, 3), p=self.share()))
        tables, weights = zip(*self.families)
        family: Sequence[Step] = self.rng.choices(tables, weights)[0]
        if family is GRADIENTS and not self.leaves:
            family = VALUES
        a = self.names[-1] if self.chance(0.55) else self.rng.choice(self.names)
        tensor = self.space[a]
        options = [text for condition, text in family if condition(tensor)]
        if not options:
            return None
        text = self.filled(self.rng.choice(options), a)
        if family is WRITES or family is ASSIGNMENTS or text.startswith(("v", "(")) and "backward" in text:
            return text, None
        if family is GRADIENTS:
            return (text, text.split(" ")[0]) if " = " in text else (text, None)
        return self.bound(text)

    def bound(self, text: str) -> tuple[str, str]:
        self.made += 1
        return f"v{self.made} = {text}", f"v{self.made}"

    def share(self) -> str:
        return self.rng.choice(("0.5", "0.25", "0.75"))

    def filled(self, text: str, a: str) -> str:
        tensor = self.space[a]
        same = [name for name in self.names if self.space[name].shape == tensor.shape and name != a]
        index = [self.rng.randrange(min(max(tensor.shape[0], 1), 2)) if tensor.ndim else 0 for _ in range(2)]
        made = ""
        if "{n}" in text:
            self.made += 1
            made = f"v{self.made}"
        return text.format(
            a=a,
            b=self.rng.choice(self.names),
            s=self.rng.choice(same) if same and self.chance(0.7) else f"torch.ones_like({a})",
            m=self.rng.choice(
                (
                    f"({a} != 0)",
                    f"({a}.abs() > 0.5)" if tensor.dtype != torch.bool else a,
                    f"torch.ones_like({a}, dtype=torch.bool)",
                )
            ),
            i=f"torch.tensor({index})",
            d=self.rng.randint(-tensor.ndim, tensor.ndim - 1) if tensor.ndim else 0,
            k=self.rng.randint(0, 3),
            p=self.share(),
            n=made,
            l=self.rng.choice(self.leaves) if self.leaves else "x",
        )


def make_tensor_program(seed: int, families: Sequence[tuple[Sequence[Step], float]] = FAMILIES) -> Program:
    """The program of a seed."""
    state = torch.get_rng_state()
    try:
        made = TensorWriter(seed, families).program()
    finally:
        torch.set_rng_state(state)
    return Program(seed, made.text, made.breaking)


def make_function_program(seed: int) -> Program:
    """The program of a seed, of rarer functions and arguments."""
    return make_tensor_program(seed, FURTHER)


if __name__ == "__main__":
    import sys

    print(make_tensor_program(int(sys.argv[1])).text)
