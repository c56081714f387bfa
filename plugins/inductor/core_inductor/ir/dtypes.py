"""The element types of the loop IR, by their torch names.

Values inside a body have a *compute* type: bfloat16 and float16 exist in memory only, loads widen them to float32 and
stores round back. "round_bfloat16" and "round_float16" operations stand where eager rounds an intermediate.
"""

from __future__ import annotations

ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
"""Every dtype that a kernel can load and store. Anything else runs in ATen."""

HALF = frozenset({"float16", "bfloat16"})
FLOATING = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGRAL = frozenset({"uint8", "int8", "int16", "int32", "int64"})


def compute_type(dtype: str) -> str:
    """The type in which values of `dtype` are computed."""
    return "float32" if dtype in HALF else dtype


def category(dtype: str) -> int:
    """0 bool, 1 integer, 2 floating: the order in which torch promotes."""
    return 2 if dtype in FLOATING else 1 if dtype in INTEGRAL else 0
