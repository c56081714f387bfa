"""Times of onnxrt, paired: what a call costs beside the runtime's own run, and two models beside eager and inductor.

    python plugins/onnxrt/measure.py [--device cuda] [--rounds N] [--threads N]

A row is the median over rounds in which the sides take turns; a ratio is that of eager's time over the other's, round
by round. On the CPU times are those of the processor (all threads together), which a busy machine does not stretch; on
another device the wall's, until it has done its work. The runtime's own run is one with all memory bound beforehand.
Errors are relative, against float64; TF32 is off for all. A side that can't work here has its reason in place of times.
"""

from __future__ import annotations

import argparse
import copy
import functools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import core

CALLS = 2000
TOLERANCE = 1e-4  # relative, of float32


class Encoder(nn.Module):
    """A transformer's encoder of four layers, width 256."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 8, 1024, activation="gelu", batch_first=True)
        self.layers = nn.ModuleList([layer, *[type(layer)(256, 8, 1024, 0.0, "gelu", batch_first=True) for _ in "abc"]])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + self.attend(layer, x)
            x = layer.norm2(x + layer.linear2(nn.functional.gelu(layer.linear1(layer.norm1(x)))))
        return x

    @staticmethod
    def attend(layer: Any, x: torch.Tensor) -> torch.Tensor:
        """Self-attention, written out."""
        weight, bias = layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias
        q, k, v = nn.functional.linear(x, weight, bias).unflatten(-1, (3, 8, 32)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return layer.self_attn.out_proj(mixed)


class Convolutions(nn.Module):
    """Three convolutions with normalisation, a residual, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.third = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32))
        self.last = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = torch.relu(x + self.third(self.second(x)))
        return self.last(x.mean((2, 3)))


@dataclass(frozen=True)
class Clock:
    """Seconds of work on a device."""

    device: str

    def __call__(self) -> float:
        if self.device == "cpu":
            return time.process_time()
        torch.accelerator.synchronize(self.device)
        return time.perf_counter()


def seconds(call: Callable[[], Any], calls: int, clock: Clock) -> float:
    """Seconds a call."""
    began = clock()
    for _ in range(calls):
        call()
    return (clock() - began) / calls


def taken(sides: dict[str, Callable[[], Any]], rounds: int, calls: int, clock: Clock) -> dict[str, list[float]]:
    """Seconds a call of each side, round by round."""
    for call in sides.values():
        seconds(call, max(3, calls // 10), clock)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            found[name].append(seconds(call, calls, clock))
    return found


def worst(got: torch.Tensor, reference: torch.Tensor) -> float:
    """Relative error."""
    return float((got.double() - reference).norm() / reference.norm())


def overhead(rounds: int, clock: Clock) -> bool:
    """One relu of 4 x 16: the engine, the artifact's call around it, the compiled function around that."""
    from core.events import ArtifactBuilt, subscribe

    built: list[Any] = []
    unsubscribe = subscribe(lambda event: built.append(event) if isinstance(event, ArtifactBuilt) else None)
    device = torch.device(clock.device)
    x = torch.randn(4, 16, device=device)
    compiled = core.compile(torch.relu, backend="onnxrt")
    good = torch.equal(compiled(x), torch.relu(x))
    unsubscribe()
    artifact = built[0].artifact
    engine = artifact.owner.engine
    binding, result = engine.io_binding(), torch.empty(4, 16, device=device)
    port, made = artifact.owner.inputs[0], artifact.owner.results[0]
    binding.bind_input(port.name, device.type, device.index or 0, 1, [4, 16], x.data_ptr())
    binding.bind_output(made.name, device.type, device.index or 0, 1, [4, 16], result.data_ptr())
    sides = {
        "engine": lambda: engine.run_with_iobinding(binding),
        "artifact": lambda: artifact.call(x),
        "core": lambda: compiled(x),
        "eager": lambda: torch.relu(x),
    }
    times = taken(sides, rounds, CALLS, clock)
    for name, values in times.items():
        above = statistics.median(one - engine for one, engine in zip(values, times["engine"]))
        print(
            f"relu 4 x 16      {name:14} {statistics.median(values) * 1e6:9.2f} us   {above * 1e6:+7.2f} us", flush=True
        )
    return good


SIDES: dict[str, dict[str, Any]] = {
    "inductor": {"backend": "inductor"},
    "onnxrt": {"backend": "onnxrt"},
    "onnxrt, frozen": {"backend": "onnxrt", "freeze": True},
}


def models(rounds: int, clock: Clock) -> bool:
    """Two models in eager mode, through inductor, through this plugin, and with weights that are constants."""
    good = True
    torch.manual_seed(0)
    subjects = {"encoder": (Encoder(), (4, 128, 256)), "convolutions": (Convolutions(), (8, 3, 64, 64))}
    for name, (model, shape) in subjects.items():
        model.eval().to(clock.device)
        x = torch.randn(shape).to(clock.device)
        with torch.no_grad():
            reference = copy.deepcopy(model).double()(x.double())
            errors = {"eager": worst(model(x), reference)}
            sides: dict[str, Callable[[Any], Any]] = {"eager": model}
            for label, settings in SIDES.items():
                try:
                    compiled = core.compile(model, **settings)
                    errors[label] = worst(compiled(x), reference)
                except core.CoreError as error:
                    print(f"{name:16} {label:14} {error.what}", flush=True)
                    good = good and settings["backend"] != "onnxrt"
                    continue
                sides[label] = compiled
                good = good and errors[label] <= max(TOLERANCE, 4 * errors["eager"])
            calls = {label: functools.partial(run, x) for label, run in sides.items()}
            times = taken(calls, rounds, 3 if clock.device == "cpu" else 50, clock)
        for label, values in times.items():
            ratio = statistics.median(eager / own for eager, own in zip(times["eager"], values))
            numbers = f"{statistics.median(values) * 1e3:9.3f} ms   {ratio:7.2f} x   error {errors[label]:.1e}"
            print(f"{name:16} {label:14} {numbers}", flush=True)
    return good


def machine(device: str) -> str:
    """What the numbers belong to."""
    import onnxruntime

    where = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return f"{where}; torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rows; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parsed = parser.parse_args(arguments)
    torch.set_num_threads(parsed.threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    clock = Clock(parsed.device)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        good = [overhead(parsed.rounds, clock), models(parsed.rounds, clock)]
    print(machine(parsed.device))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
