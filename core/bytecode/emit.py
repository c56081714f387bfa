"""Emitters: short instruction sequences that do one thing, right for the running version.

Each returns a fresh list of Instructions without position (`located` gives them one). Stack pictures are written
bottom to top. The calling convention differs between versions in where a NULL stands beside the callable; callers here
put only the callable and its arguments on the stack and let `call_function` sort that out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any

from .instruction import CellName, Instruction
from .opcodes import BINARY_OPERATORS, COMPARE_OPERATORS, OPCODE, TABLE

Instructions = list[Instruction]


def _one(opname: str, arg: int | None = None) -> Instructions:
    return [Instruction(opname, arg, arg)]


# Values -------------------------------------------------------------------------------------------------------------


def load_const(value: Any) -> Instructions:
    """[] -> [value]; any object may stand in co_consts."""
    return [Instruction("LOAD_CONST", None, value)]


def load_fast(name: str) -> Instructions:
    """[] -> [local]; raises UnboundLocalError when it is unset."""
    return [Instruction("LOAD_FAST_CHECK" if TABLE.unchecked_load_fast else "LOAD_FAST", None, name)]


def load_fast_bound(name: str) -> Instructions:
    """[] -> [local], for a local that is certainly set: where Python has an unchecked load this uses it."""
    return [Instruction("LOAD_FAST", None, name)]


def store_fast(name: str) -> Instructions:
    """[value] -> []; a name that the code does not have yet becomes a new local."""
    return [Instruction("STORE_FAST", None, name)]


def delete_fast(name: str) -> Instructions:
    """Unset a local that is set."""
    return [Instruction("DELETE_FAST", None, name)]


def load_global(name: str, push_null: bool = False) -> Instructions:
    """[] -> [global or builtin], with the NULL of a call in its place when `push_null`."""
    return [Instruction("LOAD_GLOBAL", None, name, 1 if push_null else 0)]


def store_global(name: str) -> Instructions:
    """[value] -> []."""
    return [Instruction("STORE_GLOBAL", None, name)]


def delete_global(name: str) -> Instructions:
    """Unset a global."""
    return [Instruction("DELETE_GLOBAL", None, name)]


def load_deref(name: str) -> Instructions:
    """[] -> [contents of the cell]."""
    return [Instruction("LOAD_DEREF", None, name)]


def store_deref(name: str) -> Instructions:
    """[value] -> []; sets the contents of the cell."""
    return [Instruction("STORE_DEREF", None, name)]


def delete_deref(name: str) -> Instructions:
    """Empty the cell."""
    return [Instruction("DELETE_DEREF", None, name)]


def load_cell(name: str) -> Instructions:
    """[] -> [the cell object itself] of a cell or free variable of this code."""
    if TABLE.load_closure == "LOAD_FAST":
        return [Instruction("LOAD_FAST", None, CellName(name))]
    return [Instruction(TABLE.load_closure, None, name)]


load_closure = load_cell


def load_closure_tuple(names: Sequence[str]) -> Instructions:
    """[] -> [tuple of the cell objects]: the closure of a function over these variables."""
    return [instruction for name in names for instruction in load_cell(name)] + build_tuple(len(names))


def make_cell(name: str) -> Instructions:
    """Turn the slot of `name` into a cell that holds what the slot held."""
    return [Instruction("MAKE_CELL", None, name)]


# The stack ----------------------------------------------------------------------------------------------------------


def pop_top() -> Instructions:
    """[value] -> []."""
    return _one("POP_TOP")


def swap(depth: int) -> Instructions:
    """Exchange the top with the value `depth` places down (the top is 1)."""
    return _one("SWAP", depth) if depth > 1 else []


def copy(depth: int) -> Instructions:
    """[..] -> [.., value that stood `depth` places down] (the top is 1)."""
    return _one("COPY", depth)


def dup_top() -> Instructions:
    """[value] -> [value, value]."""
    return copy(1)


def rotate_down(count: int) -> Instructions:
    """[a, .., y, top] -> [top, a, .., y]: sink the top below the `count` - 1 values under it."""
    return [instruction for depth in range(count, 1, -1) for instruction in swap(depth)]


def rotate_up(count: int) -> Instructions:
    """[bottom, a, .., y] -> [a, .., y, bottom]: lift the value `count` places down to the top."""
    return [instruction for depth in range(2, count + 1) for instruction in swap(depth)]


def push_null() -> Instructions:
    """[] -> [NULL]."""
    return _one("PUSH_NULL")


def pop_null(scratch: str) -> Instructions:
    """[NULL] -> []; POP_TOP would crash Python. `scratch` is a local that ends up unset."""
    return [Instruction("STORE_FAST", None, scratch)]


def nop() -> Instructions:
    """Nothing; a place to jump to."""
    return _one("NOP")


# Calls --------------------------------------------------------------------------------------------------------------


def callable_with_null(load: Instructions) -> Instructions:
    """[] -> [callable and the NULL of a call], in the order of the version; `load` pushes the callable."""
    return push_null() + load if TABLE.null_before_callable else load + push_null()


def _call(count: int) -> Instructions:
    return (_one("PRECALL", count) if TABLE.has_precall else []) + _one("CALL", count)


def call_function(argc: int, *, with_null: bool = False) -> Instructions:
    """[callable, a1, .., an] -> [result].

    with_null: the NULL of a call was pushed beside the callable (`callable_with_null`, `load_global(push_null=True)`).
    Without it, and with arguments, the callable stands in the place of an unbound method and its first argument in
    that of `self`, which every version calls the same way and which costs no NULL.
    """
    if with_null:
        return _call(argc)
    if argc:
        return _call(argc - 1)
    return push_null() + (swap(2) if TABLE.null_before_callable else []) + _call(0)


def call_kw(argc: int, keywords: tuple[str, ...], *, with_null: bool = False) -> Instructions:
    """[callable, a1, .., an] -> [result]; the last len(keywords) of the `argc` arguments go by these names."""
    if not keywords:
        return call_function(argc, with_null=with_null)
    count = argc if with_null else argc - 1
    if TABLE.kw_names_on_stack:
        return load_const(keywords) + _one("CALL_KW", count)
    return [Instruction("KW_NAMES", None, keywords), *_call(count)]


def call_ex(has_kwargs: bool = False, *, with_null: bool = False) -> Instructions:
    """[callable, tuple of arguments] or [callable, tuple, dict] -> [result].

    with_null: the NULL stands where the version wants it, under the callable or over it.
    """
    return ([] if with_null else _insert_null_for_call_ex(2 if has_kwargs else 1)) + _one(
        "CALL_FUNCTION_EX", int(has_kwargs)
    )


def _insert_null_for_call_ex(above: int) -> Instructions:
    return push_null() + rotate_down(above + 2 if TABLE.null_before_callable else above + 1)


def call_method(name: str, argc: int) -> Instructions:
    """[object, a1, .., an] -> [object.name(a1, .., an)]; the attribute is read after the arguments were computed."""
    lift = rotate_up(argc + 1)
    sink = rotate_down(argc + 1)
    return [*lift, *load_attr(name), *sink, *call_function(argc)]


def return_value() -> Instructions:
    """[value] -> leaves the function."""
    return _one("RETURN_VALUE")


# Attributes, items --------------------------------------------------------------------------------------------------


def load_attr(name: str) -> Instructions:
    """[object] -> [object.name], never in the method form."""
    return [Instruction("LOAD_ATTR", None, name)]


def store_attr(name: str) -> Instructions:
    """[value, object] -> []."""
    return [Instruction("STORE_ATTR", None, name)]


def delete_attr(name: str) -> Instructions:
    """[object] -> []."""
    return [Instruction("DELETE_ATTR", None, name)]


def binary_subscr() -> Instructions:
    """[container, key] -> [container[key]]."""
    return _one("BINARY_SUBSCR")


def store_subscr() -> Instructions:
    """[value, container, key] -> []."""
    return _one("STORE_SUBSCR")


def delete_subscr() -> Instructions:
    """[container, key] -> []."""
    return _one("DELETE_SUBSCR")


def import_name(name: str) -> Instructions:
    """[level, fromlist] -> [module]."""
    return [Instruction("IMPORT_NAME", None, name)]


# Building and taking apart ------------------------------------------------------------------------------------------


def build_tuple(count: int) -> Instructions:
    """[v1, .., vn] -> [tuple]."""
    return _one("BUILD_TUPLE", count)


def build_list(count: int) -> Instructions:
    """[v1, .., vn] -> [list]."""
    return _one("BUILD_LIST", count)


def build_set(count: int) -> Instructions:
    """[v1, .., vn] -> [set]."""
    return _one("BUILD_SET", count)


def build_map(count: int) -> Instructions:
    """[k1, v1, .., kn, vn] -> [dict]."""
    return _one("BUILD_MAP", count)


def build_const_key_map(keys: tuple[Any, ...]) -> Instructions:
    """[v1, .., vn] -> [dict with these keys]."""
    return load_const(keys) + _one("BUILD_CONST_KEY_MAP", len(keys))


def build_string(count: int) -> Instructions:
    """[s1, .., sn] -> [their concatenation]."""
    return _one("BUILD_STRING", count)


def build_slice(count: int) -> Instructions:
    """[start, stop] or [start, stop, step] -> [slice]; `count` is 2 or 3."""
    return _one("BUILD_SLICE", count)


def list_append(depth: int = 1) -> Instructions:
    """[list, .., value] -> [list, ..]; `depth` counts from the list, once the value is gone, to the top."""
    return _one("LIST_APPEND", depth)


def list_extend(depth: int = 1) -> Instructions:
    """[list, .., iterable] -> [list, ..]."""
    return _one("LIST_EXTEND", depth)


def set_add(depth: int = 1) -> Instructions:
    """[set, .., value] -> [set, ..]."""
    return _one("SET_ADD", depth)


def map_add(depth: int = 1) -> Instructions:
    """[dict, .., key, value] -> [dict, ..]."""
    return _one("MAP_ADD", depth)


def dict_update(depth: int = 1) -> Instructions:
    """[dict, .., mapping] -> [dict, ..]."""
    return _one("DICT_UPDATE", depth)


def dict_merge(depth: int = 1) -> Instructions:
    """As dict_update, but a key that is there already is a TypeError, as in a call."""
    return _one("DICT_MERGE", depth)


def list_to_tuple() -> Instructions:
    """[list] -> [tuple]."""
    if "LIST_TO_TUPLE" in OPCODE:
        return _one("LIST_TO_TUPLE")
    return _one("CALL_INTRINSIC_1", _INTRINSIC_LIST_TO_TUPLE)


_INTRINSIC_LIST_TO_TUPLE = 6


def unpack_sequence(count: int) -> Instructions:
    """[sequence] -> [vn, .., v1]: the first value is on top."""
    return _one("UNPACK_SEQUENCE", count)


def unpack_ex(before: int, after: int) -> Instructions:
    """[iterable] -> its values, the first on top, with the list of the middle ones between."""
    return _one("UNPACK_EX", before | after << 8)


# Operators ----------------------------------------------------------------------------------------------------------


def binary_op(operator: str) -> Instructions:
    """[left, right] -> [result]; `operator` as in source, `+` or `+=`."""
    return _one("BINARY_OP", BINARY_OPERATORS.index(operator))


def compare_op(operator: str, *, as_bool: bool = False) -> Instructions:
    """[left, right] -> [result of < <= == != > >=]; as_bool: [True or False], as a condition takes it."""
    if operator not in COMPARE_OPERATORS:
        raise ValueError(f"{operator!r} is no comparison")
    if as_bool and TABLE.compare_bool:
        return [Instruction("COMPARE_OP", None, operator, TABLE.compare_bool)]
    return [Instruction("COMPARE_OP", None, operator), *(to_bool() if as_bool else [])]


def is_op(invert: bool = False) -> Instructions:
    """[left, right] -> [left is right], or `is not`."""
    return _one("IS_OP", int(invert))


def contains_op(invert: bool = False) -> Instructions:
    """[item, container] -> [item in container], or `not in`."""
    return _one("CONTAINS_OP", int(invert))


def unary_negative() -> Instructions:
    """[value] -> [-value]."""
    return _one("UNARY_NEGATIVE")


def unary_invert() -> Instructions:
    """[value] -> [~value]."""
    return _one("UNARY_INVERT")


def unary_not() -> Instructions:
    """[value] -> [not value]."""
    return (_one("TO_BOOL") if TABLE.to_bool_before_jump else []) + _one("UNARY_NOT")


def to_bool() -> Instructions:
    """[value] -> [bool(value)]."""
    return _one("TO_BOOL") if TABLE.to_bool_before_jump else _one("UNARY_NOT") + _one("UNARY_NOT")


# Functions ----------------------------------------------------------------------------------------------------------

_ATTRIBUTES = (("defaults", 1), ("kwdefaults", 2), ("annotations", 4), ("closure", 8))


def make_function(
    code: CodeType,
    *,
    defaults: bool = False,
    kwdefaults: bool = False,
    annotations: bool = False,
    closure: bool = False,
) -> Instructions:
    """[defaults tuple, kwdefaults dict, annotations tuple, closure tuple (those asked for)] -> [function]."""
    wanted = {"defaults": defaults, "kwdefaults": kwdefaults, "annotations": annotations, "closure": closure}
    bits = [bit for name, bit in _ATTRIBUTES if wanted[name]]
    if TABLE.function_attributes_after:
        attributes = [instruction for bit in reversed(bits) for instruction in _one("SET_FUNCTION_ATTRIBUTE", bit)]
        return load_const(code) + _one("MAKE_FUNCTION") + attributes
    return load_const(code) + _one("MAKE_FUNCTION", sum(bits))


def make_closure(code: CodeType, names: Sequence[str] | None = None) -> Instructions:
    """[] -> [function of `code` over this code's variables `names`, by default those of its co_freevars]."""
    cells = code.co_freevars if names is None else tuple(names)
    if not cells:
        return make_function(code)
    return load_closure_tuple(cells) + make_function(code, closure=True)


def prologue(cellvars: Iterable[str] = (), freevars: Sequence[str] = ()) -> Instructions:
    """What a function begins with: free variables copied from the closure, cells made, RESUME."""
    start = _one("COPY_FREE_VARS", len(freevars)) if freevars else []
    return [*start, *(Instruction("MAKE_CELL", None, name) for name in cellvars), Instruction("RESUME", 0, 0)]


# Control ------------------------------------------------------------------------------------------------------------


def jump(target: Instruction) -> Instructions:
    """Go to `target`, before or behind."""
    return [Instruction("JUMP", target=target)]


def _conditional(condition: str, target: Instruction) -> Instruction:
    return Instruction(f"POP_JUMP_IF_{condition}", target=target)


def pop_jump_if_true(target: Instruction, *, is_bool: bool = False) -> Instructions:
    """[value] -> []; go to `target` when it is true. is_bool: it is certainly True or False."""
    test = _one("TO_BOOL") if TABLE.to_bool_before_jump and not is_bool else []
    return [*test, _conditional("TRUE", target)]


def pop_jump_if_false(target: Instruction, *, is_bool: bool = False) -> Instructions:
    """[value] -> []; go to `target` when it is false. is_bool: it is certainly True or False."""
    test = _one("TO_BOOL") if TABLE.to_bool_before_jump and not is_bool else []
    return [*test, _conditional("FALSE", target)]


def pop_jump_if_none(target: Instruction) -> Instructions:
    """[value] -> []; go to `target` when it is None."""
    return [_conditional("NONE", target)]


def pop_jump_if_not_none(target: Instruction) -> Instructions:
    """[value] -> []; go to `target` when it is not None."""
    return [_conditional("NOT_NONE", target)]


def get_iter() -> Instructions:
    """[iterable] -> [iterator]."""
    return _one("GET_ITER")


def raise_varargs(count: int = 1) -> Instructions:
    """count 0: re-raise what is handled; 1: [exception] -> raises; 2: [exception, cause] -> raises from."""
    return _one("RAISE_VARARGS", count)


def reraise() -> Instructions:
    """[exception] -> raises it as it is: its traceback and context do not grow here."""
    return _one("RERAISE", 0)


def load_assertion_error() -> Instructions:
    """[] -> [AssertionError]."""
    return _one("LOAD_ASSERTION_ERROR")


def load_build_class() -> Instructions:
    """[] -> [builtins.__build_class__]."""
    return _one("LOAD_BUILD_CLASS")


# Formatting ---------------------------------------------------------------------------------------------------------

_CONVERSIONS = {"": 0, "s": 1, "r": 2, "a": 3}


def format_value(conversion: str = "", has_spec: bool = False) -> Instructions:
    """[value] or [value, spec] -> [formatted string]; conversion is '', 's', 'r' or 'a'."""
    code = _CONVERSIONS[conversion]
    if "FORMAT_VALUE" in OPCODE:
        return _one("FORMAT_VALUE", code | (4 if has_spec else 0))
    convert = [*(swap(2) if has_spec else []), *_one("CONVERT_VALUE", code), *(swap(2) if has_spec else [])]
    return [*(convert if code else []), *_one("FORMAT_WITH_SPEC" if has_spec else "FORMAT_SIMPLE")]
