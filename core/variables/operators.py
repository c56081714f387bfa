"""The dispatch of operators over trackers: what `a + b`, `-a`, `a < b`, `a in b` and `a is b` mean while tracing.

Order of decision: known values run for real; a tensor or symbolic number makes a graph node; everything else follows
Python's protocol of special methods (type of the right operand first where it is a subclass, NotImplemented handed on).
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..guards.checks import Is
from ..torch_compat.expressions import known_difference
from . import function_mode, host_number, tensor_truth
from .base import ObservedException, VariableTracker, find_special
from .literal import fold, run
from .slot_results import checked
from .unread import percent_later, sum_of_texts

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker
Op = Callable[..., Any]

_ARITHMETIC = {
    operator.add: ("add", "+"),
    operator.sub: ("sub", "-"),
    operator.mul: ("mul", "*"),
    operator.matmul: ("matmul", "@"),
    operator.truediv: ("truediv", "/"),
    operator.floordiv: ("floordiv", "//"),
    operator.mod: ("mod", "%"),
    divmod: ("divmod", "divmod()"),
    pow: ("pow", "** or pow()"),
    operator.pow: ("pow", "** or pow()"),
    operator.lshift: ("lshift", "<<"),
    operator.rshift: ("rshift", ">>"),
    operator.and_: ("and", "&"),
    operator.xor: ("xor", "^"),
    operator.or_: ("or", "|"),
}
_IN_PLACE: dict[Op, tuple[Op, str]] = {
    operator.iadd: (operator.add, "+="),
    operator.isub: (operator.sub, "-="),
    operator.imul: (operator.mul, "*="),
    operator.imatmul: (operator.matmul, "@="),
    operator.itruediv: (operator.truediv, "/="),
    operator.ifloordiv: (operator.floordiv, "//="),
    operator.imod: (operator.mod, "%="),
    operator.ipow: (operator.pow, "**="),
    operator.ilshift: (operator.lshift, "<<="),
    operator.irshift: (operator.rshift, ">>="),
    operator.iand: (operator.and_, "&="),
    operator.ixor: (operator.xor, "^="),
    operator.ior: (operator.or_, "|="),
}
_COMPARISONS = {
    operator.lt: ("__lt__", "__gt__", "<"),
    operator.le: ("__le__", "__ge__", "<="),
    operator.gt: ("__gt__", "__lt__", ">"),
    operator.ge: ("__ge__", "__le__", ">="),
    operator.eq: ("__eq__", "__eq__", "=="),
    operator.ne: ("__ne__", "__ne__", "!="),
}
_OPERATORS = frozenset(
    f"__{place}{name}__" for name, _ in _ARITHMETIC.values() for place in ("", "r", "i")
) | frozenset(name for names in _COMPARISONS.values() for name in names[:2])
_UNARY = {
    operator.neg: ("__neg__", "unary -"),
    operator.pos: ("__pos__", "unary +"),
    operator.invert: ("__invert__", "unary ~"),
    operator.inv: ("__invert__", "unary ~"),
}
_SEQUENCES = (str, bytes, list, tuple)
_NUMBERS = (bool, int, float, complex)
GRAPH_KINDS = ("tensor", "symbolic")
_SHIFTS = (operator.lshift, operator.rshift)
_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod, divmod)
TYPE_KINDS = ("builtin", "class", "type_expression", "constant")
BINARY_OPERATORS = frozenset(
    (*_ARITHMETIC, *_IN_PLACE, *_COMPARISONS, operator.is_, operator.is_not, operator.contains, operator.getitem)
) | {operator.concat, operator.iconcat}
UNARY_OPERATORS = frozenset((*_UNARY, operator.not_, operator.truth, abs, operator.abs, operator.index))


def binary(tx: Tracer, op: Op, left: VT, right: VT) -> VT:
    """op(left, right) for a function of the operator module with two operands."""
    left, right = left.realize(tx), right.realize(tx)
    if "host_number" in (left.kind, right.kind):
        return host_number.binary(tx, op, left, right)
    if op is operator.is_ or op is operator.is_not:
        return tx.constant(is_same(tx, left, right) == (op is operator.is_))
    if op is operator.contains:
        return tx.constant(contains(tx, left, right))
    if op is operator.getitem:
        return left.get_item(tx, right)
    if tx.trace.function_modes and "tensor" in (left.kind, right.kind) and function_mode.is_asked(tx):
        return _put_to_mode(tx, op, left, right)
    if op in (operator.add, operator.mod) and left.kind == "constant" and left.python_type() is str:
        later = sum_of_texts(tx, left, right) if op is operator.add else percent_later(tx, left, right)
        if later is not None:
            return later
    if op is operator.add and left.kind == "late_text":
        return sum_of_texts(tx, left, right) or _no_operator(tx, op, left, right)
    if _touches_graph(left, right) and "constant" in (left.kind, right.kind):
        left, right = _beside(tx, left, right), _beside(tx, right, left)
    if op in (operator.concat, operator.iconcat):
        op = operator.add if op is operator.concat else operator.iadd
    if _folds(left) and _folds(right):
        return fold(tx, op, [left.as_constant(), right.as_constant()])
    if op is operator.or_ and left.kind in TYPE_KINDS and right.kind in TYPE_KINDS and _types_join(left, right):
        return tx.wrap(run(tx, op, [left.as_constant(), right.as_constant()]), None, constant=True)
    if op in _COMPARISONS:
        return _compare(tx, op, left, right)
    if op in _IN_PLACE:
        return _in_place(tx, op, left, right)
    result = _arithmetic(tx, op, left, right)
    if result is not None:
        return result
    return _no_operator(tx, op, left, right)


def _put_to_mode(tx: Tracer, op: Op, left: VT, right: VT) -> VT:
    """An operator of tensors as the call of a method, which a mode of the program's is asked about."""
    if op in _COMPARISONS:
        own, other, _ = _COMPARISONS[op]
    elif op in _IN_PLACE:
        own, other = (f"__{place}{_ARITHMETIC[_IN_PLACE[op][0]][0]}__" for place in "ir")
    else:
        own, other = (f"__{place}{_ARITHMETIC[op][0]}__" for place in ("", "r"))
    first, name, second = (left, own, right) if left.kind == "tensor" else (right, other, left)
    if left.kind != "tensor" and left.kind not in ("constant", "symbolic"):
        function_mode.refuse(tx, "an operator of a tensor and another object")
    return first.call_method(tx, name, [second], {}).realize(tx)


