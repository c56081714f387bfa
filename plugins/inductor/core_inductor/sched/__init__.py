"""Scheduling: which nodes share a kernel, in which order everything runs, and which buffer reuses which.

Enters: a LoopGraph. Leaves: a Plan: kernels (structured loops, not text) and extern calls in order. Passes, in order:
realize, inline, fuse, kernel, loops, memory. This folder must not know C++, Triton or ATen's names.
"""
