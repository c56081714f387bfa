"""Random statements, as lines of text: what changes things, and control flow around it."""

from __future__ import annotations

from collections.abc import Callable

from expressions import Expressions, Scope
from kinds import BOOL, CONTAINERS, FLOAT, FLOATS, INT, N4, ONE, SCALARS, STR, TENSORS, V4, Kind, function, list_of

Lines = list[str]
CAUGHT = ("KeyError", "IndexError", "ZeroDivisionError", "TypeError", "ValueError", "RuntimeError", "Problem", "Detail")


def indented(lines: Lines) -> Lines:
    return ["    " + line for line in lines]


class Statements(Expressions):
    """Draws statements; a statement updates the scope with the names that it defines."""

    def any_kind(self) -> Kind:
        group = self.rng.random()
        if group < 0.45:
            return self.pick(FLOATS)
        if group < 0.55:
            return self.pick(TENSORS)
        return self.pick(SCALARS) if group < 0.75 else self.pick(CONTAINERS)

    def block(self, scope: Scope, budget: int) -> Lines:
        """One statement or more, of about `budget` lines."""
        lines: Lines = []
        while len(lines) < budget or not lines:
            lines += self.statement(scope, budget - len(lines))
        return lines

    def statement(self, scope: Scope, budget: int) -> Lines:
        simple: list[tuple[float, Callable[[Scope], Lines | None]]] = [
            (5, self.define),
            (3, self.reassign),
            (2, self.write_tensor),
            (3, self.change_container),
            (2, self.change_object),
            (1.2, self.augment),
            (0.7, self.change_global),
            (0.6, self.unpack),
            (0.4, self.call_statement),
            (0.25, self.output),
            (0.5, self.leave),
            (0.2, self.assertion),
            (0.15, self.delete),
        ]
        nested: list[tuple[float, Callable[[Scope, int], Lines | None]]] = [
            (3, self.branch),
            (2, self.for_loop),
            (1, self.while_loop),
            (2.5, self.attempt),
            (1.5, self.region),
            (1.2, self.match),
            (2, self.inner_function),
            (1.2, self.generator),
        ]
        while True:
            if budget >= 3 and self.chance(0.35):
                make = self.rng.choices([make for _, make in nested], [weight for weight, _ in nested])[0]
                lines = make(scope, max(1, min(budget - 1, 5)))
            else:
                lines = self.rng.choices([make for _, make in simple], [weight for weight, _ in simple])[0](scope)
            if lines:
                return lines

    # -- names -----------------------------------------------------------------------------------------------------

    def define(self, scope: Scope) -> Lines:
        kind = self.any_kind()
        name = self.name()
        text = self.expr(scope, kind, 3)
        if kind.name == "tensor" and self.chance(0.06):  # two names for one object
            other = self.name()
            scope.names[other] = kind
            scope.names[name] = kind
            return [f"{name} = {other} = {text}"]
        scope.names[name] = kind
        return [f"{name} = {text}"]

    def assignable(self, scope: Scope, *names: str) -> list[tuple[str, Kind]]:
        found = [(name, kind) for name, kind in scope.names.items() if kind.name in names or not names]
        if scope.outer is not None:
            found += [
                (n, k) for n, k in scope.outer.names.items() if n in scope.nonlocals and k.name in (names or k.name)
            ]
        found += [(n, k) for n, k in self.globals.items() if n in scope.globals and (k.name in names or not names)]
        return found

    def reassign(self, scope: Scope) -> Lines | None:
        found = [(n, k) for n, k in self.assignable(scope) if k.name not in ("function", "iterator", "module")]
        if not found:
            return None
        name, kind = self.pick(found)
        if self.chance(0.15):
            others = [other for other, known in found if known == kind and other != name]
            if others:
                other = self.pick(others)
                return [f"{name}, {other} = {other}, {name}"]
        return [f"{name} = {self.expr(scope, kind, 3)}"]

    def augment(self, scope: Scope) -> Lines | None:
        found = self.assignable(scope, "int", "float", "str", "list", "tensor", "set", "dict", "deque")
        if not found:
            return None
        name, kind = self.pick(found)
        operand = self.expr(scope, kind, 1)
        if kind.name == "tensor":
            if kind.dtype == "bool":
                return [f"{name} {self.pick('&|')}= {operand}"]
            return [f"{name} {self.pick(('+', '-', '*'))}= {self.pick((operand, self.expr(scope, INT, 1)))}"]
        if kind.name in ("list", "deque"):
            return [f"{name} += {self.expr(scope, list_of(kind.item), 1)}[:3]"]
        if kind.name in ("set", "dict"):
            return [f"{name} |= {operand}"]
        if kind == INT:
            return [f"{name} {self.pick(('+', '-'))}= {operand}", f"{name} %= 7"][: self.rng.randint(1, 2)]
        return [f"{name} += {operand}{'[:5]' if kind == STR else ''}"]

    def unpack(self, scope: Scope) -> Lines:
        first, second, third = self.name(), self.name(), self.name()
        form = self.rng.randrange(6)
        if form == 0:
            scope.names.update({first: INT, second: N4})
            return [f"{first}, {second} = {self.expr(scope, Kind('tuple', (INT, N4)), 1)}"]
        if form == 1:
            scope.names.update({first: INT, second: list_of(INT)})
            return [f"{first}, *{second} = {self.expr(scope, INT, 1)}, *{self.expr(scope, list_of(INT), 1)}"]
        if form == 2:
            text = self.expr(scope, N4, 1)
            scope.names.update({first: Kind("tensor", shape=("n", 2), dtype="float32")})
            scope.names.update({second: Kind("tensor", shape=("n", 2), dtype="float32")})
            return [f"{first}, {second} = {text}.chunk(2, dim=1)"]
        if form == 3:
            text = self.expr(scope, N4, 2)
            scope.names.update({first: V4, second: list_of(V4)})
            return [f"{first}, *{second} = {text}"]
        if form == 4:
            text = self.expr(scope, N4, 1)
            scope.names.update({first: Kind("tensor", shape=("n",), dtype="float32")})
            scope.names.update({second: Kind("tensor", shape=("n",), dtype="int64")})
            return [f"{first}, {second} = {text}.max(dim=1)"]
        values = [self.expr(scope, STR, 1), self.expr(scope, N4, 1), self.expr(scope, FLOAT, 1)]
        scope.names.update({first: STR, second: N4, third: FLOAT})
        return [f"({first}, ({second}, {third})) = {values[0]}, [{values[1]}, {values[2]}]"]

    def delete(self, scope: Scope) -> Lines | None:
        found = [name for name in scope.names if name.startswith("v")]
        if not found or scope.in_loop:
            return None
        name = self.pick(found)
        del scope.names[name]
        return [f"del {name}"]

    # -- changes ---------------------------------------------------------------------------------------------------

    def write_tensor(self, scope: Scope) -> Lines | None:
        found = [(text, kind) for text, kind in self.of_name(scope, "tensor") if kind.dtype == "float32"]
        if not found:
            return None
        text, kind = self.pick(found)
        value = self.expr(scope, kind, 2)
        options = [
            f"{text}.add_({value})",
            f"{text}.mul_({self.expr(scope, FLOAT, 1)})",
            f"{text}.copy_({value})",
            f"{text}.sub_({value}, alpha=2)",
            f"{text}.clamp_(-1, 1)",
            f"{text}.sin_()",
            f"{text}.fill_({self.expr(scope, INT, 1)})",
            f"torch.mul({value}, 2, out={text})",
            f"{text}.masked_fill_({text} > 0.5, 0.25)",
        ]
        if kind.shape and kind.shape[0] == "n":
            options += [
                f"{text}[0] = {self.pick(('2.0', self.expr(scope, INT, 1)))}",
                f"{text}[-1] *= 2",
                f"{text}[:1].add_(1)",
                f"{text}[1:] += 0.5",
                f"{text}.view(-1).mul_(0.5)",
            ]
        if kind == N4:
            options += [
                f"{text}[:, 1] = {self.expr(scope, FLOAT, 1)}",
                f"{text}[0] = {self.expr(scope, V4, 1)}",
                f"{text}[..., 2:].zero_()",
                f"{text}.t()[1].add_(1)",
                f"{text}[{text} > 0] = 0.5",
                f"{text}.unbind(1)[0].mul_(3)",
                f"{text}.view(-1, 2, 2)[:, 0] -= 1",
                f"{text}.index_add_(0, torch.tensor([0, 1]), torch.ones(2, 4))",
            ]
        line = self.pick(options)
        if kind.name == "tensor" and self.chance(0.3):
            return ["with torch.no_grad():", f"    {line}"]
        return [line]

    def change_container(self, scope: Scope) -> Lines | None:
        found = self.of_name(scope, "list", "deque", "dict", "set")
        if not found:
            return None
        text, kind = self.pick(found)
        item = self.expr(scope, kind.item, 2)
        if kind.name == "list":
            number = self.expr(scope, INT, 1)
            options = [
                f"{text}.append({item})",
                f"{text}.append({item})",
                f"{text}.insert({number}, {item})",
                f"{text}.extend([{item}, {self.expr(scope, kind.item, 1)}])",
                f"{text}.extend({self.expr(scope, kind, 1)}[:3])",
                f"{text}[:] = {self.expr(scope, kind, 1)}[:4]",
                f"{text}[1:] = [{item}]",
                f"{text}[::2] = [{item}] * len({text}[::2])",
                f"del {text}[:1]",
                f"{text}.reverse()",
                f"{text}.clear()",
                f"if {text}:\n    {text}.pop()",
                f"if {text}:\n    {text}[0] = {item}",
                f"if len({text}) > 1:\n    {text}[0], {text}[-1] = {text}[-1], {text}[0]",
                f"{text}[0] = {item}",
                f"{text}.pop({number})",
            ]
            if kind.item in (INT, STR):
                options += [f"{text}.sort()", f"{text}.sort(reverse=True)", f"{text}.remove({item})"]
        elif kind.name == "deque":
            options = [
                f"{text}.append({item})",
                f"{text}.appendleft({item})",
                f"{text}.rotate({self.expr(scope, INT, 0)})",
                f"{text}.extend([{item}])",
                f"{text}.extendleft([{item}])",
                f"if {text}:\n    {text}.popleft()",
                f"{text}.clear()",
                f"{text}.popleft()",
            ]
        elif kind.name == "dict":
            key = self.expr(scope, kind.parts[0], 1)
            options = [
                f"{text}[{key}] = {item}",
                f"{text}[{key}] = {item}",
                f"{text}.update({self.expr(scope, kind, 1)})",
                f"{text}.setdefault({key}, {item})",
                f"{text}.pop({key}, None)",
                f"del {text}[{key}]",
                f"if {text}:\n    {text}.popitem()",
                f"{text}.clear()",
                f"for k in list({text}):\n    {text}[k] = {item}",
            ]
            if kind.item.name == "list":
                options += [f"{text}.setdefault({key}, []).append({self.expr(scope, kind.item.item, 1)})"] * 2
        else:
            options = [
                f"{text}.add({item})",
                f"{text}.add({item})",
                f"{text}.discard({item})",
                f"{text}.remove({item})",
                f"{text}.update([{item}])",
                f"{text}.clear()",
            ]
        return self.pick(options).split("\n")

    def change_object(self, scope: Scope) -> Lines | None:
        found = self.of_name(scope, "object")
        if not found:
            return None
        text, kind = self.pick(found)
        cls = self.classes[kind.cls]
        options: list[Callable[[], str | None]] = []
        for attribute, what in cls.attributes.items():
            if attribute in cls.fixed:
                continue
            options.append(lambda a=attribute, w=what: f"{text}.{a} = {self.expr(scope, w, 2)}")
            if what in (INT, FLOAT) or what.name == "tensor":
                options.append(lambda a=attribute, w=what: f"{text}.{a} += {self.expr(scope, w, 1)}")
            options.append(lambda a=attribute, w=what: f"setattr({text}, {a!r}, {self.expr(scope, w, 1)})")
        for form in cls.statements:
            options.append(lambda f=form: self.filled(scope, f, text))
        if not options:
            return None
        return self.pick(options)().split("\n")

    def filled(self, scope: Scope, form: str, receiver: str = "") -> str:
        """The text with @kind@ replaced by expressions of that kind, and $ by the receiver."""
        kinds = {"int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "n4": N4, "v4": V4, "one": ONE}
        parts = form.split("@")
        parts[1::2] = [self.expr(scope, kinds[part], 1) for part in parts[1::2]]
        return "".join(parts).replace("$", receiver)

    def change_global(self, scope: Scope) -> Lines | None:
        found = [(name, kind) for name, kind in self.globals.items() if kind.name in ("int", "float", "str", "tensor")]
        if not scope.globals or not found:
            return ["LOG.append(" + self.expr(scope, self.pick((INT, STR)), 2) + ")"]
        found = [(name, kind) for name, kind in found if name in scope.globals]
        if not found:
            return None
        name, kind = self.pick(found)
        if self.chance(0.2):
            return [f"globals()[{name!r}] = {self.expr(scope, kind, 1)}"]
        return [f"{name} = {self.expr(scope, kind, 2)}"]

    def call_statement(self, scope: Scope) -> Lines | None:
        text = self.calls(scope, self.any_kind(), 3)
        return [text] if text else None

    def output(self, scope: Scope) -> Lines:
        self.breaking += 1
        if self.chance(0.15):
            return ["torch._dynamo.graph_break()"]
        return [f"print({self.expr(scope, self.pick((INT, STR)), 1)}, {self.expr(scope, self.pick((INT, N4)), 1)})"]

    def assertion(self, scope: Scope) -> Lines:
        text = f", {self.expr(scope, STR, 1)}" if self.chance(0.5) else ""
        return [f"assert {self.expr(scope, BOOL, 1)} or {self.expr(scope, INT, 1)} > -3{text}"]

    def leave(self, scope: Scope) -> Lines | None:
        """return, break, continue or raise, under a condition."""
        options: list[str] = []
        if scope.in_loop:
            options += ["break", "continue", "break"]
        if scope.result is not None:
            options.append(f"return {self.expr(scope, scope.result, 2)}")
        if self.chance(0.4):
            options.append(self.raising(scope))
        return [f"if {self.expr(scope, BOOL, 2)}:", f"    {self.pick(options)}"] if options else None

    def raising(self, scope: Scope) -> str:
        text = self.expr(scope, self.pick((INT, STR)), 1)
        return self.pick(
            (
                f"raise Problem({text})", f"raise Detail({text}, code={self.expr(scope, INT, 1)})", f"raise ValueError({text})",
                f"raise KeyError({text}) from Problem({text})", "raise Problem", f"raise ZeroDivisionError({text}) from None",
                "raise StopIteration", "raise",
            )
        )  # fmt: skip

    # -- control flow ----------------------------------------------------------------------------------------------

    def branch(self, scope: Scope, budget: int) -> Lines:
        condition = self.expr(scope, BOOL, 2)
        if self.chance(0.08):
            condition = self._by_data(scope, 1)
        elif self.chance(0.15):
            condition = self.pick([text for text, _ in self.of_name(scope, "list", "dict", "int", "str")] or ["1"])
        lines = [f"if {condition}:", *indented(self.block(scope.child(), budget))]
        if self.chance(0.2):
            lines += [f"elif {self.expr(scope, BOOL, 1)}:", *indented(self.block(scope.child(), budget // 2))]
        if self.chance(0.45):
            lines += ["else:", *indented(self.block(scope.child(), budget // 2))]
        return lines

    def for_loop(self, scope: Scope, budget: int) -> Lines:
        inner = scope.child()
        inner.in_loop = True
        name = self.name("i")
        lines: Lines = []
        form = self.rng.randrange(6)
        tables = [(text, kind) for text, kind in self.of_name(scope, "dict")]
        changing = [(text, kind) for text, kind in self.of_name(scope, "list", "dict")]
        source, kind = self.iterable(scope)
        if form == 0:
            count = self.name("i")
            inner.names.update({count: INT, name: kind})
            head = f"for {count}, {name} in enumerate({source}{self.pick(('', ', 1', ', start=2'))}):"
        elif form == 1:
            other, second = self.name("i"), self.iterable(scope)
            inner.names.update({name: kind, other: second[1]})
            head = f"for {name}, {other} in zip({source}, {second[0]}):"
        elif form == 2 and tables:
            text, known = self.pick(tables)
            key = self.name("i")
            inner.names.update({key: known.parts[0], name: known.item})
            head = f"for {key}, {name} in {self.pick((f'list({text}.items())', f'{text}.items()'))}:"
        elif form == 3 and changing:  # over the container itself, which the body may change
            text, known = self.pick(changing)
            count = self.name("i")
            inner.names.update({count: INT, name: known.parts[0]})
            head = f"for {count}, {name} in enumerate({text}):"
            lines = [f"if {count} > 4:", "    break"]
        else:
            inner.names[name] = kind
            head = f"for {name} in {source}:"
        lines = [head, *indented(lines + self.block(inner, budget))]
        if self.chance(0.2):
            lines += ["else:", *indented(self.block(scope.child(), 1))]
        return lines

    def while_loop(self, scope: Scope, budget: int) -> Lines:
        inner = scope.child()
        inner.in_loop = True
        count = self.name("c")
        condition = f" and {self.expr(scope, BOOL, 1)}" if self.chance(0.4) else ""
        lines = [f"{count} = 0", f"while {count} < {self.rng.randint(1, 3)}{condition}:", f"    {count} += 1"]
        lines += indented(self.block(inner, budget))
        if self.chance(0.2):
            lines += ["else:", *indented(self.block(scope.child(), 1))]
        return lines

    def attempt(self, scope: Scope, budget: int) -> Lines:
        body = scope.child()
        lines = ["try:", *indented(self.block(body, budget))]
        if self.chance(0.5):
            lines += indented([self.provoked(scope)])
        handlers = 0
        if self.chance(0.85):
            handlers = self.rng.randint(1, 2)
        for at in range(handlers):
            classes = self.rng.sample(CAUGHT, self.rng.randint(1, 3))
            head = classes[0] if len(classes) == 1 else f"({', '.join(classes)})"
            if at == handlers - 1 and self.chance(0.4):
                head = "Exception"
            name = self.name("error")
            inner = scope.child()
            handled = self.block(inner, max(1, budget // 2))
            if self.chance(0.5):
                handled.insert(0, f"LOG.append(type({name}).__name__)")
            if self.chance(0.25):
                handled.insert(0, f"LOG.append(str({name}))")
            if self.chance(0.2):
                handled.append(
                    self.pick(("raise", f"raise Problem(2) from {name}", f"raise {name}", "raise Detail(1, code=2)"))
                )
            lines += [f"except {head} as {name}:", *indented(handled)]
        if handlers and self.chance(0.25):
            lines += ["else:", *indented(self.block(scope.child(), 1))]
        if not handlers or self.chance(0.3):
            final = scope.child()
            final.in_loop, final.result = (
                (final.in_loop and self.chance(0.2)),
                (final.result if self.chance(0.1) else None),
            )
            lines += ["finally:", *indented(self.block(final, 1))]
        return lines

    def provoked(self, scope: Scope) -> str:
        """A statement that raises, or might."""
        number = self.expr(scope, INT, 1)
        return self.pick(
            (
                self.raising(scope), self.raising(scope), f"[1, 2][{number}]", "{'a': 1}[" + self.expr(scope, STR, 1) + "]",
                f"{number} // {self.expr(scope, INT, 1)}", f"int({self.expr(scope, STR, 1)})", "None.missing",
                f"{self.expr(scope, N4, 1)} + torch.ones(7)", f"{self.expr(scope, STR, 0)} + {number}", "undefined_name",
                f"{self.expr(scope, N4, 1)}.view(3, 5, 7)", "next(iter([]))", "a, b = [1]", "len(3)", "getattr(LOG, 'nothing')",
                f"{self.expr(scope, V4, 1)}[{number} + 9]", "assert False, 'no'", "{1}.missing()", "(lambda q: q)()",
            )
        )  # fmt: skip

    def region(self, scope: Scope, budget: int) -> Lines:
        inner = scope.child()
        name = self.name("m")
        manager = self.pick(
            (
                "torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled({b})", "torch.autocast('cpu', torch.bfloat16)",
                "torch.no_grad()", "Watch({s})", "Watch({s}) as {n}", "Quiet(KeyError, ValueError, Problem)", "noted({s})",
                "noted({s}) as {n}", "contextlib.suppress(KeyError, IndexError, Problem)", "contextlib.nullcontext({i}) as {n}",
                "Watch({s}) as {n}, torch.no_grad()",
            )
        ).format(b=self.expr(scope, BOOL, 1), s=self.expr(scope, STR, 1), i=self.expr(scope, INT, 1), n=name)  # fmt: skip
        if "nullcontext" in manager:
            inner.names[name] = INT
        elif "noted" in manager and " as " in manager:
            inner.names[name] = list_of(STR)
        lines = self.block(inner, budget)
        if self.chance(0.25):
            lines.append(self.provoked(scope) if self.chance(0.6) else f"LOG.append({self.expr(inner, INT, 1)})")
        return [f"with {manager}:", *indented(lines)]

    def match(self, scope: Scope, budget: int) -> Lines:
        one, two = self.name("p"), self.name("p")
        form = self.rng.randrange(5)
        cases: list[tuple[str, dict[str, Kind]]]
        if form == 0:
            subject = self.expr(scope, INT, 2)
            cases = [("0 | 1", {}), (f"{one} if {one} > 3", {one: INT}), (f"int() as {two}", {two: INT})]
        elif form == 1:
            subject = self.expr(scope, STR, 2)
            cases = [("'a' | 'key'", {}), (f"str({one})", {one: STR})]
        elif form == 2:
            subject = self.expr(scope, list_of(INT), 1)
            cases = [("[]", {}), (f"[{one}]", {one: INT}), (f"[{one}, *{two}]", {one: INT, two: list_of(INT)})]
        elif form == 3:
            subject = self.expr(scope, Kind("dict", (STR, INT)), 1)
            cases = [(f"{{'a': {one}, **{two}}}", {one: INT}), (f"{{'key': int({one})}}", {one: INT}), ("{}", {})]
        else:
            subject = f"({self.expr(scope, INT, 1)}, {self.expr(scope, N4, 1)})"
            cases = [("(1, _)", {}), (f"({one}, torch.Tensor() as {two})", {one: INT, two: N4})]
        lines = [f"match {subject}:"]
        for pattern, names in cases:
            inner = scope.child()
            inner.names.update(names)
            lines += indented([f"case {pattern}:", *indented(self.block(inner, max(1, budget // 2)))])
        if self.chance(0.6):
            lines += indented(["case _:", *indented(self.block(scope.child(), 1))])
        return lines

    # -- functions -------------------------------------------------------------------------------------------------

    def inner_function(self, scope: Scope, budget: int) -> Lines | None:
        """A nested function that reads and changes the variables around it, and a call or more of it."""
        if scope.outer is not None and scope.outer.outer is not None:
            return None
        name = self.name("f")
        parameters = [self.pick((INT, N4, V4, STR, list_of(INT), FLOAT)) for _ in range(self.rng.randint(0, 3))]
        names = [self.name("p") for _ in parameters]
        result = self.any_kind()
        inner = Scope(dict(zip(names, parameters)), scope.size, scope)
        inner.result = result
        written = [n for n, k in scope.names.items() if k.name in ("int", "tensor", "list") and n[0] != "f"]
        lines: Lines = []
        if written and self.chance(0.6):
            inner.nonlocals = set(self.rng.sample(written, min(len(written), self.rng.randint(1, 2))))
            lines.append(f"nonlocal {', '.join(sorted(inner.nonlocals))}")
        texts = list(names)
        for at in range(len(texts)):
            if (
                parameters[at] in (INT, STR, FLOAT, list_of(INT))
                and self.chance(0.3)
                and all("=" in t for t in texts[at + 1 :])
            ):
                texts[at] += f"={self.expr(scope, parameters[at], 0)}"
        while texts and any("=" in text for text in texts) and "=" not in texts[-1]:
            texts = [text.split("=")[0] for text in texts]
        keyword = len(names) > 1 and self.chance(0.15)
        if keyword:
            texts.insert(len(texts) - 1, "*")
        rest = self.chance(0.12) and not keyword
        if rest:
            texts.append("*rest")
        if self.chance(0.1):
            texts.append("**extra")
        lines += self.block(inner, budget)
        lines.append(f"return {self.expr(inner, result, 2)}")
        lines = [f"def {name}({', '.join(texts)}):", *indented(lines)]
        if self.chance(0.1):
            lines.insert(0, self.pick(("@logged", "@functools.wraps(len)", "@doubled")))
            if "wraps" in lines[0]:
                del lines[0]
        if not keyword:
            scope.names[name] = function(result, *parameters)
        for _ in range(self.rng.randint(1, 2)):
            arguments = [self.expr(scope, part, 1) for part in parameters]
            if keyword:
                arguments[-1] = f"{names[-1]}={arguments[-1]}"
            elif rest and self.chance(0.5):
                arguments += ["1", "'x'"]
            elif "**extra" in texts and self.chance(0.5):
                arguments.append("other=2")
            target = self.name()
            lines.append(f"{target} = {name}({', '.join(arguments)})")
            scope.names[target] = result
        return lines

    def generator(self, scope: Scope, budget: int) -> Lines | None:
        """A generator function and a use of it."""
        if scope.outer is not None:
            return None
        name, target = self.name("g"), self.name()
        item = self.pick((INT, N4, V4))
        inner = Scope({}, scope.size, scope)
        inner.names[self.name("p")] = INT
        parameter = list(inner.names)[0]
        body = self.block(inner, max(1, budget // 2))
        loop = inner.child()
        loop.names["i"] = INT
        yielded = self.expr(loop, item, 2)
        form = self.rng.randrange(4)
        if form == 0:
            body += [f"yield {yielded.replace('(i', '(0 ') if False else self.expr(inner, item, 1)}"]
            body += [f"for i in range({self.rng.randint(1, 3)}):", f"    yield {yielded}"]
        elif form == 1:
            body += [
                "try:",
                "    for i in range(2):",
                f"        yield {yielded}",
                "finally:",
                f"    LOG.append({parameter})",
            ]
        elif form == 2:
            body += [f"yield from [{self.expr(inner, item, 1)}]", f"return {self.expr(inner, INT, 1)}"]
        else:
            body += [
                f"got = yield {self.expr(inner, item, 1)}",
                "LOG.append(got)",
                f"yield {self.expr(inner, item, 1)}",
            ]
        lines = [f"def {name}({parameter}):", *indented(body)]
        outside = scope.child()
        outside.in_function = False  # it may stand in a comprehension, where no name is bound
        call = f"{name}({self.expr(outside, INT, 1)})"
        use = self.rng.randrange(6)
        if use == 0:
            lines += [f"{target} = list({call})"]
            scope.names[target] = list_of(item)
        elif use == 1:
            loop = scope.child()
            loop.in_loop = True
            loop.names[target] = item
            lines += [f"for {target} in {call}:", *indented(self.block(loop, 2))]
        elif use == 2:
            lines += [f"{target} = [q for q in {call}]"]
            scope.names[target] = list_of(item)
        elif use == 3:
            made = self.name("g")
            lines += [f"{made} = {call}", f"{target} = next({made})"]
            scope.names[target] = item
            if self.chance(0.4):
                lines += [f"{made}.send({self.expr(scope, INT, 1)})" if form == 3 else f"next({made}, None)"]
            if self.chance(0.3):
                lines += [f"{made}.close()"]
        elif use == 4:
            lines += [f"{target}, *_ = {call}"]
            scope.names[target] = item
        else:
            lines += [f"{target} = {{k: q for k, q in enumerate({call})}}"]
            scope.names[target] = Kind("dict", (INT, item))
        return lines
