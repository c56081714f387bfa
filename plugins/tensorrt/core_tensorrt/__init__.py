"""NVIDIA TensorRT as a backend of core.

Enters: functional graphs in core's ATen operators. Leaves: an artifact that runs one engine on the memory of the CUDA
tensors it is given, on torch's current stream. Conversion is `core_onnx`'s; mutation, aliasing and autograd are core's.
"""

__version__ = "0.1.0"
