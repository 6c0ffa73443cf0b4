"""One Numba kernel for one list of argument types: its IR, its effects, its parameters."""
