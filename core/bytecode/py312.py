"""CPython 3.12: CALL alone, methods in LOAD_ATTR, comprehensions inlined with LOAD_FAST_AND_CLEAR, END_FOR.

FOR_ITER at its end drops the iterator and continues behind the END_FOR it points to.
"""

from __future__ import annotations

from .version import VersionTable

TABLE = VersionTable(
    version=(3, 12),
    caches={
        "BINARY_SUBSCR": 1,
        "STORE_SUBSCR": 1,
        "UNPACK_SEQUENCE": 1,
        "FOR_ITER": 1,
        "STORE_ATTR": 4,
        "LOAD_ATTR": 9,
        "COMPARE_OP": 1,
        "LOAD_GLOBAL": 4,
        "BINARY_OP": 1,
        "SEND": 1,
        "LOAD_SUPER_ATTR": 1,
        "CALL": 3,
    },
    flag_bits={"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
    # The low four bits are a mask (unordered 1, less 2, greater 4, equal 8) that the specialised forms read.
    compare={
        "<": 0 << 4 | 2,
        "<=": 1 << 4 | 10,
        "==": 2 << 4 | 8,
        "!=": 3 << 4 | 7,
        ">": 4 << 4 | 4,
        ">=": 5 << 4 | 12,
    },
    compare_shift=4,
    compare_bool=0,
    null_before_callable=True,
    has_precall=False,
    kw_names_on_stack=False,
    to_bool_before_jump=False,
    load_method="LOAD_ATTR",
    load_closure="LOAD_CLOSURE",
    unchecked_load_fast=True,
    function_attributes_after=False,
    merges_locations=True,
    late_cells=True,
    loop_exit=1,
    send_keeps_receiver=True,
    twins={"JUMP_FORWARD": "JUMP_BACKWARD", "JUMP_BACKWARD": "JUMP_FORWARD"},
    inverses={
        "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
        "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
        "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
        "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
    },
    aliases={"JUMP": "JUMP_FORWARD"},
)
