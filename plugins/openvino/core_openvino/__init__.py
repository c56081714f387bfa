"""OpenVINO as a backend of core.

Enters: functional graphs in core's ATen operators. Leaves: an artifact that runs a compiled model on the memory of the
tensors it is given. Conversion is `core_onnx`'s; mutation, aliasing and autograd are core's.
"""

__version__ = "0.1.0"
