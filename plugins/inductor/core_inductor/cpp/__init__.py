"""C++: scheduled kernels as include-free source text.

Enters: kernels (sched.kernel.Kernel) and the plan. Leaves: one translation unit and the Python wrapper's text.
Everything a kernel needs is printed with it (math.py); what is left undefined is libm, memcpy and libgomp.
"""