def unary(tx: Tracer, op: Op, operand: VT) -> VT:
    """op(operand) for a function of the operator module with one operand."""
    operand = operand.realize(tx)
    if tx.trace.function_modes and operand.kind == "tensor" and function_mode.is_asked(tx):
        if op in (operator.not_, operator.truth, operator.index):
            function_mode.refuse(tx, "the value of a tensor")
        return operand.call_method(tx, _UNARY.get(op, ("__abs__",))[0], [], {}).realize(tx)
    if op is operator.not_:
        return negation(tx, operand)
    if op is operator.truth and operand.kind == "tensor_truth":
        return operand
    if op is operator.truth:
        return tx.constant(tx.truth(operand))
    if _folds(operand):
        return fold(tx, op, [operand.as_constant()])
    if operand.kind == "host_number":
        return host_number.unary(tx, op, operand)
    if operand.kind in GRAPH_KINDS:
        if op is operator.index and operand.kind == "symbolic" and operand.python_type() is not float:
            return operand
        if op in (operator.invert, operator.inv) and operand.kind == "symbolic" and operand.python_type() is int:
            return binary(tx, operator.sub, tx.graph_call(operator.neg, [operand], {}), tx.constant(1))
        return _node_or_value(tx, op, operand)
    name, sign = _UNARY.get(op, ("__abs__" if op in (abs, operator.abs) else "__index__", ""))
    method = operand.lookup_special(tx, name)
    if method is not None:
        result: VT = method.call(tx, [], {})
        return checked(tx, name, operand.python_type(), result) if name == "__index__" else result
    cls = operand.python_type().__name__
    if sign:
        tx.raise_exception(TypeError, f"bad operand type for {sign}: '{cls}'")
    if name == "__abs__":
        tx.raise_exception(TypeError, f"bad operand type for abs(): '{cls}'")
    tx.raise_exception(TypeError, f"'{cls}' object cannot be interpreted as an integer")


def negation(tx: Tracer, operand: VT) -> VT:
    """not object."""
    operand = operand.realize(tx)
    if operand.kind == "tensor" and operand.needed_number(tx) is None:  # type: ignore[attr-defined]
        operand = tensor_truth.truth_of(tx, operand) or operand
    if operand.kind == "tensor_truth":
        return operand.negated(tx)  # type: ignore[attr-defined]
    return tx.constant(not tx.truth(operand))


