"""Programs that launch kernels written in Triton, compared with eager. Run as a script: `FILE BACKEND [BACKEND ...]`.

Without a GPU they run under Triton's interpreter (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import core

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = (40, 33, 70)
BLOCK = 16


@triton.jit
def add_kernel(left, right, result, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    total = tl.load(left + places, mask=inside) + tl.load(right + places, mask=inside)
    tl.store(result + places, total, mask=inside)


@triton.jit
def put(result, places, value, inside):
    tl.store(result + places, value, mask=inside)


@triton.jit
def scale_kernel(x, result, factor, shift, size, stride, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    value = tl.load(x + places * stride, mask=inside) * factor
    if shift is not None:
        value += tl.load(shift + places, mask=inside)
    put(result, places * stride, value.to(DTYPE), inside)


@triton.jit
def sum_kernel(x, total, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + places, mask=places < size, other=0.0), axis=0))


@triton.jit
def address_kernel(addresses, BLOCK: tl.constexpr):
    target = tl.load(addresses).to(tl.pointer_type(tl.float32))
    tl.store(target + tl.arange(0, BLOCK), 1.0)


def once(call, quantiles):
    call()
    return [1.0, 1.0, 1.0]


configs = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 32}, num_warps=2)]
tuned_kernel = triton.autotune(configs=configs, key=["size"], do_bench=once)(add_kernel)
guessed_kernel = triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(min(given["size"], 16))})(add_kernel)


def blocks(x):
    return (triton.cdiv(x.numel(), BLOCK),)


def into_new_memory(x, y):
    x = x * 2
    result = torch.empty_like(x)
    add_kernel[blocks(x)](x, y, result, x.numel(), BLOCK=BLOCK)
    return result.relu() + 1


def grid_of_a_function(x, y):
    result, size = torch.zeros_like(x), x.numel()
    add_kernel[lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](x, y, result, size, BLOCK)
    return result.relu() + 1


def tuned(x, y):
    result, size = torch.empty_like(x), x.numel()
    tuned_kernel[lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](x, y * 2, result, size)
    return result + 1


def guessed(x, y):
    result, size = torch.empty_like(x), x.numel()
    guessed_kernel[lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](x, y * 2, result, size)
    return result + 1


def into_its_own_operand(x, y):
    x = x * 2
    add_kernel[blocks(x)](x, y, x, x.numel(), BLOCK=BLOCK)
    return x.relu()


def into_inputs(x, y):
    add_kernel[blocks(x)](x, y, x, x.numel(), BLOCK=BLOCK)
    z = x + 1
    torch.library.wrap_triton(add_kernel)[blocks(x)](z, y, y, x.numel(), BLOCK=BLOCK)
    return x * y


def twice_into_one_tensor(x, y):
    total = torch.zeros((), device=x.device)
    sum_kernel[blocks(x)](x, total, x.numel(), BLOCK)
    sum_kernel.run(y, total, x.numel(), grid=blocks(x), warmup=False, BLOCK=BLOCK)
    return total + 1


def between_gaps(x, y):
    result = torch.zeros(x.numel(), 2, device=x.device)
    pairs = torch.stack([x, y], 1)
    scale_kernel[blocks(x)](pairs[:, 1], result[:, 0], 0.5, y, x.numel(), 2, DTYPE=tl.float32, BLOCK=BLOCK)
    return result * 2, result


def into_a_part(x, y):
    result = torch.zeros(x.numel() + 8, device=x.device)
    add_kernel[blocks(x)](x, y, result[4:-4], x.numel(), BLOCK=BLOCK)
    result[4:].add_(1)
    return result


def no_tensor_and_a_number(x, y):
    result = torch.empty_like(x)
    scale_kernel[blocks(x)](x, result, x.numel() * 0.5, None, x.numel(), 1, tl.float32, BLOCK=BLOCK)
    return result


@torch.library.custom_op("user_kernel_programs::add", mutates_args=())
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(x)
    add_kernel[blocks(x)](x, y, result, x.numel(), BLOCK=BLOCK)
    return result


add.register_fake(lambda x, y: torch.empty_like(x))


@torch.library.triton_op("user_kernel_programs::add_open", mutates_args=())
def add_open(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(x)
    torch.library.wrap_triton(add_kernel)[blocks(x)](x, y, result, x.numel(), BLOCK=BLOCK)
    return result


def operators(x, y):
    return add(x * 2, y).relu() + add_open(x, y)


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        result = torch.empty_like(x)
        add_kernel[blocks(x)](x, y, result, x.numel(), BLOCK=BLOCK)
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        gradient = gradient.contiguous()
        result = torch.empty_like(gradient)
        scale_kernel[blocks(x)](gradient, result, 2.0, None, x.numel(), 1, tl.float32, BLOCK)
        return result, gradient * x


def with_gradients(x, y):
    return (Add.apply(x.sin(), y) * 3).cos()


WHOLE = (
    into_new_memory, grid_of_a_function, tuned, guessed, into_its_own_operand, into_inputs, twice_into_one_tensor,
    between_gaps, into_a_part, no_tensor_and_a_number, operators,
)  # fmt: skip


def behind_an_address(x, y):
    target = x * 2
    address = torch.tensor([target.data_ptr()], device=x.device)
    address_kernel[(1,)](address, BLOCK=BLOCK)
    return target + y


def into_what_needs_a_gradient(x, y):
    target = x * 2
    add_kernel[blocks(x)](y, y, target, x.numel(), BLOCK=BLOCK)
    return target + y


def into_what_a_gradient_needs(x, y):
    product = x * y
    add_kernel[blocks(x)](y, y, y, x.numel(), BLOCK=BLOCK)
    return product * 2


def into_what_it_reads_elsewhere(x, y):
    memory = torch.cat([x, y])
    add_kernel[blocks(x)](memory[: x.numel()], y, memory[4 : x.numel() + 4], x.numel(), BLOCK=BLOCK)
    return memory + 1


PARTS = {
    into_what_it_reads_elsewhere: "memory",
    behind_an_address: "makes pointers of numbers",
    into_what_needs_a_gradient: "requires a gradient",
    into_what_a_gradient_needs: "kept for its gradient",
}
GRADIENT_OF = {with_gradients: 2, into_what_needs_a_gradient: 1, into_what_a_gradient_needs: 1}
"""How many of the inputs require a gradient."""


def inputs_of(program, size: int = 40) -> list[torch.Tensor]:
    wanted = GRADIENT_OF.get(program, 0)
    return [torch.randn(size, device=DEVICE, requires_grad=at < wanted) for at in range(2)]


def behind_a_break_that_finds_the_kernel(x, y):
    result = torch.empty_like(x)
    add_kernel[blocks(x)](x, y, result, x.numel() + int(y.sum().item() * 0), BLOCK=BLOCK)
    return result * 2


def compare(program, fast, size: int) -> None:
    inputs = inputs_of(program, size)
    given, eager = [[value.detach().clone().requires_grad_(value.requires_grad) for value in inputs] for _ in range(2)]
    result, truth = fast(*given), program(*eager)
    pairs = [(result, truth), *zip(given, eager)]
    if program in GRADIENT_OF:
        result.sum().backward()
        truth.sum().backward()
        pairs += [(mine.grad, its.grad) for mine, its in zip(given, eager)]
    for mine, its in pairs:
        torch.testing.assert_close(mine, its)


def compare_sizes(program, backend: str, **options) -> None:
    for dynamic in (False, True):
        core.reset()
        fast = core.compile(program, backend=backend, dynamic=dynamic, **options)
        for size in SIZES:
            compare(program, fast, size)
    assert core.stats()["graphs"] > 0, program


def operators_of(program) -> list[str]:
    core.reset()
    graphs = core.capture(program, *inputs_of(program)).graphs
    return [str(node.target) for graph in graphs for node in graph.module.graph.nodes]


def main(backends: list[str]) -> None:
    for backend in backends:
        for program in (*WHOLE, with_gradients):
            compare_sizes(program, backend, fullgraph=True)
        for program, reason in PARTS.items():
            compare_sizes(program, backend)
            core.reset()
            broken = core.explain(program, backend=backend)(*inputs_of(program)).breaks
            assert any(reason in one.reason for one in broken), (program, broken)
        compare_sizes(behind_a_break_that_finds_the_kernel, backend)
        core.reset()
        explained = core.explain(behind_a_break_that_finds_the_kernel, backend=backend)
        assert len(explained(*inputs_of(explained)).breaks) == 1
    for program in WHOLE:
        found = operators_of(program)
        assert any(name.startswith("core_kernels.") for name in found), program
        assert operators_of(program) == found  # captured anew, by the same operators


if __name__ == "__main__":
    main(sys.argv[1:])
