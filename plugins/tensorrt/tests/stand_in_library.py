"""A stand-in of the library `tensorrt`: it writes down every call, and its engines are ONNX models.

ONNX Runtime computes them at the addresses that they were given. What the real library refuses by its rules is refused
here too: an execution without an address for each tensor or a shape for each input of changing size, a shape outside of
the profile, an address that is not aligned.
"""

from __future__ import annotations

import ctypes
import pickle
from types import SimpleNamespace

import onnx

ALIGNMENT = 64
"""Of addresses: what torch's allocator keeps on the CPU. The real library wants 256, and CUDA's allocator keeps 512."""
CALLS: list[tuple] = []
"""What was called, in order: name and the arguments that matter."""
REFUSALS: set[str] = set()
"""Names of steps that fail."""
CUDA_GRAPHS_FORBID = frozenset(("deserialize", "context", "synchronize"))


def said(name, *rest):
    CALLS.append((name, *rest))
    return name not in REFUSALS


def names(*wanted):
    """The names of the calls, or the calls of these names."""
    return [call for call in CALLS if call[0] in wanted] if wanted else [call[0] for call in CALLS]


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING = 0, 1, 2


NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
BuilderFlag = SimpleNamespace(STRICT_NANS="STRICT_NANS", TF32="TF32", REFIT="REFIT")
MemoryPoolType = SimpleNamespace(WORKSPACE="WORKSPACE")
TensorLocation = SimpleNamespace(HOST="host", DEVICE="device")


class Named:
    """An input of a network; a number of the program is a shape tensor."""

    def __init__(self, value):
        self.name = value.name
        dims = value.type.tensor_type.shape.dim
        self.is_shape_tensor = not dims and value.type.tensor_type.elem_type == onnx.TensorProto.INT64


class Network:
    def __init__(self):
        self.model, self.weights = None, {}

    @property
    def num_inputs(self):
        return len(self.model.graph.input)

    @property
    def num_layers(self):
        return len(self.model.graph.node)

    def get_input(self, index):
        return Named(self.model.graph.input[index])


class Profile:
    def __init__(self):
        self.shapes = {}

    def set_shape(self, name, least, usual, largest):
        said("set_shape", name, least, usual, largest)
        self.shapes[name] = (least, largest)

    def set_shape_input(self, name, least, usual, largest):
        said("set_shape_input", name, least, usual, largest)


class Config:
    def __init__(self):
        self.profile, self.flags = {}, set()

    def set_flag(self, flag):
        said("set_flag", flag)
        self.flags.add(flag)

    def clear_flag(self, flag):
        said("clear_flag", flag)

    def set_memory_pool_limit(self, pool, size):
        said("set_memory_pool_limit", pool, size)

    def __setattr__(self, name, value):
        if name == "builder_optimization_level":
            said(name, value)
        object.__setattr__(self, name, value)

    def add_optimization_profile(self, profile):
        said("add_optimization_profile")
        self.profile = profile.shapes


class Builder:
    def __init__(self, log):
        self.log = log
        said("builder")

    def create_network(self, flags):
        said("create_network", flags)
        return Network()

    def create_builder_config(self):
        return Config()

    def create_optimization_profile(self):
        return Profile()

    def build_serialized_network(self, network, config):
        if not said("build"):
            self.log.log(ILogger.ERROR, "no tactic for a layer")
            return None
        made = (network.model.SerializeToString(), network.weights, config.profile, "REFIT" in config.flags)
        return pickle.dumps(made)


def weight_at(model, name, at, size):
    """The bytes of an initializer, read from where it lies."""
    (known,) = [one for one in model.graph.initializer if one.name == name]
    assert int(next(pair.value for pair in known.external_data if pair.key == "length")) == size
    return ctypes.string_at(at, size)


