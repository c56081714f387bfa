"""Random programs whose callers use autograd: several results, several backwards, writes between them, hooks.

`program` is a straight line that gives several results; `after(call, values, results)`, which is not compiled, is the
caller. It takes gradients through some results, keeps graphs or not, writes to what it holds, and notes what it meets.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import torch
from programs import Program

HEADER = """import torch
import torch.nn.functional as F

LEAVES = []
NOTES = []
KEPT = []


def note(step):
    try:
        NOTES.append(plain(step()))
    except RuntimeError as error:
        kinds = {"a second time": "used up", "inplace operation": "used up", "not require grad": "", "leaf Variable": ""}
        found = [kind or word for word, kind in kinds.items() if word in str(error)]
        NOTES.append((type(error).__name__, found))
        for leaf in LEAVES:  # what a backward has added up before it raises is another matter
            leaf.grad = None


def plain(value):  # layouts of gradients follow those that come in
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.contiguous_format)
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def gradients():
    return [leaf.grad for leaf in LEAVES]


def seen(name):
    def hook(gradient):
        if gradient is not None:  # a node of several results tells all of them
            NOTES.append((name, plain(gradient)))
    return hook


def changed(name):
    def hook(gradient):
        if gradient is not None:
            NOTES.append(name)
            return gradient * 2 + 1
    return hook

