"""TorchScript's optimize_for_inference as a backend of core.

Enters: functional ATen graphs of fixed sizes, without gradients. Leaves: the traced and optimised program. TorchScript
is deprecated in PyTorch: this backend lasts as long as PyTorch keeps it.
"""

__version__ = "0.1.0"
