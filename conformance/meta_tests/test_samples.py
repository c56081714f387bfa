"""Which of an operator's sample calls the suite takes."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from core_conformance.samples import chosen


def test_calls_that_leave_the_device_are_left_out():
    calls = [
        {"device": "cuda"},
        {"device": torch.device("cpu")},
        {"dtype": torch.float64},
        {"device": torch.device("meta")},
    ]
    given = [SimpleNamespace(input=torch.ones(2), args=(), kwargs=keywords) for keywords in calls]
    table = SimpleNamespace(sample_inputs=lambda device, dtype, requires_grad: given)
    taken = chosen(table, torch.float32, torch.Generator().manual_seed(0), 10)
    assert [at for at, _ in taken] == [1, 2]
