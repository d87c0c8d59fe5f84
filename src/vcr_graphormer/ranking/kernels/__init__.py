"""The compiled loops (numba): serial, without the GIL, driven by threads."""
