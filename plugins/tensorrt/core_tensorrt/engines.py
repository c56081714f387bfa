"""Engines ready to run: made from bytes, given new weights, asked for their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core_onnx import OnnxGraph
from core_onnx.ports import Port

from core.plugin import CompileFailed

from .runtimes import load, logger_of


class Engine:
    """A deserialized engine with the runtime that it needs alive."""

    def __init__(self, module: str, blob: bytes) -> None:
        self.module = module
        self.library, self.log = load(module), logger_of(module)
        self.log.taken()
        self.runtime = self.library.Runtime(self.log)
        self.engine = self.runtime.deserialize_cuda_engine(blob)
        if self.engine is None:
            raise CompileFailed("loading the engine", self.log.taken())

    @property
    def layers(self) -> int:
        """The number of its layers."""
        return int(self.engine.num_layers)

    def context(self) -> Any:
        """A new execution context, None where there is no memory for one."""
        return self.engine.create_execution_context()

    def failure(self) -> str:
        """What the library said last."""
        return str(self.log.taken()) or "it gives no reason"

    def serialized(self) -> bytes:
        """Its bytes, with the weights that it has now."""
        return bytes(self.engine.serialize())

    def ports(self, ports: Sequence[Port]) -> list[Port]:
        """Those that the engine has, each with the memory that it lies in."""
        engine = self.engine
        names = {engine.get_tensor_name(index) for index in range(engine.num_io_tensors)}
        host = self.library.TensorLocation.HOST
        return [
            replace(port, host=engine.get_tensor_location(port.name) == host) for port in ports if port.name in names
        ]

    def refit(self, model: OnnxGraph) -> bool:
        """Replace every weight by the model's. False where the engine doesn't allow it: it must be built again."""
        make = getattr(self.library, "OnnxParserRefitter", None)
        if make is None or not self.engine.refittable:
            return False
        refitter = self.library.Refitter(self.engine, self.log)
        parser = make(refitter, self.log)
        if not hasattr(parser, "load_model_proto"):
            return False
        given = parser.load_model_proto(model.serialized()) and all(
            parser.load_initializer(name, weight.data_ptr(), weight.numel() * weight.element_size())
            for name, weight in model.external.items()
        )
        done = given and parser.refit_model_proto() and refitter.refit_cuda_engine()
        if not done:
            self.log.taken()
        return bool(done)
