"""torch.autograd.functional inside captured code, where torch's own functions are traced."""

from __future__ import annotations

import pytest
import torch
from observed import BACKENDS, agrees
from torch.autograd import functional


def wave(t):
    return t.sin() * t


def energy(t):
    return wave(t).sum()


PROGRAMS = {
    "jacobian": lambda: (lambda x: functional.jacobian(wave, x), (torch.randn(3),)),
    "jacobian at two tensors": lambda: (
        lambda x, y: functional.jacobian(lambda a, b: a * b.sum(), (x, y)),
        (torch.randn(3), torch.randn(2)),
    ),
    "hessian": lambda: (lambda x: functional.hessian(energy, x), (torch.randn(3),)),
    "vjp": lambda: (lambda x: functional.vjp(wave, x, torch.ones(3)), (torch.randn(3),)),
    "jvp": lambda: (lambda x: functional.jvp(wave, x, torch.ones(3)), (torch.randn(3),)),
    "hvp": lambda: (lambda x: functional.hvp(energy, x, torch.ones(3)), (torch.randn(3),)),
    "vhp": lambda: (lambda x: functional.vhp(energy, x, torch.ones(3)), (torch.randn(3),)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name, backend):
    agrees(PROGRAMS[name], backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_jacobian_that_carries_gradients(backend):
    def build():
        x = torch.randn(3, requires_grad=True)
        return lambda x: functional.jacobian(wave, x, create_graph=True), (x,)

    agrees(build, backend, graphs=None, breaks=None, strict=False)
