"""Python functions that tracing enters in place of others: of functions written in C, or in a form no graph can hold.

They are the only functions of this package that are traced. Each one computes what the function it stands for does.
"""
