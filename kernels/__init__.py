"""Ready-made Numba kernels, to use inside a graphed function and outside one."""

from .elementwise import fill, map
from .random import random_states
from .reductions import dot, reduce_max, reduce_sum
from .transpose import transpose

__all__ = ["dot", "fill", "map", "random_states", "reduce_max", "reduce_sum", "transpose"]