def _folds(tracker: VT) -> bool:
    """True for values whose operators are C code on known values."""
    if tracker.kind == "constant":
        cls = tracker.python_type()
        return cls.__flags__ & (1 << 9) == 0 or cls.__module__ == "torch" or _plain_enum(cls)
    return tracker.kind in ("builtin", "range") or tracker.kind == "immutable" and _is_moment(tracker)


def _is_moment(tracker: VT) -> bool:
    return tracker.python_type().__module__ == "datetime"


def _types_join(left: VT, right: VT) -> bool:
    """True when `|` makes a type expression: both are classes or type expressions, and C or typing code answers."""
    if "constant" in (left.kind, right.kind) and not any(
        t.is_constant() and t.as_constant() is None for t in (left, right)
    ):
        return False
    for tracker in (left, right):
        method = find_special(tracker.python_type(), "__or__")
        if isinstance(method, types.FunctionType) and method.__module__ != "typing":
            return False
    return left.kind != "constant" or right.kind != "constant"


def _plain_enum(cls: type) -> bool:
    # an enum whose operators the user did not write: those of Enum, Flag, int or str
    for name in ("__eq__", "__add__", "__or__", "__and__", "__lt__", "__radd__", "__ror__", "__mul__", "__hash__"):
        owner = next((base for base in cls.__mro__ if name in base.__dict__), None)
        if owner is not None and owner.__module__ not in ("builtins", "enum"):
            return False
    return True


# -- identity and equality ---------------------------------------------------------------------------------------------


def is_same(tx: Tracer, left: VT, right: VT) -> bool:
    """left is right."""
    left, right = left.realize(tx), right.realize(tx)
    if left is right:
        return True
    if left.kind == "constant" and right.kind == "constant":
        return left.python_type() is right.python_type() and _same_constant(tx, left, right)
    a, b = _known_object(left), _known_object(right)
    if a is not None and b is not None:
        return a is b
    if "tensor_truth" in (left.kind, right.kind) and left.python_type() is right.python_type():
        raise Unsupported("`is` on a bool that only a run can tell is not traced", remedy="use its truth")
    if "symbolic" in (left.kind, right.kind) and issubclass(left.python_type(), right.python_type()):
        raise Unsupported("`is` between numbers is not traced", remedy="compare numbers with ==")
    if left.kind == right.kind == "instance_dict":
        return is_same(tx, left.owner, right.owner)  # type: ignore[attr-defined]
    if left.kind == right.kind == "storage":
        raise Unsupported("`is` between storages is not traced", remedy="compare the tensors that have them")
    if left.kind == right.kind == "tuple" and not left.unpack(tx) and not right.unpack(tx):
        return left.python_type() is right.python_type() is tuple  # the empty tuple is one object
    return False


def _known_object(tracker: VT) -> Any:
    # classes, functions and modules may have more than one tracker
    give = getattr(tracker, "as_python_object", None)
    if give is None or getattr(tracker, "value", give) is None:
        return None
    return give()


def _same_constant(tx: Tracer, left: VT, right: VT) -> bool:
    a, b = left.as_constant(), right.as_constant()
    if type(a) is not type(b):
        return False
    shared = type(a) in (str, bytes, int, float, complex) or type(a).__name__ in ("device",)
    if a is b:
        if shared and not (type(a) is int and -5 <= a <= 256):
            # equal values may be one object or two; what holds now is made an assumption
            for tracker in (left, right):
                tx.guard(tracker.source, Is(a))
        return True
    if shared and a == b:
        if left.source is not None and right.source is not None:
            tx.guard(left.source, Is(a))
            tx.guard(right.source, Is(b))
            return False
        raise Unsupported(
            f"`is` between equal values of type {type(a).__name__} has no fixed answer", remedy="compare with =="
        )
    return False


def compare_equal(tx: Tracer, left: VT, right: VT) -> bool:
    """How containers compare: identity first, then the truth of left == right."""
    left, right = left.realize(tx), right.realize(tx)
    return is_one_value(left, right) or tx.truth(binary(tx, operator.eq, left, right))


def is_one_value(left: VT, right: VT) -> bool:
    """True where identity alone settles equality: one tracker, or two of one constant (NaN in a list is found)."""
    if left is right:
        return True
    return left.kind == "constant" and right.kind == "constant" and left.as_constant() is right.as_constant()


