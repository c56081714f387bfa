"""A backend of core on top of NumPy."""