"""
UNARY = (
    "{a}.sin()", "{a}.exp()", "{a} * 2", "{a} + 1", "-{a}", "{a}.relu()", "{a}.tanh()", "{a}.log()", "{a}.sqrt()",
    "{a}.abs()", "{a} ** 2", "{a} / 2", "{a}.clone()", "{a}.detach()", "{a} * {a}", "1 / {a}", "{a}.softmax(-1)",
    "{a}.cumsum(-1)", "{a}.flip(-1)", "{a}.clamp(-1, 1)", "{a}.sigmoid()", "F.gelu({a})", "{a}.contiguous()",
    "torch.stack({a}.unbind(-1)[::-1], -1)", "torch.cat({a}.chunk(2, -1)[::-1], -1)", "{a} - {a}.mean(-1, keepdim=True)",
    "F.layer_norm({a}, (4,))", "{a}.view(-1).view({a}.shape)", "{a}.t().t()", "{a} * torch.ones(4)", "{a}.round()",
    "{a}[:, [2, 0, 1, 3]]", "{a}.max(-1, keepdim=True)[0] + {a}", "{a} @ torch.ones(4, 4)", "{a}.pow(3)",
)  # fmt: skip
BINARY = (
    "{a} + {b}", "{a} * {b}", "{a} - {b}", "{a} / {b}", "torch.where({a} > 0, {a}, {b})", "torch.maximum({a}, {b})",
    "{a} @ {b}.t() @ {a}", "torch.lerp({a}, {b}, 0.25)", "torch.addcmul({a}, {a}, {b})", "F.mse_loss({a}, {b}) + {a}",
    "torch.stack([{a}, {b}]).sum(0)", "torch.stack([{a}, {b}]).unbind(0)[1]", "torch.hypot({a}, {b})",
)  # fmt: skip
WRITES = ("{a}.mul_(2)", "{a}.add_({b})", "{a}[:, 0] = {b}[:, 1]", "{a}.copy_({b})", "{a}.relu_()", "{a}[0].exp_()")
HOOKS = (
    "{a}.register_hook(lambda gradient: None if gradient is None else gradient * 3)",
    "{a}.register_hook(lambda gradient: None if gradient is None else gradient + 1)",
)
VIEWS = ("{a}[0]", "{a}.t()", "{a}.sum()", "{a}.reshape(-1)", "{a}[..., 1:3]", "{a}.mean(0)")


class AutogradWriter:
    """Writes one program; `space` is where it has run so far."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.space: dict[str, Any] = {}
        self.names: list[str] = []
        self.made = 0
        self.written = False

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def program(self) -> Program:
        arguments = self.arguments()
        parameters = list(self.names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec("\n".join([HEADER, *arguments]), self.space)
            torch.manual_seed(0)
            self.space.update(zip(self.names, self.space["arguments"](0)))
            lines = [line for _ in range(self.rng.choice((3, 4, 6, 8))) for line in self.line()]
            results = self.results()
        body = [f"def program({', '.join(parameters)}):", *("    " + line for line in lines)]
        body.append(f"    return {', '.join(results)},")
        after = self.after(parameters, len(results))
        return Program(0, "\n".join([HEADER, *body, "", "", *arguments, "", "", *after, ""]), 0)

    def arguments(self) -> list[str]:
        lines = ["def arguments(call):", "    torch.manual_seed(call)", "    LEAVES.clear()"]
        for name in "xyz"[: self.rng.randint(1, 3)]:
            made = self.rng.choice(
                ("torch.randn(3, 4)", "torch.randn(3, 4)", "torch.randn(4, 3).t()", "torch.zeros(3, 4)")
            )
            lines.append(f"    {name} = {made}")
            if not self.names or self.chance(0.7):
                lines += [f"    {name}.requires_grad_()", f"    LEAVES.append({name})"]
                if self.chance(0.4):
                    lines.append(f"    {name} = {name} {self.rng.choice(('* 1', '* 2', '+ 0'))}")
                elif self.chance(0.15):
                    lines.append(f"    {name} = {name}.exp()")
            self.names.append(name)
        if self.chance(0.25):
            lines += [
                f"    if KEPT and KEPT[-1].shape == {self.names[-1]}.shape:",
                f"        {self.names[-1]} = KEPT[-1]",
            ]
        return [*lines, f"    return {', '.join(self.names)},"]

    # -- the compiled part -----------------------------------------------------------------------------------------

    def line(self) -> list[str]:
        """A line that runs in eager."""
        for _ in range(8):
            text, name = self.step()
            lines = ["with torch.no_grad():", f"    {text}"] if self.chance(0.07) else [text]
            before = {each: self.space[each] for each in self.names}
            try:
                exec("\n".join(lines), self.space)
                fine = name is None or self.space[name].shape == (3, 4)
            except (RuntimeError, ValueError, IndexError, TypeError):
                fine = False
            if fine:
                if name is not None:
                    self.names.append(name)
                return lines
            self.space.update(before)
        return []

    def step(self) -> tuple[str, str | None]:
        a = self.names[-1] if self.chance(0.4) else self.rng.choice(self.names)
        b = self.rng.choice(self.names)
        tables = ((UNARY, 6), (BINARY, 5), (WRITES, 1.2), (HOOKS, 0.5))
        table = self.rng.choices([each for each, _ in tables], [weight for _, weight in tables])[0]
        text = self.rng.choice(table).format(a=a, b=b)
        if table in (WRITES, HOOKS):
            return text, None
        self.made += 1
        return f"v{self.made} = {text}", f"v{self.made}"

    def results(self) -> list[str]:
        carrying = [name for name in self.names if self.space[name].requires_grad]
        found = [carrying[-1]] if carrying else [self.names[-1]]
        found += self.rng.sample(self.names, min(len(self.names), self.rng.randint(1, 3)))
        found = list(dict.fromkeys(found))
        return [self.rng.choice(VIEWS).format(a=name) if self.chance(0.2) else name for name in found]

    # -- its caller ------------------------------------------------------------------------------------------------

    def after(self, parameters: list[str], results: int) -> list[str]:
        self.results_named = [f"r{at}" for at in range(results)]
        self.held = [*parameters, *self.results_named]
        lines = ["def after(call, values, results):", "    NOTES.clear()", f"    {', '.join(parameters)}, = values"]
        lines.append(f"    {', '.join(self.results_named)}, = results")
        for _ in range(self.rng.randint(2, 6)):
            lines += [f"    {line}" for line in self.deed()]
        if self.chance(0.4):
            lines.append(f"    KEPT.append({self.rng.choice(self.results_named)})")
        lines.append("    note(gradients)")
        return [*lines, "    return NOTES"]

    def deed(self) -> list[str]:
        kind = self.rng.choices(
            ("backward", "both", "grad", "inputs", "twice", "write", "hook", "clear", "again"),
            (6, 2, 5, 1, 1.5, 2.5, 1, 1, 1),
        )[0]
        a, b = self.rng.choice(self.results_named), self.rng.choice(self.results_named)
        keep = self.rng.choice(("retain_graph=True", "retain_graph=False", ""))
        leaves = self.rng.choice(("LEAVES", "LEAVES[:1]", "LEAVES[-1:]"))
        comma = f", {keep}" if keep else ""
        if kind == "backward":
            return [f"note(lambda: {a}.sum().backward({keep}))", "note(gradients)"]
        if kind == "both":
            return [f"note(lambda: ({a}.sum() + ({b} * {b}).sum()).backward({keep}))", "note(gradients)"]
        if kind == "grad":
            asked = "LEAVES"
            if self.chance(0.5):  # what a backward for some of the inputs frees is another matter
                asked, comma = self.rng.choice((leaves, f"[{self.rng.choice(self.held)}]")), ", retain_graph=True"
            return [f"note(lambda: torch.autograd.grad(({a} * 3).sum(), {asked}, allow_unused=True{comma}))"]
        if kind == "inputs":
            return [f"note(lambda: {a}.sum().backward(inputs={leaves}, retain_graph=True))", "note(gradients)"]
        if kind == "twice":
            return [  # what a backward through gradients frees of the first run is another matter
                "note(lambda: [None if first is None or not first.requires_grad else torch.autograd.grad("
                "first.sum(), LEAVES, allow_unused=True, retain_graph=True) for first in "
                f"torch.autograd.grad({a}.exp().sum(), LEAVES, create_graph=True, allow_unused=True)])"
            ]
        if kind == "write":
            held, self.written = self.rng.choice(self.held), True
            how = self.rng.choice((f"{held}.detach().mul_(0.5)", f"{held}.detach().zero_()"))
            return [f"note(lambda: ({how}, None)[1])"]
        if kind == "hook" and self.written:  # torch dies of a hook on a view whose memory was written to since
            kind = "clear"
        if kind == "hook":
            hook = self.rng.choice(("seen", "changed"))
            return [f"note(lambda: ({self.rng.choice(self.held)}.register_hook({hook}({a!r})), None)[1])"]
        if kind == "again":
            return [
                f"note(lambda: {a}.sum().backward({keep}))",
                f"note(lambda: {a}.sum().backward())",
                "note(gradients)",
            ]
        return ["for leaf in LEAVES: leaf.grad = None"]


def make_autograd_program(seed: int) -> Program:
    """The program of a seed."""
    state = torch.get_rng_state()
    try:
        made = AutogradWriter(seed).program()
    finally:
        torch.set_rng_state(state)
    return Program(seed, made.text, made.breaking)


if __name__ == "__main__":
    import sys

    print(make_autograd_program(int(sys.argv[1])).text)
