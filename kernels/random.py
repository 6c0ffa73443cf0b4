"""States of random number generators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cuda.random import init_xoroshiro128p_states_cpu, xoroshiro128p_dtype

import graphjit as gj


def random_states(count: int, seed: int, subsequence_start: int = 0) -> Any:
    """Make states for the generators of `numba.cuda.random`, on any backend.

    Parameters
    ----------
    count : int
        How many states; one for each thread that draws numbers.
    seed : int
        The same seed gives the same numbers on every backend.
    subsequence_start : int
        How many subsequences of 2**64 numbers to skip.

    Returns
    -------
    Array
        Structured array of shape ``(count,)``, to be passed to ``xoroshiro128p_uniform_float32``
        and its kin in a kernel. Kernels that draw numbers advance it in place.

    Raises
    ------
    ValueError
        If `count` is negative.

    Examples
    --------
    >>> from graphjit import kernels
    >>> kernels.random_states(4, seed=1).shape
    (4,)

    Notes
    -----
    The generator is xoroshiro128+ (Blackman and Vigna, "Scrambled linear pseudorandom number
    generators", ACM Transactions on Mathematical Software, 2021).
    """
    if count < 0:
        raise ValueError(f"there can't be {count} states")
    states = np.zeros(count, xoroshiro128p_dtype)
    init_xoroshiro128p_states_cpu(states, np.uint64(seed), np.uint64(subsequence_start))
    return gj.array(states)
