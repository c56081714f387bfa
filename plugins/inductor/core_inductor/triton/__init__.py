"""Printing loop IR as Triton and compiling it to GPU code.

Enters: nodes of the loop IR that share a kernel. Leaves: Triton source, its arguments, and a cubin. printer.py writes
the program, operations.py and indexing.py single operations and index maps, build.py calls Triton's compiler. This
folder must not know ATen. Only build.py imports triton.
"""
