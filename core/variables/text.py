"""str(), repr(), ascii() and format() of values known while tracing."""

from __future__ import annotations

import collections
import functools
import types
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..guards.checks import Predicate
from ..guards.source import ConstSource
from .base import VariableTracker, find_special
from .late_text import late_text
from .literal import fold, run
from .slot_results import checked
from .unread import text_later

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker
BRACKETS = {"list": "[]", "tuple": "()", "deque": "[]"}


def text_of(tx: Tracer, tracker: VT, function: Any) -> str:
    """str(object) or repr(object)."""
    return _text(tx, tracker.realize(tx), function, frozenset())


def format_value(tx: Tracer, value: VT, spec: VT | None = None) -> VT:
    """format(object, spec)."""
    value = value.realize(tx)
    spec = spec.realize(tx) if spec is not None else tx.constant("")
    own = isinstance(find_special(value.python_type(), "__format__"), types.FunctionType)
    plain = not own and spec.kind == "constant" and spec.as_constant() == ""
    address = late_text(value, str) if plain else None
    if address is not None:
        return address
    later = text_later(tx, format, [value, spec])
    if later is not None:
        return later
    if value.kind == "symbolic":
        value = value.specialize(tx)  # type: ignore[attr-defined]
    cls = value.python_type()
    if own:
        return checked(tx, "__format__", cls, value.call_method(tx, "__format__", [spec], {}))
    if value.kind in ("constant", "immutable"):
        return value.call_method(tx, "__format__", [spec], {})
    payload = getattr(value, "payload", None)
    if payload is not None and payload.kind == "constant" and (spec.kind != "constant" or spec.as_constant()):
        return payload.call_method(tx, "__format__", [spec], {})
    text = run(tx, str, [spec.as_constant()])
    if value.kind == "tensor":
        raise _printed_tensor()
    if text:
        name = value.python_type().__name__
        tx.raise_exception(TypeError, f"unsupported format string passed to {name}.__format__")
    return tx.constant(text_of(tx, value, str))


def _printed_tensor() -> Unsupported:
    return Unsupported("the text of a tensor needs its values", remedy="format tensors outside the compiled function")


def _text(tx: Tracer, tracker: VT, function: Any, outer: frozenset[int]) -> str:
    if tracker.kind == "tensor":
        raise _printed_tensor()
    if tracker.kind == "symbolic":
        tracker = tracker.specialize(tx)  # type: ignore[attr-defined]
    cls = tracker.python_type()
    name = "__str__" if function is str else "__repr__"
    raw = find_special(cls, name)
    if function is str and raw is object.__str__:
        name, raw = "__repr__", find_special(cls, "__repr__")
    own = tracker.kind == "user_object" or cls is collections.Counter
    if isinstance(raw, types.FunctionType) and (own or raw.__module__ not in ("enum", "collections", "types")):
        return _checked(tx, tracker.call_method(tx, name, [], {}).realize(tx), name)
    if tracker.kind in ("constant", "builtin", "class", "range", "immutable", "type_expression"):
        return run(tx, function, [tracker.as_constant()])
    if tracker.kind == "torch_function":
        return run(tx, function, [tracker.as_python_object()])  # type: ignore[attr-defined]
    if tracker.kind in BRACKETS or tracker.kind in ("dict", "dict_view", "set", "slice"):
        return _container(tx, tracker, outer)
    inside = getattr(tracker, "payload", None)
    if inside is not None and inside.kind in ("list", "dict", "set", "deque") and name == "__repr__":
        return _container(tx, inside, outer, cls)
    if tracker.kind == "exception" or getattr(tracker, "payload", None) is not None:
        return _checked(tx, tracker.call_method(tx, name, [], {}).realize(tx), name)
    give = getattr(tracker, "as_python_object", None)
    if give is not None and tracker.kind in ("python_module", "opaque") and raw is not object.__repr__:
        return _guarded(tx, tracker, function, give())
    outside = getattr(tracker, "fn", None)
    lasts = not tracker.mutable or tx.options.fullgraph  # else each call may bring another, with another address
    if tracker.kind == "function" and isinstance(outside, types.FunctionType) and lasts:
        return _guarded(tx, tracker, function, outside)
    raise tracker.refuse(f"{function.__name__}()", remedy="give the class a __repr__ that names no address")


