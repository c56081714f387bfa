"""Source text with indentation, and the loops that all kernels are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Source:
    """Lines of C++ at a current depth."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def extend(self, texts: Sequence[str]) -> None:
        """Several lines at the current depth."""
        for text in texts:
            self.line(text)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Braces around what is printed inside."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def loop(self, variable: str, begin: str, end: str, step: str = "1", pragma: str = "") -> Iterator[None]:
        """A counting loop."""
        if pragma:
            self.line(f"#pragma {pragma}")
        advance = f"++{variable}" if step == "1" else f"{variable} += {step}"
        with self.block(f"for (long {variable} = {begin}; {variable} < {end}; {advance})"):
            yield

    def text(self) -> str:
        """The whole text."""
        return "\n".join(self.lines)
