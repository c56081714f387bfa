"""Random programs of views and in-place operations: made from a seed, run eagerly and traced with the same code."""

from __future__ import annotations

import random

import torch

VIEWS = {
    "t": lambda x, r: x.t() if x.ndim == 2 else x,
    "transpose": lambda x, r: x.transpose(0, -1) if x.ndim > 1 else x,
    "permute": lambda x, r: x.permute(*range(x.ndim)[::-1]) if x.ndim > 1 else x,
    "select": lambda x, r: x.select(0, r(x.shape[0])) if x.ndim > 1 else x,
    "slice": lambda x, r: x[r(2) :] if x.ndim and x.shape[0] > 2 else x,
    "step": lambda x, r: x[::2] if x.ndim and x.shape[0] > 1 else x,
    "inner": lambda x, r: x[..., 1:] if x.ndim and x.shape[-1] > 1 else x,
    "unsqueeze": lambda x, r: x.unsqueeze(r(x.ndim + 1)) if x.ndim < 3 else x,
    "squeeze": lambda x, r: x.squeeze(),
    "flat_view": lambda x, r: x.view(-1),
    "reshape": lambda x, r: x.reshape(-1),
    "fold": lambda x, r: x.view(-1, 2),
    "expand": lambda x, r: x.unsqueeze(0).expand(2, *x.shape) if x.ndim < 3 else x,
    "split": lambda x, r: x.split(2, 0)[r(2)] if x.ndim and x.shape[0] > 2 else x,
    "unbind": lambda x, r: x.unbind(0)[r(x.shape[0])] if x.ndim > 1 else x,
    "chunk": lambda x, r: x.chunk(2, -1)[0] if x.ndim else x,
    "diagonal": lambda x, r: x.diagonal() if x.ndim == 2 else x,
    "unfold": lambda x, r: x.unfold(0, 2, 2) if x.ndim == 1 and x.shape[0] > 1 else x,
    "as_strided": lambda x, r: x.as_strided((2, 2), (2, 1)) if x.ndim == 2 else x,
    "detach": lambda x, r: x.detach(),
    "data": lambda x, r: x.data,
    "view_as": lambda x, r: x.view_as(x),
    "contiguous": lambda x, r: x.contiguous(),
}
WRITES = {
    "add_": lambda x, y, r: x.add_(1.5),
    "mul_": lambda x, y, r: x.mul_(0.5),
    "mul_other": lambda x, y, r: x.mul_(y.sum() * 0.1),
    "copy_": lambda x, y, r: x.copy_(y.sum()),
    "copy_same": lambda x, y, r: x.copy_(y) if x.shape == y.shape else x.neg_(),
    "fill_": lambda x, y, r: x.fill_(0.25),
    "zero_": lambda x, y, r: x.zero_(),
    "sin_": lambda x, y, r: x.sin_(),
    "setitem": lambda x, y, r: x.__setitem__(0, 2.0) or x if x.ndim else x,
    "masked": lambda x, y, r: x.masked_fill_(x > 0, 0.5),
    "index_put": lambda x, y, r: x.index_fill_(0, torch.zeros(1, dtype=torch.long), 3.0) if x.ndim else x,
    "addcmul_": lambda x, y, r: x.addcmul_(x, x, value=0.1),
    "out": lambda x, y, r: torch.mul(x, 0.75, out=x),
    "out_sort": lambda x, y, r: torch.neg(x.clone(), out=x),
    "t_": lambda x, y, r: x.t_() if x.ndim == 2 else x,
    "unsqueeze_": lambda x, y, r: x.unsqueeze_(0) if x.ndim < 3 else x,
    "foreach": lambda x, y, r: (torch._foreach_add_([x], 0.5), x)[1],
    "transpose_add": lambda x, y, r: x.add_(x.clone().t()) if x.ndim == 2 and x.shape[0] == x.shape[1] else x,
}
VALUES = {
    "mul": lambda x, y: x * 1.25,
    "add": lambda x, y: x + y if x.shape == y.shape else x + y.sum(),
    "tanh": lambda x, y: x.tanh(),
    "clone": lambda x, y: x.clone(),
    "cat": lambda x, y: torch.cat([x, x]) if x.ndim else x * 1,
    "where": lambda x, y: torch.where(x > 0, x, x * 2),
    "zeros": lambda x, y: torch.zeros_like(x),
    "matmul": lambda x, y: x @ x.t() if x.ndim == 2 else x * x,
    "softmax": lambda x, y: x.softmax(-1) if x.ndim else x * 1,
}


def make_program(seed: int, steps: int = 7):
    """(program, number of inputs, kinds of the inputs). The program takes tensors and gives a tuple of tensors."""
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    kinds = [rng.choice(("plain", "plain", "leaf", "inner")) for _ in range(count)]
    plan = []
    for at in range(rng.randint(2, steps)):
        family = rng.choice(("view", "view", "write", "write", "value"))
        table = {"view": VIEWS, "write": WRITES, "value": VALUES}[family]
        draws = [rng.random() for _ in range(6)]
        names = sorted(name for name in table if at or name not in ("t_", "unsqueeze_"))
        plan.append((family, rng.choice(names), draws, rng.random() < 0.12))
    picks = [rng.random() for _ in range(rng.randint(1, 3))]

    def program(no_grad, *inputs):
        pool = list(inputs)
        for family, name, draws, quiet in plan:
            first = pool[int(draws[0] * len(pool))] if draws[2] < 0.4 else pool[-1]
            second = pool[int(draws[1] * len(pool))]
            spare = iter(draws[3:])

            def draw(limit, spare=spare):
                return int(next(spare) * limit)

            if quiet:
                with no_grad():
                    made = _step(family, name, first, second, draw)
            else:
                made = _step(family, name, first, second, draw)
            pool.append(made)
        return tuple(pool[int(pick * len(pool))] for pick in picks) + (pool[-1],)

    return program, kinds


def _step(family, name, first, second, draw):
    if family == "view":
        return VIEWS[name](first, draw)
    if family == "write":
        return WRITES[name](first, second, draw)
    return VALUES[name](first, second)


def make_inputs(seed: int, kinds):
    """(leaves that gradients are asked for, inputs of the program)."""
    generator = torch.Generator().manual_seed(seed)
    leaves, inputs = [], []
    for at, kind in enumerate(kinds):
        shape = ((3, 4), (4,), (2, 2))[(seed + at) % 3]
        leaf = torch.randn(shape, generator=generator)
        if kind == "plain":
            inputs.append(leaf)
            continue
        leaf.requires_grad_()
        leaves.append(leaf)
        inputs.append(leaf if kind == "leaf" else leaf * 1.0)
    return leaves, inputs
