"""The abacus backend for PyTorch programs compiled by core."""

__version__ = "0.1.0"
