"""Random programs: text of a module with `program`, `arguments(call)` and `between(call)`."""

from __future__ import annotations

from dataclasses import dataclass

from definitions import ALWAYS, GLOBAL_KINDS, GLOBAL_TEXT, HEADER, library
from expressions import Scope
from kinds import BOOL, CONTAINERS, FLOAT, FLOATS, INT, N4, STR, TENSORS, V4, Kind, dict_of, function, instance, list_of
from statements import Lines, Statements, indented

CALLS = 4


@dataclass(frozen=True)
class Program:
    """text: the module; breaking: how many of its constructs are meant to break the graph."""

    seed: int
    text: str
    breaking: int


class Writer(Statements):
    """Writes one program."""

    def program(self) -> Program:
        """Everything, in the order in which it is drawn."""
        shelf = library()
        self.classes = {name: shelf[name] for name in self.rng.sample(sorted(shelf), self.rng.randint(1, 3))}
        self.globals = dict(GLOBAL_KINDS)
        texts = [HEADER, *(f"{name} = {text}\n" for name, text in GLOBAL_TEXT.items()), ALWAYS]
        texts += [facts.text for facts in self.classes.values()]
        texts += self.shared_objects()
        texts += self.module_functions()
        parameters = self.parameters()
        body = self.main(parameters)
        texts.append("\n".join(body) + "\n")
        texts.append("\n".join(self.arguments(parameters)) + "\n")
        texts.append("\n".join(self.between()) + "\n")
        return Program(0, "\n".join(texts), self.breaking)

    def shared_objects(self) -> list[str]:
        """Objects that live in globals."""
        texts = []
        for name in self.classes:
            if self.chance(0.4):
                scope = Scope({}, "3")
                texts.append(f"{name.upper()} = {self.object_text(scope, name)}\n")
                self.globals[name.upper()] = instance(name)
        return texts

    def object_text(self, scope: Scope, name: str) -> str:
        parameters = self.classes[name].parameters
        return f"{name}({', '.join(self.fresh(part) for part in parameters)})"

    def module_functions(self) -> list[str]:
        """Functions beside the main one, which it may call."""
        texts = []
        for _ in range(self.rng.randint(0, 2)):
            name = self.name("helper")
            kinds = [
                N4,
                *(self.pick((INT, FLOAT, STR, N4, list_of(N4), list_of(INT))) for _ in range(self.rng.randint(0, 2))),
            ]
            if self.chance(0.3):
                kinds.append(instance(self.pick(sorted(self.classes))))
            names = [self.name("a") for _ in kinds]
            result = self.pick((*FLOATS, INT, list_of(N4), STR))
            scope = Scope(dict(zip(names, kinds)), f"{names[0]}.shape[0]")
            scope.result = result
            lines = self.global_statement(scope)
            lines += self.block(scope, self.rng.randint(1, 5))
            lines.append(f"return {self.expr(scope, result, 2)}")
            text = "\n".join([f"def {name}({', '.join(names)}):", *indented(lines)]) + "\n"
            if self.chance(0.12):
                text = f"@{self.pick(('logged', 'doubled', 'torch.no_grad()'))}\n" + text
            texts.append(text)
            self.globals[name] = function(result, *kinds)
        if self.chance(0.2):
            name = self.name("nested")
            texts.append(
                f"def {name}(x, k):\n    if k <= 0:\n        return x\n    LOG.append(k)\n    return {name}(x * 2, k - 1) + k\n"
            )
            texts.append(f"def bounded_{name}(x, k):\n    return {name}(x, k % 4)\n")
            self.globals[f"bounded_{name}"] = function(N4, N4, INT)
        if self.chance(0.25):
            name = self.name("made")
            texts.append(
                f"def make_{name}(start):\n    count = start\n\n    def {name}(x, k=2):\n        nonlocal count\n"
                f"        count += k\n        return x * count\n\n    return {name}\n"
            )
            texts.append(f"{name} = make_{name}({self.rng.randint(0, 3)})\n")
            self.globals[name] = function(N4, N4)
        return texts

    def global_statement(self, scope: Scope) -> Lines:
        if not self.chance(0.4):
            return []
        scope.globals = set(self.rng.sample(("SCALE", "COUNT", "NAME", "WEIGHT"), self.rng.randint(1, 2)))
        return [f"global {', '.join(sorted(scope.globals))}"]

    def parameters(self) -> dict[str, Kind]:
        found: dict[str, Kind] = {"x": N4}
        if self.chance(0.6):
            found["y"] = self.pick((N4, N4, *FLOATS, *TENSORS))
        for _ in range(self.rng.randint(1, 4)):
            kind = self.pick(
                (
                    INT,
                    INT,
                    FLOAT,
                    BOOL,
                    STR,
                    list_of(N4),
                    list_of(INT),
                    dict_of(N4),
                    *CONTAINERS,
                    "object",
                    "object",
                    "function",
                )
            )
            if kind == "object":
                kind = instance(self.pick(sorted(self.classes)))
            elif kind == "function":
                kind = function(N4, N4)
            found[self.name("a")] = kind
        return found

    def main(self, parameters: dict[str, Kind]) -> Lines:
        scope = Scope(parameters, "x.shape[0]")
        result = self.any_kind()
        scope.result = result if self.chance(0.5) else None
        lines = self.global_statement(scope)
        lines += self.block(scope, self.rng.choice((4, 6, 8, 12, 16)))
        values = [
            self.expr(scope, self.pick((*FLOATS, *FLOATS, INT, BOOL, STR)), 2) for _ in range(self.rng.randint(1, 2))
        ]
        values += self.rng.sample(sorted(scope.names), min(len(scope.names), self.rng.randint(1, 4)))
        if scope.result is not None and self.chance(0.5):
            values = [self.expr(scope, scope.result, 3)]
        lines.append(f"return {values[0] if len(values) == 1 else '(' + ', '.join(values) + ')'}")
        defaults = [name for name, kind in parameters.items() if kind in (INT, FLOAT, STR)]
        texts = list(parameters)
        if texts[-1] in defaults and self.chance(0.4):
            texts[-1] += f"={self.fresh(parameters[texts[-1]])}"
            self.defaulted = True
        else:
            self.defaulted = False
        return [f"def program({', '.join(texts)}):", *indented(lines)]

    # -- arguments -------------------------------------------------------------------------------------------------

    def fresh(self, kind: Kind, size: str = "3") -> str:
        """A value made from nothing."""
        if kind == INT:
            return str(self.rng.randint(0, 4))
        if kind == FLOAT:
            return self.pick(("0.5", "1.5", "2.0"))
        if kind == BOOL:
            return self.pick(("True", "False"))
        if kind == STR:
            return repr(self.pick(("a", "key", "mode", "zz")))
        if kind.name == "tensor":
            shape = ", ".join(size if part == "n" else str(part) for part in kind.shape)
            if kind.dtype == "int64":
                return f"torch.randint(-2, 4, ({shape},))"
            if kind.dtype == "bool":
                return f"(torch.randn({shape}) > 0)"
            made = f"torch.randn({shape or '()'})"
            if kind.dtype != "float32":
                return f"{made}.to(torch.{kind.dtype})"
            layouts = [made, made, f"{made} * 2"]
            if len(kind.shape) == 2:
                layouts += [
                    f"torch.randn({', '.join(reversed(shape.split(', ')))}).t()",
                    f"torch.randn({shape}, 2)[..., 0]",
                ]
            if kind.shape:
                layouts += [f"torch.cat([{made}, {made}])[:{shape.split(',')[0]}]"]
            return self.pick(layouts)
        if kind.name in ("list", "deque", "set", "tuple"):
            parts = (
                kind.parts
                if kind.name == "tuple"
                else [kind.item] * self.rng.randint(1 if kind.name == "set" else 0, 3)
            )
            inner = ", ".join(self.fresh(part, size) for part in parts)
            if kind.name == "tuple":
                return f"({inner},)"
            made = f"{{{inner}}}" if kind.name == "set" else f"[{inner}]"
            return f"collections.deque({made})" if kind.name == "deque" else made
        if kind.name == "dict":
            keys = ("'a'", "'key'", "'b'") if kind.parts[0] == STR else ("0", "1", "2")
            count = self.rng.randint(0, 3)
            return "{" + ", ".join(f"{key}: {self.fresh(kind.item, size)}" for key in keys[:count]) + "}"
        if kind.name == "object":
            parameters = self.classes[kind.cls].parameters
            return f"{kind.cls}({', '.join(self.fresh(part, size) for part in parameters)})"
        return self.pick(
            ("(lambda q: q * 2)", "torch.sin", "functools.partial(torch.add, alpha=3, other=1)", "torch.nn.Linear(4, 4)",
             "(lambda q, k=COUNT: q + k)", "torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())")
        )  # fmt: skip

    def arguments(self, parameters: dict[str, Kind]) -> Lines:
        """`arguments(call)`: what changes from call to call is drawn for each parameter."""
        sizes = self.pick(((3, 3, 3, 3), (3, 3, 5, 2), (3, 5, 4, 3), (2, 2, 2, 6)))
        lines = ["global KEPT", f"n = {sizes}[call]", "torch.manual_seed(call)"]
        names = []
        for name, kind in parameters.items():
            names.append(name)
            if kind in (INT, FLOAT, STR, BOOL):
                first = self.fresh(kind)
                second = first if self.chance(0.5) else self.fresh(kind)
                third = first if self.chance(0.5) else self.fresh(kind)
                lines.append(f"{name} = ({first}, {first}, {second}, {third})[call]")
                continue
            lines.append(f"{name} = {self.fresh(kind, 'n')}")
            if kind.name == "tensor" and kind.dtype == "float32":
                if self.chance(0.35):
                    lines.append(f"{name}.requires_grad_({self.pick(('True', 'True', 'call != 2'))})")
                    if self.chance(0.3):
                        lines.append(f"{name} = {name} * 1.0")
            if kind.name in ("list", "dict", "object") and self.chance(0.3):
                other = self.fresh(kind, "n")
                lines += [f"if call == {self.rng.randint(1, 3)}:", f"    {name} = {other}"]
        same = [name for name, kind in parameters.items() if kind == N4]
        if len(same) > 1 and self.chance(0.4):
            lines += [
                f"if call == {self.rng.randint(0, 3)}:",
                f"    {same[1]} = {self.pick((same[0], f'{same[0]}[:]'))}",
            ]
        inside = [name for name, kind in parameters.items() if kind in (list_of(N4), dict_of(N4))]
        if inside and self.chance(0.4):
            name = inside[0]
            where = f"{name}.append(x)" if parameters[name].name == "list" else f"{name}['a'] = x"
            lines += [f"if call in {self.pick(('(0, 1, 2, 3)', '(1,)', '(0, 2)'))}:", f"    {where}"]
        kept = [
            name for name, kind in parameters.items() if kind.name in ("list", "dict", "object", "deque", "function")
        ]
        if kept and self.chance(0.5):  # one object for all calls, so that what calls leave behind meets the next one
            name = self.pick(kept)
            lines += [f"{name} = KEPT.setdefault({name!r}, {name})"]
        result = ", ".join(names)
        if self.defaulted:
            result = f"{result},) if call % 2 else ({', '.join(names[:-1])}"
        return ["KEPT = {}", "", "", "def arguments(call):", *indented([*lines, f"return ({result},)"])]

    def between(self) -> Lines:
        """`between(call)`: changes of mutable state before each call but the first."""
        scope = Scope({}, "3")
        scope.globals = {"SCALE", "COUNT", "NAME", "WEIGHT"}
        lines = ["global SCALE, COUNT, NAME, WEIGHT"]
        options = [
            lambda: f"SCALE = {self.fresh(FLOAT)}", lambda: f"COUNT = {self.fresh(INT)}", lambda: f"NAME = {self.fresh(STR)}",
            lambda: f"WEIGHT = {self.fresh(V4)}", lambda: f"CONFIG[{self.fresh(STR)}] = {self.fresh(INT)}",
            lambda: f"CACHE[{self.fresh(STR)}] = torch.ones(3, 4)", lambda: f"LIMITS.append({self.fresh(INT)})",
            lambda: "STACK.append(torch.ones(4))", lambda: "CONFIG.clear()", lambda: "WEIGHT.detach().add_(1)", lambda: "LIMITS[:1] = []",
            lambda: "WEIGHT.requires_grad_()", lambda: "del STACK[:]", lambda: "program.__defaults__ = program.__defaults__",
        ]  # fmt: skip
        for name, kind in self.globals.items():
            if kind.name == "object":
                cls = self.classes[kind.cls]
                for attribute, what in cls.attributes.items():
                    if attribute not in cls.fixed:
                        options.append(lambda n=name, a=attribute, w=what: f"{n}.{a} = {self.fresh(w)}")
        for name in self.classes:
            if name == "Box":
                options += [lambda: f"Box.scale = {self.fresh(INT)}"]
            elif name == "Slotted":
                options += [lambda: f"Slotted.kind = {self.fresh(STR)}", lambda: "Base.describe = lambda self: 'new'"]
            elif name == "Net":
                options += [lambda: "torch.manual_seed(9)"]
        for call in range(1, CALLS):
            if self.chance(0.45):
                lines += [
                    f"if call == {call}:",
                    *indented([self.pick(options)() for _ in range(self.rng.randint(1, 2))]),
                ]
        return ["", "def between(call):", *indented(lines)]


def make_program(seed: int) -> Program:
    """The program of a seed."""
    made = Writer(seed).program()
    return Program(seed, made.text, made.breaking)


if __name__ == "__main__":
    import sys

    print(make_program(int(sys.argv[1])).text)
