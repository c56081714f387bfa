"""The installed TensorRT: which of its products there is, found without importing it.

TensorRT and TensorRT-RTX have one Python interface under two module names. Importing either loads hundreds of
megabytes and may fail for want of a library, so what is there is read from the metadata of installed distributions.
"""

from __future__ import annotations

import collections
import functools
import importlib
import importlib.util
from dataclasses import dataclass
from importlib import metadata
from typing import Any


@dataclass(frozen=True)
class Product:
    """One product: the modules it may be imported by, the distributions that have it, the major versions known here.

    capabilities: the compute capabilities that it has code for, empty where every one of its time is served.
    """

    name: str
    title: str
    modules: tuple[str, ...]
    distributions: tuple[str, ...]
    majors: tuple[int, ...]
    capabilities: tuple[str, ...] = ()


TENSORRT = Product(
    "tensorrt",
    "TensorRT",
    ("tensorrt", "tensorrt_bindings"),
    ("tensorrt-cu13-bindings", "tensorrt-cu12-bindings", "tensorrt-cu13", "tensorrt-cu12", "tensorrt"),
    (10, 11),
)
RTX = Product(
    "tensorrt_rtx",
    "TensorRT-RTX",
    ("tensorrt_rtx", "tensorrt_rtx_bindings"),
    ("tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu12-bindings", "tensorrt-rtx"),
    (1,),
    ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1"),
)
PRODUCTS = (TENSORRT, RTX)
NAMES = ("auto", *(product.name for product in PRODUCTS))


@dataclass(frozen=True)
class Choice:
    """An installed product: the module to import, its version, the major version of CUDA it is built for (0: unknown).

    With an empty `module` there is none, and `reason` and `remedy` say why.
    """

    product: Product = TENSORRT
    module: str = ""
    version: str = ""
    cuda: int = 0
    reason: str = ""
    remedy: str = ""

    @property
    def label(self) -> str:
        """As reports name it: `TensorRT 11.4.0`."""
        return f"{self.product.title} {self.version}"


def choose(wanted: str = "auto", capability: str = "") -> Choice:
    """The product to use: `wanted` by its name, or the first that is installed and has code for `capability`."""
    found = [choice_of(product) for product in PRODUCTS if wanted in ("auto", product.name)]
    usable = [choice for choice in found if choice.module]
    for choice in usable:
        if not capability or not choice.product.capabilities or capability in choice.product.capabilities:
            return choice
    if usable:
        last = usable[-1]
        text = f"{last.label} has no code for compute capability {capability}, only for "
        return Choice(
            last.product,
            reason=text + ", ".join(last.product.capabilities),
            remedy='pip install "core-tensorrt[cu13]", which has it',
        )
    installed = [choice for choice in found if choice.version]
    return installed[0] if installed else found[0]


def choice_of(product: Product) -> Choice:
    """What is installed of a product."""
    extra = "rtx" if product is RTX else "cu13"
    remedy = f'pip install "core-tensorrt[{extra}]"'
    for distribution in product.distributions:
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
        if int(version.partition(".")[0]) not in product.majors:
            known = " and ".join(map(str, product.majors))
            text = f"{product.title} {version} is installed, and this version knows {known}"
            return Choice(product, version=version, reason=text, remedy=remedy)
        module = next((name for name in product.modules if importlib.util.find_spec(name) is not None), "")
        if not module:
            text = f"{distribution} {version} is installed without its module {product.modules[-1]}"
            return Choice(product, version=version, reason=text, remedy=remedy)
        cuda = next((int(part[2:]) for part in distribution.split("-") if part[:2] == "cu" and part[2:].isdigit()), 0)
        return Choice(product, module, version, cuda)
    return Choice(product, reason=f"{product.title} is not installed", remedy=remedy)


@functools.lru_cache(maxsize=4)
def load(module: str) -> Any:
    """The module itself. Raises ImportError with the loader's words where a library of it is missing."""
    return importlib.import_module(module)


@functools.lru_cache(maxsize=4)
def logger_of(module: str) -> Any:
    """The logger of a module: it prints nothing and keeps the last messages, which errors quote. One a process, as the
    library keeps the first that it is given."""
    runtime = load(module)

    class Log(runtime.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            runtime.ILogger.__init__(self)
            self.messages: collections.deque[str] = collections.deque(maxlen=20)

        def log(self, severity: Any, text: str) -> None:
            if severity in (runtime.ILogger.INTERNAL_ERROR, runtime.ILogger.ERROR):
                self.messages.append(text)

        def taken(self) -> str:
            """The messages so far, which are forgotten."""
            text = "\n".join(self.messages)
            self.messages.clear()
            return text

    return Log()
