"""Random expressions of a wanted kind, as text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from kinds import BOOL, FLOAT, INT, M44, N1, N4, ONE, STR, V4, VN, Kind, list_of, tensor


class Scope:
    """The names that a piece of code may use."""

    def __init__(self, names: dict[str, Kind], size: str, outer: Scope | None = None) -> None:
        self.names = dict(names)
        self.size = size  # an expression for "n"
        self.outer = outer  # the function around, whose names are read, and written after `nonlocal`
        self.nonlocals: set[str] = set()
        self.globals: set[str] = set()
        self.in_loop = False
        self.in_function = True
        self.result: Kind | None = None  # of the function, where the code may return
        self.made = 0

    def child(self) -> Scope:
        """The scope of a branch: what it defines is not known behind it."""
        made = Scope(self.names, self.size, self.outer)
        made.nonlocals, made.globals = self.nonlocals, self.globals
        made.in_loop, made.result, made.in_function = self.in_loop, self.result, self.in_function
        return made

    def readable(self) -> dict[str, Kind]:
        found = dict(self.outer.readable()) if self.outer is not None else {}
        found.update(self.names)
        return found


UNARY = (
    "{}.sin()", "torch.tanh({})", "(-{})", "{}.abs()", "{}.relu()", "torch.sigmoid({})", "{}.clone()", "{}.contiguous()",
    "{}.clamp(-1.5, 2.0)", "F.relu({})", "{}.neg().cos()", "torch.square({})", "{}.detach()", "torch.zeros_like({})",
    "{}.masked_fill({} > 1, 0.5)", "{}.view_as({})", "{}.reciprocal()", "torch.nn.functional.gelu({})",
    "{}.to(torch.float32)", "torch.ones_like({}, dtype=torch.float32)", "({}.requires_grad_(False) if False else {})",
)  # fmt: skip
BINARY = (
    "({} + {})", "({} - {})", "({} * {})", "torch.maximum({}, {})", "torch.add({}, {}, alpha=2)", "{}.mul({})",
    "torch.where({} > 0, {}, {})", "{}.lerp({}, 0.25)", "({} / ({} + 3).abs().clamp(min=1))", "torch.sub({}, other={})",
)  # fmt: skip
# (wanted shape, kinds of the operands, text)
RESHAPED: tuple[tuple[Kind, tuple[Kind, ...], str], ...] = (
    (N4, (N4, V4), "({} + {})"),
    (N4, (N4, N1), "({} * {})"),
    (N4, (N4, ONE), "({} - {})"),
    (N4, (N4, M44), "({} @ {})"),
    (N4, (N4, M44, V4), "torch.nn.functional.linear({}, {}, {})"),
    (N4, (N4,), "{}.softmax(-1)"),
    (N4, (N4,), "{}.flip(0)"),
    (N4, (N4,), "{}.cumsum(1)"),
    (N4, (N4,), "torch.roll({}, 1, 0)"),
    (N4, (N4,), "{}.sort(1).values"),
    (N4, (N4,), "{}.t().contiguous().t()"),
    (N4, (N4,), "{}[:, [1, 0, 3, 2]]"),
    (N4, (tensor(("n", 2, 2)),), "{}.reshape(-1, 4)"),
    (N4, (N4, N4), "torch.cat([{}[:, :2], {}[:, 2:]], dim=1)"),
    (N4, (VN, VN), "torch.stack([{0}, {1}, {0}, {1}], 1)"),
    (N4, (N1,), "{}.expand(-1, 4)"),
    (V4, (N4,), "{}.sum(0)"),
    (V4, (N4,), "{}.mean(dim=0)"),
    (V4, (N4,), "{}[0]"),
    (V4, (N4,), "{}[-1]"),
    (V4, (N4,), "{}.max(0).values"),
    (V4, (M44,), "{}.diagonal()"),
    (V4, (M44, V4), "({} @ {})"),
    (V4, (N4,), "{}.unbind(0)[1]"),
    (VN, (N4,), "{}.sum(1)"),
    (VN, (N4,), "{}[:, 2]"),
    (VN, (N4,), "{}.norm(dim=-1)"),
    (VN, (N1,), "{}.squeeze(1)"),
    (VN, (N4, V4), "torch.mv({}, {})"),
    (ONE, (N4,), "{}.sum()"),
    (ONE, (N4,), "{}.mean()"),
    (ONE, (V4,), "{}[2]"),
    (ONE, (VN,), "{}.max()"),
    (ONE, (V4, V4), "torch.dot({}, {})"),
    (M44, (N4, N4), "({}.t() @ {})"),
    (M44, (V4, V4), "torch.outer({}, {})"),
    (M44, (M44,), "{}.t()"),
    (M44, (M44,), "{}.tril()"),
    (N1, (N4,), "{}[:, :1]"),
    (N1, (VN,), "{}.unsqueeze(1)"),
    (N1, (N4,), "{}.sum(1, keepdim=True)"),
    (tensor(("n", 2, 2)), (N4,), "{}.view(-1, 2, 2)"),
    (tensor(("n", 2, 2)), (N4,), "{}.unflatten(1, (2, 2)).transpose(1, 2)"),
    (tensor(("n",), "int64"), (N4,), "{}.argmax(1)"),
    (tensor(("n",), "int64"), (), "torch.arange(<n>)"),
    (tensor((4,), "int64"), (), "torch.arange(4)"),
    (tensor((4,), "int64"), (tensor(("n", 4), "int64"),), "{}.sum(0)"),
    (tensor(("n", 4), "int64"), (N4,), "({} * 3).long()"),
    (tensor(("n", 4), "int64"), (tensor(("n", 4), "int64"), INT), "({} + {})"),
    (tensor(("n", 4), "int64"), (tensor(("n", 4), "int64"), tensor((4,), "int64")), "({} * {})"),
    (tensor(("n", 4), "int64"), (tensor(("n", 4), "int64"),), "({} % 5)"),
    (tensor(("n", 4), "bool"), (N4, V4), "({} > {})"),
    (tensor(("n", 4), "bool"), (N4,), "({} <= 0)"),
    (tensor(("n", 4), "bool"), (tensor(("n", 4), "bool"),), "(~{})"),
    (tensor(("n", 4), "bool"), (tensor(("n", 4), "int64"), INT), "({} == {})"),
    (N4, (tensor(("n", 4), "bool"), N4), "torch.where({}, {}, 0.5)"),
    (N4, (tensor(("n", 4), "bool"), N4), "({} * {})"),
    (N4, (tensor(("n", 4), "int64"), N4), "({} + {})"),
    (N4, (tensor(("n", 4), "bfloat16"),), "{}.float()"),
    (tensor((4,), "float64"), (V4,), "{}.double()"),
    (tensor((4,), "float64"), (tensor((4,), "float64"), V4), "({} + {})"),
    (tensor((4,), "float64"), (tensor((4,), "float64"), FLOAT), "({} * {})"),
    (tensor(("n", 4), "bfloat16"), (N4,), "{}.to(torch.bfloat16)"),
    (tensor(("n", 4), "bfloat16"), (tensor(("n", 4), "bfloat16"), FLOAT), "({} * {})"),
)
STRINGS = ("a", "b", "c", "key", "mode")


class Expressions:
    """Draws expressions. `classes` tells the attributes and methods of the program's own classes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.classes: dict[str, Any] = {}
        self.globals: dict[str, Kind] = {}
        self.made = 0
        self.breaking = 0  # constructs that need numbers or output, and so break the graph

    # -- drawing ---------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def pick_first(self, options: list[tuple[float, Callable[[], str | None]]]) -> str:
        """The text of an option drawn by weight; options that do not apply give None."""
        left = list(options)
        while left:
            at = self.rng.choices(range(len(left)), [weight for weight, _ in left])[0]
            text = left.pop(at)[1]()
            if text is not None:
                return text
        raise AssertionError("the last option must apply")

    def name(self, prefix: str = "v") -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    # -- access ----------------------------------------------------------------------------------------------------

    def places(self, scope: Scope, kind: Kind, assignable: bool = False) -> list[str]:
        """Expressions that reach a value of the kind: names, attributes, items of tuples."""
        found = []
        names = scope.readable() if not assignable else scope.names
        for name, known in names.items():
            if known == kind:
                found.append(name)
            elif known.name == "object":
                for attribute, what in self.classes[known.cls].attributes.items():
                    if what == kind and not (assignable and attribute in self.classes[known.cls].fixed):
                        found.append(f"{name}.{attribute}")
            elif known.name == "tuple" and not assignable:
                found.extend(f"{name}[{at}]" for at, part in enumerate(known.parts) if part == kind)
        for name, known in self.globals.items():
            if known == kind and (not assignable or name in scope.globals):
                found.append(name)
            elif known.name == "object":
                for attribute, what in self.classes[known.cls].attributes.items():
                    if what == kind and not (assignable and attribute in self.classes[known.cls].fixed):
                        found.append(f"{name}.{attribute}")
        return found

    def place(self, scope: Scope, kind: Kind) -> str | None:
        found = self.places(scope, kind)
        return self.pick(found) if found else None

    def of_name(self, scope: Scope, *names: str) -> list[tuple[str, Kind]]:
        """(expression, kind) of everything in reach whose kind has one of the names."""
        found = [(name, kind) for name, kind in scope.readable().items() if kind.name in names]
        found += [(name, kind) for name, kind in self.globals.items() if kind.name in names]
        for name, kind in [*scope.readable().items(), *self.globals.items()]:
            if kind.name == "object":
                members = self.classes[kind.cls].attributes.items()
                found += [(f"{name}.{member}", what) for member, what in members if what.name in names]
        return found

    def calls(self, scope: Scope, kind: Kind, depth: int) -> str | None:
        """A call of a function or method that gives the kind."""
        found = [(text, known) for text, known in self.of_name(scope, "function") if known.item == kind]
        found = [(f"{text}()" if len(known.parts) == 1 else text, known) for text, known in found]
        for name, known in [*scope.readable().items(), *self.globals.items()]:
            if known.name == "object":
                for method, signature in self.classes[known.cls].methods.items():
                    if signature.item == kind:
                        found.append((method.replace("{{}}", "\0").replace("{}", name).replace("\0", "{}"), signature))
        if not found:
            return None
        text, signature = self.pick(found)
        arguments = [self.expr(scope, part, depth - 1) for part in signature.parts[:-1]]
        if "{}" in text:
            head, *rest = text.split("{}")
            return head + "".join(argument + after for argument, after in zip(arguments, rest))
        if not arguments:
            return text
        if self.chance(0.12):
            return f"{text}(*({', '.join(arguments)},))"
        return f"{text}({', '.join(arguments)})"

    # -- by kind ---------------------------------------------------------------------------------------------------

    def expr(self, scope: Scope, kind: Kind, depth: int = 2) -> str:
        maker = getattr(self, f"{kind.name}_expr")
        return maker(scope, kind, depth)

    def _usual(self, scope: Scope, kind: Kind, depth: int) -> list[tuple[float, Callable[[], str | None]]]:
        """What gives a value of any kind."""
        options: list[tuple[float, Callable[[], str | None]]] = [(5, lambda: self.place(scope, kind))]
        if depth > 0:
            options += [
                (1.5, lambda: self.calls(scope, kind, depth)),
                (1.0, lambda: self._item(scope, kind, depth)),
                (0.5, lambda: self._choice(scope, kind, depth)),
                (0.15, lambda: self._walrus(scope, kind, depth)),
                (0.15, lambda: self._lambda(scope, kind, depth)),
            ]
        return options

    def _choice(self, scope: Scope, kind: Kind, depth: int) -> str:
        first, second = self.expr(scope, kind, depth - 1), self.expr(scope, kind, depth - 1)
        return f"({first} if {self.expr(scope, BOOL, depth - 1)} else {second})"

    def _walrus(self, scope: Scope, kind: Kind, depth: int) -> str | None:
        if not scope.in_function:
            return None
        return f"({self.name('w')} := {self.expr(scope, kind, depth - 1)})"

    def _lambda(self, scope: Scope, kind: Kind, depth: int) -> str:
        inner = Scope({"p": INT}, scope.size, scope)
        inner.in_function = False
        body = self.expr(inner, kind, depth - 1)
        return self.pick(("(lambda p: {})({})", "(lambda p=2: {})({})", "(lambda *, p: {})(p={})")).format(
            body, self.expr(scope, INT, 0)
        )

    def _item(self, scope: Scope, kind: Kind, depth: int) -> str | None:
        found = [
            (text, known)
            for text, known in self.of_name(scope, "list", "deque", "dict", "tuple")
            if known.name != "tuple" and known.item == kind
        ]
        if not found:
            return None
        text, known = self.pick(found)
        spare = self.expr(scope, kind, 0)
        if known.name == "dict":
            key = self.expr(scope, known.parts[0], 0)
            return self.pick(
                (
                    "{0}.get({1}, {2})", "({0}[{1}] if {1} in {0} else {2})", "{0}[{1}]", "{0}.setdefault({1}, {2})",
                    "{0}.pop({1}, {2})", "next(iter({0}.values()), {2})",
                )
            ).format(text, key, spare)  # fmt: skip
        index = self.pick(("0", "-1", f"{self.expr(scope, INT, 0)} % len({text})"))
        return self.pick(
            ("({0}[{1}] if {0} else {2})", "({0}[{1}] if {0} else {2})", "({0}[{1}] if len({0}) > 1 else {2})", "{0}[{1}]",
             "({0}.pop() if {0} else {2})", "next(iter({0}), {2})")
        ).format(text, index, spare)  # fmt: skip

    # -- numbers and text ------------------------------------------------------------------------------------------

    def int_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        options = self._usual(scope, kind, depth)
        options += [(2, lambda: str(self.rng.randint(-2, 5)))]
        if depth > 0:
            down = depth - 1

            def some(form: str, *kinds: Kind) -> Callable[[], str]:
                return lambda: form.format(*(self.expr(scope, kind, down) for kind in kinds))

            options += [
                (1, some("({} + {})", INT, INT)),
                (1, some("({} - {})", INT, INT)),
                (0.7, some("({} * {} % 11)", INT, INT)),
                (0.5, some("({} // 2)", INT)),
                (0.5, some("({} % 3)", INT)),
                (0.2, some("({} // {})", INT, INT)),
                (0.4, some("max({}, {})", INT, INT)),
                (0.3, some("min({}, {}, 4)", INT, INT)),
                (0.3, some("abs({})", INT)),
                (0.2, some("int({})", BOOL)),
                (0.2, some("int({} * 2)", FLOAT)),
                (0.2, some("({} & {})", INT, INT)),
                (0.2, some("({} or {})", INT, INT)),
                (0.2, some("divmod({}, 3)[0]", INT)),
                (0.2, some("len({})", STR)),
                (0.6, some("{}.shape[0]", N4)),
                (0.3, some("{}.size(-1)", self.pick((N4, V4)))),
                (0.2, some("{}.ndim", self.pick((N4, V4, ONE)))),
                (0.3, some("{}.numel()", N4)),
                (0.8, lambda: self._length(scope)),
                (0.5, lambda: self._reduced(scope, depth)),
            ]
        return self.pick_first(options)

    def _length(self, scope: Scope) -> str | None:
        found = self.of_name(scope, "list", "deque", "dict", "set", "tuple")
        return f"len({self.pick(found)[0]})" if found else None

    def _reduced(self, scope: Scope, depth: int) -> str | None:
        found = [text for text, kind in self.of_name(scope, "list", "deque", "set") if kind.item == INT]
        if not found:
            return None
        return self.pick(
            (
                "sum({})", "max({}, default=0)", "sum(q * 2 for q in {})", "len([q for q in {} if q > 1])",
                "sorted({}, reverse=True)[0]", "min({}, default=1)", "sum(1 for q in {} if q % 2)",
            )
        ).format(self.pick(found))  # fmt: skip

    def float_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        options = self._usual(scope, kind, depth)
        options += [(2, lambda: self.pick(("0.5", "1.5", "-2.0", "0.25", "3.0")))]
        if depth > 0:
            down = depth - 1
            options += [
                (1, lambda: f"({self.expr(scope, FLOAT, down)} + {self.expr(scope, INT, down)})"),
                (1, lambda: f"({self.expr(scope, FLOAT, down)} * {self.expr(scope, FLOAT, down)})"),
                (0.5, lambda: f"({self.expr(scope, INT, down)} / 4)"),
                (0.3, lambda: f"float({self.expr(scope, INT, down)})"),
                (0.3, lambda: f"round({self.expr(scope, FLOAT, down)}, 1)"),
                (0.3, lambda: f"math.sqrt(abs({self.expr(scope, FLOAT, down)}))"),
                (0.2, lambda: f"math.floor({self.expr(scope, FLOAT, down)})"),
            ]
        return self.pick_first(options)

    def bool_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        options = self._usual(scope, kind, depth)
        options += [
            (1, lambda: self.pick(("True", "False"))),
            (
                2,
                lambda: (
                    f"{self.expr(scope, INT, 0)} {self.pick(('>', '<', '==', '!=', '>=', '<='))} {self.expr(scope, INT, 0)}"
                ),
            ),
        ]
        if depth > 0:
            down = depth - 1
            options += [
                (
                    1,
                    lambda: (
                        f"{self.expr(scope, INT, down)} {self.pick(('>', '<', '=='))} {self.expr(scope, INT, down)}"
                    ),
                ),
                (0.4, lambda: f"0 < {self.expr(scope, INT, down)} < 4"),
                (0.6, lambda: f"not {self.expr(scope, BOOL, down)}"),
                (0.5, lambda: f"({self.expr(scope, BOOL, down)} and {self.expr(scope, BOOL, down)})"),
                (0.5, lambda: f"({self.expr(scope, BOOL, down)} or {self.expr(scope, BOOL, down)})"),
                (0.5, lambda: f"{self.expr(scope, STR, down)} == {self.expr(scope, STR, down)}"),
                (0.3, lambda: f"{self.expr(scope, FLOAT, down)} > 1.0"),
                (0.7, lambda: self._contained(scope)),
                (0.6, lambda: self._identity(scope)),
                (0.4, lambda: self._type_question(scope)),
                (0.4, lambda: f"{self.expr(scope, N4, down)}.shape[0] > {self.rng.randint(1, 4)}"),
                (0.3, lambda: f"{self.expr(scope, N4, down)}.requires_grad"),
                (0.2, lambda: f"{self.expr(scope, N4, down)}.is_contiguous()"),
                (0.2, lambda: "torch.is_grad_enabled()"),
                (0.25, lambda: self._by_data(scope, down)),
            ]
        return self.pick_first(options)

    def _by_data(self, scope: Scope, depth: int) -> str:
        self.breaking += 1
        return self.pick(("bool({}.sum() > 0)", "{}.sum().item() > 0.5", "{}.mean() > 0", "({} > 9).any()")).format(
            self.expr(scope, N4, depth)
        )

    def _contained(self, scope: Scope) -> str | None:
        found = self.of_name(scope, "list", "deque", "dict", "set")
        found = [
            (text, kind) for text, kind in found if (kind.parts[0] if kind.name != "list" else kind.item) in (INT, STR)
        ]
        if not found:
            return None
        text, kind = self.pick(found)
        return f"{self.expr(scope, kind.parts[0], 0)} {self.pick(('in', 'not in'))} {text}"

    def _identity(self, scope: Scope) -> str | None:
        found = self.of_name(scope, "list", "dict", "tensor", "object", "set")
        if not found:
            return None
        text, kind = self.pick(found)
        others = [other for other, known in found if known.name == kind.name]
        return f"({text} {self.pick(('is', 'is not'))} {self.pick([*others, 'None'])})"

    def _type_question(self, scope: Scope) -> str | None:
        found = [*scope.readable(), *self.globals]
        if not found:
            return None
        return self.pick(
            ("isinstance({0}, {1})", "type({0}) is {1}", "callable({0})", "hasattr({0}, 'count')", "({0} is None)")
        ).format(self.pick(found), self.pick(("list", "dict", "torch.Tensor", "(int, float)", "str", *self.classes)))

    def str_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        options = self._usual(scope, kind, depth)
        options += [(2, lambda: repr(self.pick(STRINGS)))]
        if depth > 0:
            down = depth - 1
            options += [
                (1, lambda: "f'k{" + self.expr(scope, INT, 0).replace("'", '"') + "}'"),
                (0.4, lambda: f"str({self.expr(scope, INT, down)})"),
                (0.4, lambda: f"({self.expr(scope, STR, down)} + {self.pick(STRINGS)!r})"),
                (0.3, lambda: f"{self.expr(scope, STR, down)}.upper()"),
                (0.2, lambda: f"{self.expr(scope, STR, down)}[::-1]"),
                (0.2, lambda: f"'%s-%d' % ({self.expr(scope, STR, down)}, {self.expr(scope, INT, down)})"),
                (0.2, lambda: f"type({self.pick([*scope.readable()] or ['0'])}).__name__"),
                (0.2, lambda: f"'-'.join([{self.expr(scope, STR, 0)}, {self.expr(scope, STR, 0)}])"),
                (0.2, lambda: f"'{{0}}:{{1:>4}}'.format({self.expr(scope, STR, 0)}, {self.expr(scope, INT, 0)})"),
            ]
        return self.pick_first(options)

    # -- tensors ---------------------------------------------------------------------------------------------------

    def tensor_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        options = self._usual(scope, kind, depth)
        options[0] = (4 if depth > 0 else 20, options[0][1])
        options += [(0.3, lambda: self._new_tensor(scope, kind))]
        if depth > 0:
            down = depth - 1
            if kind.dtype == "float32":

                def nested(form: str) -> str:
                    names = [self.expr(scope, kind, down) for _ in range(form.count("{}"))]
                    return form.format(*names)

                def unary() -> str:
                    form, text = self.pick(UNARY), self.expr(scope, kind, down)
                    return form.replace("{}", text)

                def scalar() -> str:
                    operand = self.expr(scope, self.pick((INT, FLOAT)), down)
                    form = self.pick(("({} * {})", "({} + {})", "({1} - {0})", "({} / (abs({}) + 1))"))
                    return form.format(self.expr(scope, kind, down), operand)

                options += [(3, unary), (3, lambda: nested(self.pick(BINARY))), (2, scalar)]
                options += [(0.6, lambda: self._summed(scope, kind))]
            forms = [(parts, form) for wanted, parts, form in RESHAPED if wanted == kind]
            if forms:

                def reshaped() -> str:
                    parts, form = self.pick(forms)
                    texts = [self.expr(scope, part, down) for part in parts]
                    return form.replace("<n>", scope.size).format(*texts)

                options += [(3, reshaped)]
        return self.pick_first(options)

    def _summed(self, scope: Scope, kind: Kind) -> str | None:
        found = [text for text, known in self.of_name(scope, "list", "deque") if known.item == kind]
        if not found:
            return None
        return self.pick(
            (
                "sum({}, {})", "sum((q * 2 for q in {}), {})", "functools.reduce(torch.add, {}, {})",
                "torch.stack([*{}, {}]).sum(0)",
            )
        ).format(self.pick(found), self.expr(scope, kind, 0))  # fmt: skip

    def _new_tensor(self, scope: Scope, kind: Kind) -> str:
        sizes = [scope.size if size == "n" else str(size) for size in kind.shape]
        shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        maker = self.pick(("torch.ones({})", "torch.zeros({})", "torch.full({}, 0.75)"))
        made = maker.format(shape)
        if kind.dtype == "float32":
            return made
        if kind.dtype in ("bool", "int64"):
            return f"torch.ones({shape}, dtype=torch.{kind.dtype})"
        return f"{made}.to(torch.{kind.dtype})"

    # -- containers ------------------------------------------------------------------------------------------------

    def _items(self, scope: Scope, kind: Kind, depth: int, low: int = 0, high: int = 3) -> list[str]:
        return [self.expr(scope, kind, depth - 1) for _ in range(self.rng.randint(low, high))]

    def list_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        options = self._usual(scope, kind, depth)
        options += [(2, lambda: f"[{', '.join(self._items(scope, kind.item, depth))}]")]
        if depth > 0:
            down = depth - 1
            same = [text for text, known in self.of_name(scope, "list", "deque") if known.item == kind.item]
            options += [(1, lambda: self._comprehension(scope, kind.item, depth, "[", "]"))]
            if same:
                options += [
                    (0.5, lambda: f"list({self.pick(same)})"),
                    (0.5, lambda: f"[*{self.pick(same)}, {self.expr(scope, kind.item, down)}]"),
                    (0.3, lambda: f"list(reversed({self.pick(same)}))"),
                    (0.3, lambda: f"copy.copy({self.pick(same)})"),
                    (0.3, lambda: f"list(map(lambda q: q, {self.pick(same)}))"),
                    (0.3, lambda: f"[q for q in {self.pick(same)}]"),
                    (
                        0.3,
                        lambda: f"list(itertools.chain({self.pick(same)}, {self.expr(scope, list_of(kind.item), 0)}))",
                    ),
                ]
            if kind.item == INT:
                options += [
                    (0.5, lambda: f"list(range({self.rng.randint(0, 4)}))"),
                    (0.3, lambda: f"sorted([{', '.join(self._items(scope, INT, 1))}], key=lambda q: -q)"),
                ]
            if kind.item == V4:
                options += [(0.5, lambda: f"list({self.expr(scope, N4, down)}.unbind(0))")]
                options += [(0.3, lambda: f"[row for row in {self.expr(scope, N4, down)}]")]
            if kind.item == N4:
                options += [(0.4, lambda: f"list(torch.split({self.expr(scope, N4, down)}, 4, 1))")]
        return self.pick_first(options)

    def _comprehension(self, scope: Scope, item: Kind, depth: int, left: str, right: str) -> str:
        source, kind = self.iterable(scope)
        name = self.pick(("q", "e"))
        inner = scope.child()
        inner.names[name] = kind
        inner.in_function = False
        condition = f" if {self.expr(inner, BOOL, 1)}" if self.chance(0.3) else ""
        return f"{left}{self.expr(inner, item, depth - 1)} for {name} in {source}{condition}{right}"

    def iterable(self, scope: Scope) -> tuple[str, Kind]:
        """(an expression to loop over, kind of its items), of bounded length."""
        found = self.of_name(scope, "list", "deque", "dict")
        if not found or self.chance(0.4):
            bound = self.pick((str(self.rng.randint(0, 3)), f"min({self.expr(scope, INT, 0)}, 3)", "1, 4", "3, 0, -1"))
            return f"range({bound})", INT
        text, kind = self.pick(found)
        if kind.name == "dict":
            return f"list({text}.values())[:4]", kind.item
        if kind.name == "deque":
            return f"list({text})[:4]", kind.item
        return f"{text}[:4]", kind.item

    def deque_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        def made() -> str:
            return (
                f"collections.deque([{', '.join(self._items(scope, kind.item, depth))}]{self.pick(('', ', maxlen=3'))})"
            )

        return self.pick_first([*self._usual(scope, kind, depth), (2, made)])

    def dict_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        key, item = kind.parts

        def made() -> str:
            pairs = [
                f"{self.expr(scope, key, 0)}: {self.expr(scope, item, depth - 1)}"
                for _ in range(self.rng.randint(0, 3))
            ]
            return "{" + ", ".join(pairs) + "}"

        options = [*self._usual(scope, kind, depth), (2, made)]
        same = self.places(scope, kind)
        if depth > 0 and same:
            options += [
                (0.4, lambda: f"dict({self.pick(same)})"),
                (0.4, lambda: "{**" + self.pick(same) + f", {self.expr(scope, key, 0)}: {self.expr(scope, item, 0)}}}"),
                (0.4, lambda: f"({self.pick(same)} | {self.pick(same)})"),
                (0.3, lambda: f"{self.pick(same)}.copy()"),
                (0.4, lambda: f"{{k: q for k, q in {self.pick(same)}.items() if k != {self.expr(scope, key, 0)}}}"),
            ]
        if depth > 0 and key == STR:
            options += [(0.3, lambda: f"dict(a={self.expr(scope, item, 0)}, zip={self.expr(scope, item, 0)})")]
            options += [
                (0.3, lambda: f"dict(zip(['a', 'b'], [{self.expr(scope, item, 0)}, {self.expr(scope, item, 0)}]))")
            ]
        if depth > 0 and key == INT:
            options += [(0.3, lambda: f"{{i: {self.expr(scope, item, 0)} for i in range(2)}}")]
        return self.pick_first(options)

    def set_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        def made() -> str:
            return f"{{{', '.join([self.expr(scope, kind.item, 0), *self._items(scope, kind.item, 1)])}}}"

        options = [*self._usual(scope, kind, depth), (2, made), (0.3, lambda: "set()")]
        same = self.places(scope, kind)
        if same:
            options += [(1, lambda: f"({self.pick(same)} {self.pick('|&-^')} {made()})")]
        return self.pick_first(options)

    def tuple_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        def made() -> str:
            return f"({', '.join(self.expr(scope, part, depth - 1) for part in kind.parts)},)"

        return self.pick_first([*self._usual(scope, kind, depth), (2, made)])

    def object_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        def made() -> str:
            parameters = self.classes[kind.cls].parameters
            return f"{kind.cls}({', '.join(self.expr(scope, part, max(depth - 1, 0)) for part in parameters)})"

        return self.pick_first([*self._usual(scope, kind, depth), (2, made)])

    def function_expr(self, scope: Scope, kind: Kind, depth: int) -> str:
        inner = Scope({f"p{at}": part for at, part in enumerate(kind.parts[:-1])}, scope.size, scope)
        inner.in_function = False

        def made() -> str:
            return f"(lambda {', '.join(inner.names)}: {self.expr(inner, kind.item, max(depth - 1, 0))})"

        return self.pick_first([*self._usual(scope, kind, depth), (2, made)])
