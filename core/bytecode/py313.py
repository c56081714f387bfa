"""CPython 3.13: NULL after the callable, CALL_KW, TO_BOOL before conditional jumps, opcodes that act on two locals.

FOR_ITER at its end drops the iterator and continues behind the END_FOR it points to and the POP_TOP that follows it.
LOAD_CLOSURE is compiled to LOAD_FAST of the cell's slot.
"""

from __future__ import annotations

from .version import VersionTable

TABLE = VersionTable(
    version=(3, 13),
    caches={
        "LOAD_GLOBAL": 4,
        "BINARY_OP": 1,
        "UNPACK_SEQUENCE": 1,
        "COMPARE_OP": 1,
        "CONTAINS_OP": 1,
        "BINARY_SUBSCR": 1,
        "FOR_ITER": 1,
        "LOAD_SUPER_ATTR": 1,
        "LOAD_ATTR": 9,
        "STORE_ATTR": 4,
        "CALL": 3,
        "STORE_SUBSCR": 1,
        "SEND": 1,
        "JUMP_BACKWARD": 1,
        "TO_BOOL": 3,
        "POP_JUMP_IF_TRUE": 1,
        "POP_JUMP_IF_FALSE": 1,
        "POP_JUMP_IF_NONE": 1,
        "POP_JUMP_IF_NOT_NONE": 1,
    },
    flag_bits={"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
    # As in 3.12, one bit higher: bit 4 asks for an exact bool.
    compare={
        "<": 0 << 5 | 2,
        "<=": 1 << 5 | 10,
        "==": 2 << 5 | 8,
        "!=": 3 << 5 | 7,
        ">": 4 << 5 | 4,
        ">=": 5 << 5 | 12,
    },
    compare_shift=5,
    compare_bool=16,
    null_before_callable=False,
    has_precall=False,
    kw_names_on_stack=True,
    to_bool_before_jump=True,
    load_method="LOAD_ATTR",
    load_closure="LOAD_FAST",
    unchecked_load_fast=True,
    function_attributes_after=True,
    merges_locations=True,
    late_cells=True,
    loop_exit=2,
    send_keeps_receiver=True,
    fused={
        "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
        "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
        "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    },
    twins={"JUMP_FORWARD": "JUMP_BACKWARD", "JUMP_BACKWARD": "JUMP_FORWARD"},
    inverses={
        "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
        "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
        "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
        "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
    },
    aliases={"JUMP": "JUMP_FORWARD"},
)
