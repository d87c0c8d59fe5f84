"""Compiled loops (numba). Each is serial and releases the GIL, so that threads can run several at once."""
