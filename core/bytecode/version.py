"""VersionTable: what the bytecode of one CPython version looks like, as data.

Everything that differs between 3.11, 3.12 and 3.13 and that the interpreter does not report by itself stands in one of
these; the code of this package asks the table, never the version number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class VersionTable:
    """The bytecode facts of one CPython version.

    caches: inline cache units behind an opcode. flag_bits: low bits of the argument that are flags; the table index
    stands above them. compare: operator -> argument of COMPARE_OP. compare_bool: the flag that makes COMPARE_OP give an
    exact bool (0: none). unchecked_load_fast: LOAD_FAST trusts that the local is set. function_attributes_after:
    defaults and closure are set on the made function. merges_locations: one line table entry for a run of equal
    positions. late_cells: inlined comprehensions make and take over cells in the middle of a function. loop_exit: how
    many instructions at the target of FOR_ITER it steps over when exhausted (END_FOR, then POP_TOP).
    send_keeps_receiver: SEND leaves the receiver under the value that a finished generator returned, for END_SEND to
    take away. fused: opcodes that act on two locals, 4 bits each. twins: the opcode for the other direction of a jump.
    inverses: the opcode with the opposite condition. aliases: names the emitters use -> opcode.
    """

    version: tuple[int, int]
    caches: Mapping[str, int]
    flag_bits: Mapping[str, int]
    compare: Mapping[str, int]
    compare_shift: int
    compare_bool: int
    null_before_callable: bool
    has_precall: bool
    kw_names_on_stack: bool
    to_bool_before_jump: bool
    load_method: str
    load_closure: str
    unchecked_load_fast: bool
    function_attributes_after: bool
    merges_locations: bool
    late_cells: bool
    loop_exit: int
    send_keeps_receiver: bool
    fused: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)
    inverses: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