def contains(tx: Tracer, container: VT, item: VT) -> bool:
    """item in container."""
    container, item = container.realize(tx), item.realize(tx)
    if container.lookup_special(tx, "__contains__") is not None or container.kind == "iterator":
        return container.contains(tx, item)
    if container.lookup_special(tx, "__iter__") is None and container.lookup_special(tx, "__getitem__") is None:
        tx.raise_exception(TypeError, f"argument of type '{container.python_type().__name__}' is not iterable")
    iterator = container.iterate(tx).realize(tx)
    while (candidate := iterator.next_item(tx)) is not None:
        if compare_equal(tx, candidate, item):
            return True
    return False


# -- the protocol of special methods -----------------------------------------------------------------------------------


def _is_not_implemented(result: VT) -> bool:
    return result.kind == "constant" and result.as_constant() is NotImplemented


def _try(tx: Tracer, tracker: VT, name: str, other: VT) -> VT | None:
    """type(tracker).name(tracker, other), None where the type has no such method or it answers NotImplemented."""
    if tracker.kind == "constant" and _declines(tracker, name, other):
        return None
    own = tracker.kind == "class" and any(
        isinstance(find_special(tracker.python_type(), one), types.FunctionType) for one in (name, "__eq__")
    )
    if type(tracker).call_method is VariableTracker.call_method and name in ("__eq__", "__ne__") and not own:
        equal = tracker.equals(tx, other)
        return equal if equal is None or name == "__eq__" else tx.constant(not tx.truth(equal))
    if name in object.__dict__ and find_special(tracker.python_type(), name) is object.__dict__[name]:
        if name == "__ne__":
            equal = _try(tx, tracker, "__eq__", other)
            return None if equal is None else tx.constant(not tx.truth(equal))
        return None  # object's own: NotImplemented for everything but identity, which the caller asks for
    if tracker.kind == "builtin" and name in ("__or__", "__ror__") and isinstance(tracker.as_constant(), type):
        if other.kind not in ("constant", "list", "tuple", "dict", "set", "function", "tensor", "symbolic"):
            raise other.refuse("`|` with a class")  # of typing's own objects it makes a type expression
        return None
    method = tracker.lookup_special(tx, name)
    if method is None:
        return None
    result = method.call(tx, [other], {}).realize(tx)
    return None if _is_not_implemented(result) else result


def _declines(tracker: VT, name: str, other: VT) -> bool:
    """True when the C method of a literal answers NotImplemented to an operand that is no literal."""
    cls = tracker.python_type()
    if other.kind == "constant" or cls.__flags__ & (1 << 9) or cls.__module__.startswith("numpy"):
        return False  # a dtype of NumPy's equals what names it, such as a class
    if issubclass(other.python_type(), (int, float, complex, str, bytes)):
        return False
    return not (name == "__mod__" and issubclass(cls, (str, bytes)))


def _right_first(left: VT, right: VT, name: str) -> bool:
    # the right operand's class extends the left one's and brings its own reflected method
    mine, theirs = left.python_type(), right.python_type()
    if mine is theirs or not issubclass(theirs, mine):
        return False
    return getattr(theirs, name, None) is not getattr(mine, name, None)


def _try_both(tx: Tracer, left: VT, right: VT, name: str, reflected: str, comparison: bool = False) -> VT | None:
    mine, theirs = left.python_type(), right.python_type()
    right_first = (
        mine is not theirs and issubclass(theirs, mine) if comparison else _right_first(left, right, reflected)
    )
    if right_first:
        result = _try(tx, right, reflected, left)
        if result is not None:
            return result
    result = _try(tx, left, name, right)
    if result is None and not right_first and (comparison or mine is not theirs):
        result = _try(tx, right, reflected, left)
    return result


def _graph_operands(left: VT, right: VT) -> bool:
    """True when an operator on the two is a graph node: one is a tensor or symbolic, the other too or a number."""
    if left.kind in GRAPH_KINDS and right.kind in GRAPH_KINDS:
        return True
    other = right if left.kind in GRAPH_KINDS else left
    if other.kind == "constant":
        return isinstance(other.as_constant(), _NUMBERS)
    return False


def _touches_graph(left: VT, right: VT) -> bool:
    return left.kind in GRAPH_KINDS or right.kind in GRAPH_KINDS