def _guarded(tx: Tracer, tracker: VT, function: Any, value: Any) -> str:
    """The text of an object that tracing does not look into: it may change with what is inside."""
    text = run(tx, function, [value])
    source = tracker.source or ConstSource(value)
    tx.guard(source, Predicate((source,), functools.partial(_has_text, function, text)))
    return text


def _has_text(function: Any, text: str, value: Any) -> bool:
    return function(value) == text


def _checked(tx: Tracer, result: VT, name: str) -> str:
    if not issubclass(result.python_type(), str):
        tx.raise_exception(TypeError, f"{name} returned non-string (type {result.python_type().__name__})")
    return result.as_constant()


def _container(tx: Tracer, tracker: Any, outer: frozenset[int], named: type | None = None) -> str:
    """The text of a container, or of an object around one, whose class is `named` then."""
    cls = tracker.python_type()
    shown = named or cls
    if id(tracker) in outer:
        return {"list": "[...]", "tuple": "(...)", "dict": "{...}", "deque": "[...]"}.get(tracker.kind, "...")
    inner = outer | {id(tracker)}

    def text(item: VT) -> str:
        return _text(tx, item.realize(tx), repr, inner)

    if tracker.kind == "slice":
        return "slice(" + ", ".join(text(part) for part in tracker.parts) + ")"
    if tracker.kind == "dict":
        return _dict(tx, tracker, text, shown.__name__)
    items = [text(item) for item in tracker.unpack(tx)]
    if tracker.kind == "dict_view":
        return f"{cls.__name__}([{', '.join(items)}])"
    if tracker.kind == "set":
        name = "" if shown is set else shown.__name__
        if not items:
            return f"{shown.__name__}()"
        return f"{name}({{{', '.join(items)}}})" if name else f"{{{', '.join(items)}}}"
    if tracker.kind == "deque":
        maxlen = tracker.items.maxlen
        return f"{shown.__name__}([{', '.join(items)}]" + (")" if maxlen is None else f", maxlen={maxlen})")
    if tracker.kind == "list":
        return f"[{', '.join(items)}]"
    fields = getattr(cls, "_fields", None)
    if fields is not None:
        return f"{cls.__name__}(" + ", ".join(f"{name}={item}" for name, item in zip(fields, items)) + ")"
    if cls is not tuple:
        return f"{cls.__module__}.{cls.__name__}([{', '.join(items)}])" if hasattr(cls, "numel") else _refuse(tracker)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _refuse(tracker: VT) -> str:
    raise tracker.refuse("repr()")


def _dict(tx: Tracer, tracker: Any, text: Any, name: str) -> str:
    cls = tracker.python_type()
    pairs = [(text(key), text(value)) for key, value in tracker.pairs(tx)]
    body = "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
    if cls is dict:
        return body
    if cls.__name__ == "defaultdict":
        factory = tracker.get_attr(tx, "default_factory")
        return f"{name}({text(factory)}, {body})"
    if cls.__name__ == "OrderedDict":
        import sys

        if not pairs:
            return f"{name}()"
        if sys.implementation.name == "cpython" and repr(cls(a=1)).startswith("OrderedDict({"):
            return f"{name}({body})"
        return f"{name}([" + ", ".join(f"({key}, {value})" for key, value in pairs) + "])"
    raise tracker.refuse("repr()")


def ascii_of(tx: Tracer, tracker: VT) -> VT:
    """ascii(object)."""
    text = text_of(tx, tracker, repr)
    return fold(tx, lambda: text.encode("ascii", "backslashreplace").decode("ascii"))
