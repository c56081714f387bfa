"""CPython 3.11: PRECALL before CALL, conditional jumps named by direction, comprehensions as functions of their own."""

from __future__ import annotations

from .version import VersionTable

_CONDITIONS = ("TRUE", "FALSE", "NONE", "NOT_NONE")
_OPPOSITE = {"TRUE": "FALSE", "FALSE": "TRUE", "NONE": "NOT_NONE", "NOT_NONE": "NONE"}

TABLE = VersionTable(
    version=(3, 11),
    caches={
        "BINARY_SUBSCR": 4,
        "STORE_SUBSCR": 1,
        "UNPACK_SEQUENCE": 1,
        "STORE_ATTR": 4,
        "LOAD_ATTR": 4,
        "COMPARE_OP": 2,
        "LOAD_GLOBAL": 5,
        "BINARY_OP": 1,
        "LOAD_METHOD": 10,
        "PRECALL": 1,
        "CALL": 4,
    },
    flag_bits={"LOAD_GLOBAL": 1},
    compare={"<": 0, "<=": 1, "==": 2, "!=": 3, ">": 4, ">=": 5},
    compare_shift=0,
    compare_bool=0,
    null_before_callable=True,
    has_precall=True,
    kw_names_on_stack=False,
    to_bool_before_jump=False,
    load_method="LOAD_METHOD",
    load_closure="LOAD_CLOSURE",
    unchecked_load_fast=False,
    function_attributes_after=False,
    merges_locations=False,
    late_cells=False,
    loop_exit=0,
    send_keeps_receiver=False,
    twins={
        "JUMP_FORWARD": "JUMP_BACKWARD",
        "JUMP_BACKWARD": "JUMP_FORWARD",
        **{f"POP_JUMP_FORWARD_IF_{c}": f"POP_JUMP_BACKWARD_IF_{c}" for c in _CONDITIONS},
        **{f"POP_JUMP_BACKWARD_IF_{c}": f"POP_JUMP_FORWARD_IF_{c}" for c in _CONDITIONS},
    },
    inverses={
        f"POP_JUMP_{way}_IF_{c}": f"POP_JUMP_{way}_IF_{_OPPOSITE[c]}"
        for way in ("FORWARD", "BACKWARD")
        for c in _CONDITIONS
    },
    aliases={"JUMP": "JUMP_FORWARD", **{f"POP_JUMP_IF_{c}": f"POP_JUMP_FORWARD_IF_{c}" for c in _CONDITIONS}},
)
