"""The functions of a translation unit: equal ones are one.

Enters: texts from the parameter list on, and how a kernel's pointers lie: inputs, buffers that are passed for their
storage alone, outputs. Leaves: names. Kernels that differ in the number of those buffers alone share what is costly to
compile: the second one is a function that passes the pointers on as the first one reads them.
"""

from __future__ import annotations

PARAMETERS = "(void *const *ptrs, const long *ints, const double *floats, int nthreads) {"
"""How every function begins."""


class Functions:
    """Functions by their text, and what kernels share."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.shared: dict[str, tuple[str, int]] = {}

    def named(self, text: str) -> str:
        """The name of the function with a text."""
        return self.texts.setdefault(text, f"k{len(self.texts)}")

    def kernel(self, body: str, inputs: int, unread: int, outputs: int) -> str:
        """The name of a function with a body that finds its outputs at `outs`, behind inputs and unread pointers."""
        known = self.shared.get(body)
        if known is None:
            text = f"{PARAMETERS}\n    void *const *outs = ptrs + {inputs + unread};\n{body}"
            known = self.shared[body] = self.named(text), unread
        name, gap = known
        return name if gap == unread else self.named(_passing_on(name, inputs, gap, unread, outputs))

    def printed(self) -> list[str]:
        """All functions, each behind those that it calls."""
        return [f'extern "C" int {name}{text}' for text, name in self.texts.items()]


def _passing_on(name: str, inputs: int, gap: int, unread: int, outputs: int) -> str:
    first = inputs + unread
    given = [f"ptrs[{k}]" for k in range(inputs)] + ["nullptr"] * gap
    given += [f"ptrs[{k}]" for k in range(first, first + outputs)]
    return (
        f"{PARAMETERS}\n    void *const given[] = {{{', '.join(given)}}};\n"
        f"    return {name}(given, ints, floats, nthreads);\n}}"
    )
