"""One of two processes that train a module in parts: what compiled modules give is compared with eager.

python data_parallel_process.py RANK STORE ddp|fsdp
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import core

BACKEND = "aot_eager"
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "some parameters unused": {"find_unused_parameters": True},
    "the same graph each time": {"static_graph": True},
    "gradients as views of buckets": {"gradient_as_bucket_view": True, "bucket_cap_mb": 1e-5},
    "some steps apart": {},
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last, self.extra = (
            nn.Linear(6, 8),
            nn.BatchNorm1d(8),
            nn.Linear(8, 3),
            nn.Linear(3, 3),
        )

    def forward(self, x: torch.Tensor, extra: bool) -> torch.Tensor:
        y = self.last(self.norm(self.first(x)).relu())
        return self.extra(y) if extra else y


def trained(name: str, wrap: Any) -> list[torch.Tensor]:
    """Losses, gradients, what a hook of the reducer was called for, and the state after five steps."""
    torch.manual_seed(0)
    module = Net()
    wrapped, parallel = wrap(module)
    buckets = []

    def reduced(state, bucket):  # torch looks at annotations
        buckets.append(bucket.index())
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0] / 2)

    if name == "plain":
        parallel.register_comm_hook(None, reduced)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    torch.manual_seed(1 + dist.get_rank())
    found = []
    for step in range(5):
        x, y = torch.randn(4, 6), torch.randn(4, 3)
        apart = name == "some steps apart" and step % 2 == 0
        with parallel.no_sync() if apart else contextlib.nullcontext():
            loss = F.mse_loss(wrapped(x, not name.startswith("some parameters") or step % 2 == 1), y)
            loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]
        if not apart:
            optimizer.step()
            optimizer.zero_grad()
    return [*found, torch.tensor(buckets), *(value.clone() for value in module.state_dict().values())]


def data_parallel() -> None:
    for name, options in CONFIGURATIONS.items():

        def parallel(module: nn.Module, options: dict[str, Any] = options) -> tuple[nn.Module, Any]:
            made = DistributedDataParallel(module, **options)
            return made, made

        eager = trained(name, parallel)

        def before(module: nn.Module, parallel: Any = parallel) -> tuple[nn.Module, Any]:
            return parallel(core.compile(module, backend=BACKEND))

        def after(module: nn.Module, parallel: Any = parallel) -> tuple[nn.Module, Any]:
            made, _ = parallel(module)
            return core.compile(made, backend=BACKEND), made

        for wrap in (before, after):
            core.reset()
            torch.testing.assert_close(trained(name, wrap), eager)
            assert core.stats()["graphs"] == (2 if name.startswith("some parameters") else 1), core.stats()


def sharded() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))

    def steps(wrap: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module = nn.Sequential(*(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)) for _ in range(2)))
        module = wrap(module)
        optimizer = torch.optim.Adam(module.parameters(), 1e-2)
        torch.manual_seed(1 + dist.get_rank())
        found = []
        for _ in range(3):
            loss = F.mse_loss(module(torch.randn(4, 6)), torch.randn(4, 6))
            loss.backward()
            found += [loss.detach(), *(p.grad.full_tensor() for p in module.parameters())]
            optimizer.step()
            optimizer.zero_grad()
        return [*found, *(p.full_tensor().detach() for p in module.parameters())]

    def shard(module: nn.Module) -> nn.Module:
        for block in module:
            fully_shard(block, mesh=mesh)
        return fully_shard(module, mesh=mesh)

    def blocks(module: nn.Module) -> nn.Module:
        for block in module:
            block.forward = core.compile(block.forward, backend=BACKEND)
        return shard(module)

    eager = steps(shard)
    for wrap in (blocks, lambda module: core.compile(shard(module), backend=BACKEND)):
        core.reset()
        torch.testing.assert_close(steps(wrap), eager)
        assert core.stats()["graphs"] == 3, core.stats()


if __name__ == "__main__":
    rank, store, kind = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=int(rank), world_size=2)
    sharded() if kind == "fsdp" else data_parallel()
    dist.destroy_process_group()
    print("agrees")
