"""Builds the C extension `core_inductor._runtime`; everything else stands in pyproject.toml.

The extension includes no torch header and links no torch library: what it needs is looked up in the running process.
"""

from setuptools import Extension, setup

SOURCES = ["module.cpp", "torch_symbols.cpp", "forks.cpp", "library.cpp", "layout.cpp", "kernel.cpp", "view.cpp"]
HEADERS = ["runtime.h", "layout.h"]

setup(
    ext_modules=[
        Extension(
            "core_inductor._runtime",
            sources=[f"core_inductor/csrc/{source}" for source in SOURCES],
            depends=[f"core_inductor/csrc/{header}" for header in HEADERS],
            language="c++",
            extra_compile_args=["-O2", "-std=c++17", "-Wall", "-Wextra", "-Wno-missing-field-initializers"],
            extra_link_args=["-ldl", "-pthread"],
        )
    ]
)
