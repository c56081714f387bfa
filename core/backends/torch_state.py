"""The parts of process_state that are torch's: its defaults, flags, generators and functions, by their public names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .tensor_bytes import tensor_bytes

_FLAGS = (
    "backends.fp32_precision",
    "backends.cuda.matmul.allow_tf32",
    "backends.cuda.matmul.fp32_precision",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cudnn.enabled",
    "backends.cudnn.benchmark",
    "backends.cudnn.deterministic",
    "backends.cudnn.allow_tf32",
    "backends.mkldnn.enabled",
    "backends.mkldnn.deterministic",
    "backends.mkldnn.allow_tf32",
    "utils.deterministic.fill_uninitialized_memory",
)
_ATTENTION = ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")
_PATCHABLE = ("", "nn.functional", "nn.Module", "Tensor", "autograd", "optim.Optimizer")
UNREADABLE = "unreadable"

Values = tuple[str, Callable[[], Any], Callable[[Any], None] | None, Callable[[Any, Any], str] | None]
Warned = tuple[str, Callable[[], Any], None, Callable[[Any, Any], str], bool]


def torch_parts(torch: Any) -> Iterator[Values | Warned]:
    """(name, read, restore, tell) of each part, and whether it is warned of: the fields of process_state.Part."""
    from .. import torch_compat

    yield "torch's default dtype", torch.get_default_dtype, torch.set_default_dtype, None
    yield "torch's default device", torch_compat.default_device, _default_device(torch), None
    yield "torch's number of threads", torch.get_num_threads, torch.set_num_threads, None
    yield "torch's number of inter-op threads", torch.get_num_interop_threads, None, None
    yield "torch's grad mode", torch.is_grad_enabled, lambda on: _discard(torch.set_grad_enabled(on)), None
    yield "torch's inference mode", torch.is_inference_mode_enabled, None, None
    yield "torch's deterministic algorithms", *_deterministic(torch), None
    yield "torch's float32 matmul precision", *_matmul_precision(torch), None
    yield "torch's anomaly mode", *_anomaly(torch), None
    yield "torch's random generator", *_generator(torch), _worded("the state of torch's random generator")
    yield "torch's CUDA context", torch.cuda.is_initialized, None, _worded("a CUDA context was created")
    for kind in ("cpu", "cuda"):
        yield f"torch's autocast for {kind}", *_autocast(torch, kind), None
    for path in _FLAGS:
        yield f"torch.{path}", *_flag(torch, path), None
    for name in _ATTENTION:
        asked = getattr(torch.backends.cuda, f"{name}_enabled", None)
        enable = getattr(torch.backends.cuda, f"enable_{name}", None)
        if asked is not None and enable is not None:
            yield f"torch.backends.cuda.{name}_enabled()", asked, enable, None
    for path in _PATCHABLE:
        owner = _attribute(torch, path)
        if owner is not UNREADABLE:
            yield f"torch.{path}", _contents(owner), None, _replaced(f"torch.{path}".rstrip(".")), True


def _discard(value: object) -> None:
    """For functions that answer with something we have no use for."""


def _worded(text: str) -> Callable[[Any, Any], str]:
    return lambda before, after: text


def _attribute(owner: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        owner = getattr(owner, name, UNREADABLE)
    return owner


def _default_device(torch: Any) -> Callable[[str], None]:
    # "cpu" is also what torch answers when none is set, and setting it would leave a mode behind.
    return lambda before: torch.set_default_device(None if before == "cpu" else before)


def _deterministic(torch: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def read() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    return read, lambda before: torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _matmul_precision(torch: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def read() -> str:
        try:
            return str(torch.get_float32_matmul_precision())
        except RuntimeError:  # torch refuses to answer when its two sets of precision flags were mixed
            return UNREADABLE

    def restore(before: str) -> None:
        if before != UNREADABLE:
            torch.set_float32_matmul_precision(before)

    return read, restore


def _anomaly(torch: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def read() -> tuple[bool, bool]:
        return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()

    return read, lambda before: _discard(torch.autograd.set_detect_anomaly(*before))


def _generator(torch: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def restore(before: bytes) -> None:
        torch.set_rng_state(torch.frombuffer(bytearray(before), dtype=torch.uint8))

    return lambda: tensor_bytes(torch.get_rng_state()), restore


def _autocast(torch: Any, kind: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def restore(before: tuple[bool, Any]) -> None:
        torch.set_autocast_enabled(kind, before[0])
        torch.set_autocast_dtype(kind, before[1])

    return lambda: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)), restore


def _flag(torch: Any, path: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    head, _, name = path.rpartition(".")

    def read() -> Any:
        try:
            return getattr(_attribute(torch, head), name, UNREADABLE)
        except RuntimeError:  # as above: old and new flags were mixed
            return UNREADABLE

    def restore(before: Any) -> None:
        if before is not UNREADABLE:
            setattr(_attribute(torch, head), name, before)

    return read, restore


class _Contents:
    """The attributes of a module or class, compared by identity."""

    def __init__(self, owner: Any) -> None:
        self.names = dict(vars(owner))
        self.names.pop("__warningregistry__", None)

    def replaced(self, later: _Contents) -> list[str]:
        """Names that mean something else later, torch's own replacements aside. New names are no harm."""
        other = [name for name in self.names if later.names.get(name, self.names[name]) is not self.names[name]]
        return sorted(name for name in other if not _of_torch(later.names[name]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Contents) and not self.replaced(other)

    __hash__ = None  # type: ignore[assignment]


def _of_torch(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "torch"


def _contents(owner: Any) -> Callable[[], _Contents]:
    return lambda: _Contents(owner)


def _replaced(owner: str) -> Callable[[_Contents, _Contents], str]:
    def tell(before: _Contents, after: _Contents) -> str:
        return f"torch's own: {', '.join(f'{owner}.{name}' for name in before.replaced(after))} replaced"

    return tell
