"""Building and calling generated kernels.

Enters: C++ source and KernelSpecs. Leaves: Python callables. build.py drives the compiler, cache.py keeps its results
on disk, toolchain.py knows compiler, flags and instruction set, load.py makes callables of them through the C
extension `core_inductor._runtime`. This folder must not know graphs, IR or how source is printed.
"""
