"""What a generated kernel is, to the compiler that prints it and to the runtime that calls it.

Enters: nothing. Leaves: `KernelSpec`, the record that both sides share, and `CXX_FLAGS`, the semantics-bearing
compiler flags that the printed C++ was written for. This file must not import torch.

The C++ ABI. Every kernel of a translation unit is

    extern "C" int NAME(void *const *ptrs, const long *ints, const double *floats, int nthreads);

ptrs:     `spec.inputs` data pointers of the tensor arguments (storage offset already added), in argument order,
          then one pointer for each output in the order of `spec.outputs`. It may be null for an empty tensor.
ints:     `spec.int_args` values, in argument order (symbolic sizes, strides and other integers of the graph).
floats:   `spec.float_args` values, in argument order. Null when there are none.
nthreads: the number of OpenMP threads the kernel may use, at least 1. A kernel whose spec says `parallel=False`
          ignores it, so the runtime may pass 1 without asking torch.
result:   0, or a key of `FAILURES`: an index read from a tensor was out of range. The kernel read nothing outside its
          tensors then, the outputs are garbage, and the runtime raises the error instead of returning them.

A kernel never allocates, never throws, keeps no state between calls and is safe to call from several threads at once
with different outputs. The Python callable made from a spec is

    kernel(*tensors, *ints, *floats) -> Tensor            (one output)
    kernel(*tensors, *ints, *floats) -> tuple of Tensor   (two or more outputs)

The translation unit includes no header. It refers to libm functions by their C names (expf, sin, ...), to `memset` and
`memcpy`, and to libgomp; all are found in the process once torch is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

FAILURES: dict[int, tuple[type[Exception], str]] = {
    1: (IndexError, "index out of range in self"),
    2: (IndexError, "index is out of bounds for its dimension"),
    3: (RuntimeError, "index is out of bounds for its dimension"),
}
"""What a kernel's nonzero result means: 1 embedding and index_select, 2 advanced indexing, 3 gather."""

SizeSpec = int | tuple[str, int]
"""A length or a stride in elements: a number, or ("int", k): the value of the k-th int argument."""

CXX_FLAGS: tuple[str, ...] = (
    "-std=c++17",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fopenmp",
)
"""Flags the generated code relies on; the build adds ISA, output kind and linking.

Contraction is off so that chains of +, -, *, / give eager's bits (`x*x - y*y` is 0 where x == y); the math header
asks for fused multiply-adds by name where it wants them. -ffast-math is never used: NaN, infinities, signed zeros and
subnormals behave as in eager.
"""


@dataclass(frozen=True)
class OutputSpec:
    """One output tensor: sizes and strides in elements, and the dtype's name in torch ("float32", "bfloat16", ...).

    The runtime allocates the smallest storage that holds it (offset 0), on the device of the kernel.
    """

    sizes: tuple[SizeSpec, ...]
    strides: tuple[SizeSpec, ...]
    dtype: str


@dataclass(frozen=True)
class KernelSpec:
    """How one kernel of a translation unit is called.

    name: the C symbol. inputs: number of tensor arguments. outputs: what is allocated and returned, in order.
    reuse: one entry for each output: None (allocate), or the position of the tensor argument whose storage the output
    takes over. That argument is dead after the call, has offset 0 and exactly the output's dtype and number of bytes;
    when sizes and strides are equal too, the argument's own tensor object is returned, else a new tensor on its
    storage. It may be an argument that the kernel also reads (in place) or one passed for its storage alone.
    int_args, float_args: numbers of trailing scalar arguments. parallel: whether the kernel uses `nthreads`.
    """

    name: str
    inputs: int
    outputs: tuple[OutputSpec, ...]
    reuse: tuple[int | None, ...] = ()
    int_args: int = 0
    float_args: int = 0
    parallel: bool = False

    def __post_init__(self) -> None:
        if not self.reuse:
            object.__setattr__(self, "reuse", (None,) * len(self.outputs))
        if len(self.reuse) != len(self.outputs):
            raise ValueError(f"kernel {self.name}: {len(self.outputs)} outputs but {len(self.reuse)} reuse entries")
