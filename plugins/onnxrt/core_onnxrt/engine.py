"""An engine: the runtime's compiled form of one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from core.plugin import CompileFailed

from .runtime import PROVIDERS, runtime, version_of

_INEXACT = ["MatMulScaleFusion"]
"""Up to 1.31 it keeps the factor of a product of float64 as a float32."""
LEVELS = ("all", "extended", "basic", "disabled")


@dataclass(frozen=True)
class Settings:
    """How engines are made. device: "cpu" or "cuda:0"; threads: 0 for torch's own number; profile: a path prefix."""

    device: str = "cpu"
    provider: str = "auto"
    level: str = "all"
    threads: int = 0
    profile: str = ""


def open_engine(model: bytes, weights: Mapping[str, torch.Tensor], settings: Settings, name: str) -> Any:
    """An InferenceSession of a model, its external initializers given by pointer.

    `weights` must stay alive as long as the engine. Raises CompileFailed with the runtime's own words.
    """
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4  # a library does not print: what fails is raised
    options.logid = name
    options.intra_op_num_threads = settings.threads or torch.get_num_threads()
    options.graph_optimization_level = {
        "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
        "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    }[settings.level]
    if settings.profile:
        options.enable_profiling = True
        options.profile_file_prefix = settings.profile
    if weights:
        values = [ort.OrtValue.from_dlpack(weight.detach()) for weight in weights.values()]
        options.add_external_initializers(list(weights), values)
    switched_off = _INEXACT if version_of(ort) < (1, 32) else []
    wanted = _providers(settings)
    first = wanted[0][0] if isinstance(wanted[0], tuple) else wanted[0]
    has = ort.get_available_providers()
    if first not in has:  # the runtime would take another one and only log it
        raise CompileFailed("making the engine", f"there is no {first} in this build, which has {', '.join(has)}")
    try:
        engine = ort.InferenceSession(model, options, providers=wanted, disabled_optimizers=switched_off)
    except Exception as error:  # noqa: BLE001  the runtime's exceptions have no common base but this
        raise CompileFailed("making the engine", str(error)) from error
    if first not in engine.get_providers():
        raise CompileFailed("making the engine", f"the libraries of {first} could not be loaded")
    return engine


def _providers(settings: Settings) -> list[Any]:
    """In order of claim. A provider that is asked for on a GPU leaves what it does not take to CUDA's, and works on the
    same stream."""
    kind, _, index = settings.device.partition(":")
    chosen = [] if settings.provider in ("auto", PROVIDERS.get(kind)) else [settings.provider]
    if kind != "cuda":
        return chosen or [PROVIDERS["cpu"]]
    shared = {"device_id": index or "0", "user_compute_stream": str(torch.cuda.current_stream().cuda_stream)}
    tf32 = {"use_tf32": str(int(torch.backends.cuda.matmul.allow_tf32))}
    on_gpu: list[Any] = [(name, dict(shared)) for name in chosen]
    return [*on_gpu, (PROVIDERS["cuda"], {**shared, **tf32}), PROVIDERS["cpu"]]