def _beside(tx: Tracer, tracker: VT, other: VT) -> VT:
    """An operand as it acts beside the other: a tensor takes a known number of NumPy's for Python's, and such a number
    takes a symbolic one for its value; so does one of a class with operators of its own. Of other numbers beside a
    symbolic one (a bool, a member of an enum) the number counts."""
    if tracker.kind == "constant" and other.kind == "tensor" and _is_of_numpy(tracker):
        return tx.constant(tracker.as_proxy())
    if tracker.kind == "symbolic" and other.kind == "constant":
        ours = _is_of_numpy(other) or isinstance(other.as_constant(), _NUMBERS) and _has_operators(other.python_type())
        return tracker.specialize(tx) if ours else tracker  # type: ignore[attr-defined]
    if tracker.kind == "constant" and other.kind == "symbolic" and other.python_type() is not bool:
        value = tracker.as_constant()
        if isinstance(value, int) and type(value) is not int and not _has_operators(type(value)):
            return tx.constant(int(value))
    return tracker


def _has_operators(cls: type) -> bool:
    """Whether a class that extends a number's has operators written in Python."""
    if cls in _NUMBERS:
        return False
    return any(isinstance(find_special(cls, name), types.FunctionType) for name in _OPERATORS)


def _is_of_numpy(tracker: VT) -> bool:
    return tracker.python_type().__module__ == "numpy"


def _arithmetic(tx: Tracer, op: Op, left: VT, right: VT) -> VT | None:
    name, _ = _ARITHMETIC[op]
    if _touches_graph(left, right):
        asked = None if left.kind == "tensor" else f"__r{name}__"  # a tensor on the left takes the number by itself
        left, right = _as_number(left, f"__{name}__"), _as_number(right, asked)
        if _graph_operands(left, right):
            return _graph_node(tx, op, left, right)
        left_counts = left.kind == "symbolic" and left.python_type() is not float
        right_counts = right.kind == "symbolic" and right.python_type() is not float
        if left_counts and op is operator.mul and issubclass(right.python_type(), _SEQUENCES):
            return binary(tx, op, right, left.specialize(tx))  # type: ignore[attr-defined]
        if right_counts and op in (operator.mul, operator.mod) and issubclass(left.python_type(), _SEQUENCES):
            return binary(tx, op, left, right.specialize(tx))  # type: ignore[attr-defined]
        return _mixed(tx, name, left, right)
    return _try_both(tx, left, right, f"__{name}__", f"__r{name}__")


def _as_number(tracker: VT, own: str | None) -> VT:
    """The number that an object extends, as C code sees it; the object where its class has an operator of its own.
    own: the name of that operator, None where it is not asked."""
    payload = getattr(tracker, "payload", None)
    if payload is None or payload.kind != "constant" or not isinstance(payload.as_constant(), _NUMBERS):
        return tracker
    if own is not None and isinstance(find_special(tracker.python_type(), own), types.FunctionType):
        return tracker
    return payload


def _graph_node(tx: Tracer, op: Op, left: VT, right: VT) -> VT:
    numbers = "tensor" not in (left.kind, right.kind)
    if numbers and _needs_values(tx, op, left, right):
        return binary(tx, op, *_values(tx, left, right))
    if op is divmod:
        return tx.new_tuple([binary(tx, operator.floordiv, left, right), binary(tx, operator.mod, left, right)])
    return _node_or_value(tx, pow if numbers and op is operator.pow else op, left, right)


def _node_or_value(tx: Tracer, op: Op, *operands: VT) -> VT:
    """A graph node; where torch's symbolic numbers raise, what Python's numbers give, or raise."""
    try:
        return tx.graph_call(op, list(operands), {})
    except ObservedException:
        if any(operand.kind == "tensor" for operand in operands):
            raise
    return fold(tx, op, [value.as_constant() for value in _values(tx, *operands)])


def _values(tx: Tracer, *operands: VT) -> list[VT]:
    return [side.specialize(tx) if side.kind == "symbolic" else side for side in operands]  # type: ignore[attr-defined]


def _needs_values(tx: Tracer, op: Op, left: VT, right: VT) -> bool:
    """True where a graph can't stand for the operation on two numbers, of which one is symbolic.

    A graph raises behind everything else that the function does, so what raises is none of its nodes: a divisor is
    guarded not to be zero, a shift to go to the side it names. torch takes `&` of two numbers below zero for one above.
    """
    if op in _DIVISIONS:
        return right.kind == "symbolic" and not _decided(tx, right.truth)
    if op in _SHIFTS:
        return not _is_positive(tx, right)
    if op is operator.and_ and left.python_type() is right.python_type() is int:
        return not (_is_positive(tx, left) or _is_positive(tx, right))
    return False


