"""Kinds: what the writer of random programs knows of a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """name: "int", "list", "tensor", ...; parts: kinds of the items; shape and dtype for tensors; cls for objects."""

    name: str
    parts: tuple[Kind, ...] = ()
    shape: tuple[int | str, ...] = ()
    dtype: str = ""
    cls: str = ""

    @property
    def item(self) -> Kind:
        return self.parts[-1]


INT, FLOAT, BOOL, STR = Kind("int"), Kind("float"), Kind("bool"), Kind("str")
SCALARS = (INT, FLOAT, BOOL, STR)


def tensor(shape: tuple[int | str, ...] = ("n", 4), dtype: str = "float32") -> Kind:
    """A tensor; "n" in a shape is the size that differs from call to call."""
    return Kind("tensor", shape=shape, dtype=dtype)


def list_of(item: Kind) -> Kind:
    return Kind("list", (item,))


def deque_of(item: Kind) -> Kind:
    return Kind("deque", (item,))


def dict_of(item: Kind, key: Kind = STR) -> Kind:
    return Kind("dict", (key, item))


def set_of(item: Kind) -> Kind:
    return Kind("set", (item,))


def tuple_of(*items: Kind) -> Kind:
    return Kind("tuple", items)


def instance(cls: str) -> Kind:
    return Kind("object", cls=cls)


def function(result: Kind, *parameters: Kind) -> Kind:
    """A callable; the result comes last."""
    return Kind("function", (*parameters, result))


N4, V4, VN, M44, N1, ONE, N22 = (
    tensor(),
    tensor((4,)),
    tensor(("n",)),
    tensor((4, 4)),
    tensor(("n", 1)),
    tensor(()),
    tensor(("n", 2, 2)),
)
FLOATS = (N4, N4, N4, V4, VN, M44, N1, ONE, N22)
TENSORS = (
    *FLOATS,
    tensor(("n", 4), "int64"),
    tensor(("n",), "int64"),
    tensor(("n", 4), "bool"),
    tensor((4,), "int64"),
    tensor((4,), "float64"),
    tensor(("n", 4), "bfloat16"),
)
CONTAINERS = (
    list_of(INT),
    list_of(N4),
    list_of(N4),
    list_of(V4),
    list_of(STR),
    list_of(list_of(INT)),
    deque_of(INT),
    deque_of(N4),
    dict_of(INT),
    dict_of(N4),
    dict_of(V4, INT),
    dict_of(list_of(N4)),
    set_of(INT),
    set_of(STR),
    tuple_of(INT, N4),
    tuple_of(N4, V4),
    tuple_of(STR, INT, INT),
)