class OnnxParser:
    """One that reads into a network."""

    verb = "parse"

    def __init__(self, network, log):
        self.network, self.num_errors = network, 0

    def load_model_proto(self, blob):
        self.network.model = onnx.load_from_string(blob)
        return said("load_model")

    def load_initializer(self, name, at, size):
        self.network.weights[name] = weight_at(self.network.model, name, at, size)
        return said("load_initializer", name)

    def parse_model_proto(self):
        if not said("parse"):
            self.num_errors = 1
        return not self.num_errors

    def get_error(self, index):
        return SimpleNamespace(node_operator=lambda: "Erf", desc=lambda: "no plugin of that name")


class Refitter:
    def __init__(self, engine, log):
        self.engine = engine

    def refit_cuda_engine(self):
        self.engine.load()
        return said("refit_engine")


class OnnxParserRefitter:
    def __init__(self, refitter, log):
        self.engine = refitter.engine

    def load_model_proto(self, blob):
        self.engine.model = onnx.load_from_string(blob)
        return said("load_model")

    def load_initializer(self, name, at, size):
        self.engine.weights[name] = weight_at(self.engine.model, name, at, size)
        return said("load_initializer", name)

    def refit_model_proto(self):
        return said("refit_model")


class Runtime:
    def __init__(self, log):
        self.log = log

    def deserialize_cuda_engine(self, blob):
        if not said("deserialize"):
            self.log.log(ILogger.ERROR, "the engine is of another version")
            return None
        return Engine(*pickle.loads(blob))


class Engine:
    def __init__(self, model, weights, profile, refittable):
        self.model, self.weights = onnx.load_from_string(model), weights
        self.profile, self.refittable = profile, refittable
        self.values = [*self.model.graph.input, *self.model.graph.output]
        self.num_layers, self.num_io_tensors = len(self.model.graph.node), len(self.values)
        self.load()

    def load(self):
        import onnxruntime as ort

        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for one in model.graph.initializer:
            if one.name in self.weights:
                one.data_location = onnx.TensorProto.DEFAULT
                del one.external_data[:]
                one.raw_data = self.weights[one.name]
        self.computing = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    def serialize(self):
        return pickle.dumps((self.model.SerializeToString(), self.weights, self.profile, self.refittable))

    def get_tensor_name(self, index):
        return self.values[index].name

    def get_tensor_location(self, name):
        value = next(value for value in self.values if value.name == name)
        return TensorLocation.HOST if Named(value).is_shape_tensor else TensorLocation.DEVICE

    def create_execution_context(self):
        return Context(self) if said("context") else None


class Context:
    """Reads and writes memory by address, as an engine does."""

    def __init__(self, engine):
        self.engine, self.at, self.shapes = engine, {}, {}

    def set_input_shape(self, name, shape):
        said("shape", name, shape)
        least, largest = self.engine.profile[name]
        self.shapes[name] = shape
        return all(low <= size <= high for low, size, high in zip(least, shape, largest))

    def set_tensor_address(self, name, at):
        said("address", name)
        self.at[name] = at
        host = self.engine.get_tensor_location(name) == TensorLocation.HOST
        return at != 0 and (host or not at % ALIGNMENT)

    def get_tensor_shape(self, name):
        return self._results()[name].shape

    def execute_async_v3(self, stream):
        missing = {value.name for value in self.engine.values} - self.at.keys()
        if not said("execute", stream) or missing:
            return False
        for name, value in self._results().items():
            ctypes.memmove(self.at[name], value.ctypes.data, value.nbytes)
        return True

    def _results(self):
        graph = self.engine.model.graph
        given = {value.name: self._read(value) for value in graph.input}
        results = [value.name for value in graph.output]
        return {name: value.copy(order="C") for name, value in zip(results, self.engine.computing.run(results, given))}

    def _read(self, value):
        import numpy as np

        kind = value.type.tensor_type
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        shape = self.shapes.get(value.name) or tuple(dim.dim_value for dim in kind.shape.dim)
        size = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(self.at[value.name], size), dtype=dtype).reshape(shape)