def _decided(tx: Tracer, decide: Callable[[Tracer], bool]) -> bool:
    """What is decided about a symbolic number; True for one read from a tensor, of which only a run can tell."""
    try:
        return decide(tx)
    except Unsupported:
        return True


def _is_positive(tx: Tracer, number: VT) -> bool:
    """True for an int from 0 on; guarded."""
    if number.kind == "constant":
        return bool(number.as_constant() >= 0)
    return _decided(tx, lambda tx: tx.truth(_compare(tx, operator.ge, number, tx.constant(0))))


def _mixed(tx: Tracer, name: str, left: VT, right: VT) -> VT | None:
    """A tensor or symbolic number with an object: torch's operators decline, so the object's method is asked."""
    if left.kind in GRAPH_KINDS:
        return _try(tx, right, f"__r{name}__", left) if right.kind != "constant" else None
    return _try(tx, left, f"__{name}__", right) if left.kind != "constant" or name == "mod" else None


def _in_place(tx: Tracer, op: Op, left: VT, right: VT) -> VT:
    plain, _ = _IN_PLACE[op]
    if left.kind == "tensor" and _graph_operands(left, right):
        result = tx.graph_call(op, [left, right], {})
        # an in-place operator of a tensor gives the tensor itself; a subclass may give anything
        return left if left.python_type().__module__.startswith("torch") else result
    if not _touches_graph(left, right) or left.kind not in GRAPH_KINDS:
        result_or_none = _try(tx, left, f"__i{_ARITHMETIC[plain][0]}__", right)
        if result_or_none is not None:
            return result_or_none
    result_or_none = _arithmetic(tx, plain, left, right)
    if result_or_none is not None:
        return result_or_none
    return _no_operator(tx, op, left, right)


def _refuse_unknown(*operands: VT) -> None:
    """What tracing can't look into may well have the operator."""
    for operand in operands:
        if operand.kind in ("opaque", "unguarded"):
            raise operand.refuse("an operator")


def _no_operator(tx: Tracer, op: Op, left: VT, right: VT) -> VT:
    _refuse_unknown(left, right)
    in_place = op in _IN_PLACE
    sign = _IN_PLACE[op][1] if in_place else _ARITHMETIC[op][1]
    plain = _IN_PLACE[op][0] if in_place else op
    mine, theirs = left.python_type(), right.python_type()
    if plain is operator.add and mine in _SEQUENCES:
        if mine is bytes:
            tx.raise_exception(TypeError, f"can't concat {theirs.__name__} to bytes")
        tx.raise_exception(
            TypeError, f'can only concatenate {mine.__name__} (not "{theirs.__name__}") to {mine.__name__}'
        )
    if plain is operator.mul and (mine in _SEQUENCES or theirs in _SEQUENCES):
        other = theirs if mine in _SEQUENCES else mine
        tx.raise_exception(TypeError, f"can't multiply sequence by non-int of type '{other.__name__}'")
    tx.raise_exception(TypeError, f"unsupported operand type(s) for {sign}: '{mine.__name__}' and '{theirs.__name__}'")


def _known_difference(left: Any, right: Any) -> int | None:
    both = left.kind == right.kind == "symbolic" and left.python_type() is right.python_type() is int
    return known_difference(left.symbol, right.symbol) if both else None


def _compare(tx: Tracer, op: Op, left: VT, right: VT) -> VT:
    name, reflected, sign = _COMPARISONS[op]
    if _touches_graph(left, right):
        left, right = _as_number(left, name), _as_number(right, reflected)
        if _graph_operands(left, right):
            known = _known_difference(left, right)
            return _node_or_value(tx, op, left, right) if known is None else tx.constant(op(known, 0))
        other = right if left.kind in GRAPH_KINDS else left
        result = None
        if other.kind not in ("constant", "list", "tuple", "dict", "set"):
            method = name if other is left else reflected
            result = _try(tx, other, method, left if other is right else right)
    else:
        result = _try_both(tx, left, right, name, reflected, comparison=True)
    if result is not None:
        return result
    _refuse_unknown(left, right)
    if op is operator.eq or op is operator.ne:
        return tx.constant(is_same(tx, left, right) == (op is operator.eq))
    mine, theirs = left.python_type().__name__, right.python_type().__name__
    tx.raise_exception(TypeError, f"'{sign}' not supported between instances of '{mine}' and '{theirs}'")


__all__ = [
    "BINARY_OPERATORS",
    "UNARY_OPERATORS",
    "binary",
    "compare_equal",
    "contains",
    "is_one_value",
    "is_same",
    "unary",
]
