"""The settings of a process that a backend has to leave alone, read before and after.

This file imports torch and the standard library only: a process that must not know the suite gets a copy of it.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import threading
import warnings
from typing import Any

import torch

TINY = 1e-40  # a float32 that is zero where subnormal numbers are flushed


def state() -> dict[str, Any]:
    """Name -> value of everything that is looked at; values compare with ==."""
    return {
        "the number of torch's threads": torch.get_num_threads(),
        "the default dtype": torch.get_default_dtype(),
        "the default device": str(torch.get_default_device()),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "anomaly detection": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the precision of matrix products": torch.get_float32_matmul_precision(),
        "flushing of subnormal numbers": bool((torch.full((4,), TINY) * 1.0 == 0).all()),
        "torch's random numbers": _random_numbers(),
        "Python's random numbers": random.getstate(),
        "the environment": {name: os.environ[name] for name in sorted(os.environ) if name not in _LEFT_OUT},
        "the working directory": os.getcwd(),
        "signal handlers": tuple(signal.getsignal(number) for number in _SIGNALS),
        "the recursion limit": sys.getrecursionlimit(),
        "filters of warnings": tuple(warnings.filters),
        "sys.path": tuple(sys.path),
        "hooks of sys": (sys.excepthook, sys.displayhook, sys.gettrace(), sys.getprofile()),
        "threads": sorted(each.name for each in threading.enumerate() if each.name not in _THREADS_OF_TORCH),
    }


_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGABRT", "SIGSEGV")
    if hasattr(signal, name)
)
_LEFT_OUT = ("PYTEST_CURRENT_TEST",)
_THREADS_OF_TORCH = ("tqdm_monitor",)  # torch.fx.Interpreter has a bar of progress, shown or not, and it a thread


def _random_numbers() -> bytes:
    state = torch.get_rng_state()
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def differences(before: dict[str, Any], after: dict[str, Any], without: tuple[str, ...] = ()) -> list[str]:
    """What is not what it was, in words."""
    return [
        f"{name} changed" + (f" from {value!r} to {after[name]!r}" if len(repr(value)) < 40 else "")
        for name, value in before.items()
        if after[name] != value and name not in without
    ]


def restore(before: dict[str, Any]) -> None:
    """Put back what a cheat may have changed and what later tests rely on."""
    torch.set_num_threads(before["the number of torch's threads"])
    torch.set_default_dtype(before["the default dtype"])
    torch.set_grad_enabled(before["grad mode"])
    torch.set_flush_denormal(before["flushing of subnormal numbers"])
    sys.setrecursionlimit(before["the recursion limit"])
    random.setstate(before["Python's random numbers"])
    kept = before["the environment"]
    for name in [name for name in os.environ if name not in kept and name not in _LEFT_OUT]:
        del os.environ[name]
    os.environ.update(kept)
    if threading.current_thread() is threading.main_thread():
        for number, handler in zip(_SIGNALS, before["signal handlers"]):
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
