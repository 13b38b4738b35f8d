"""Numba kernels of the codecs: the only place where bits are shifted."""
