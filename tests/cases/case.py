"""One kernel of the suite: its arguments, its launch, and what NumPy says it must leave behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Args = tuple[Any, ...]
Path = int | tuple[int, ...]
Expected = Mapping[Path, npt.ArrayLike]

FEATURES = frozenset(
    {
        "atomic",
        "barrier",
        "barrier_vote",  # syncthreads_count, _and, _or
        "bit",  # popc, brev, clz, ffs
        "bool",
        "cache_hint",
        "closure",
        "complex",
        "constant",  # cuda.const.array_like
        "device_function",
        "dynamic_shared",
        "early_exit",  # threads that have returned while others still meet barriers
        "empty",
        "exception",
        "fastmath",
        "fence",
        "float16",
        "grid_sync",
        "libdevice",
        "local",
        "match",
        "math",
        "no_write",
        "print",
        "random",
        "record",
        "recursion",
        "reshape",  # numba-cuda links CUDA C for it
        "shuffle",
        "sleep",
        "small_int",
        "static_shared",
        "strided",
        "tuple",
        "vector_type",
        "vote",
        "warp",  # syncwarp, activemask, lanemask_lt, laneid, warpsize
    }
)


@dataclass(frozen=True)
class Case:
    """A kernel with everything needed to run it and to know that it ran right.

    Parameters
    ----------
    name : str
        Unique name, for test ids.
    kernel : numba.cuda.dispatcher.CUDADispatcher
        An ordinary `@cuda.jit` kernel.
    make : callable
        From a NumPy random generator to the argument values: arrays, NumPy or Python scalars,
        records (`numpy.void`) and tuples of those.
    launch : callable
        From the arguments to `(grid, block)` or `(grid, block, 0, dynamic_shared_bytes)`.
    reference : callable
        From (a copy of) the arguments to the expected contents of those that change, by argument
        index, or by index path for elements of tuples. NumPy and SciPy only.
    rtol, atol : float
        Tolerances; both 0 compares exactly.
    features : frozenset of str
        What the kernel uses, of `FEATURES`.
    effects : tuple of two frozensets of str, optional
        Argument paths (``"x"``, ``"xs[1]"``) whose memory is truly read, and truly written.
    """

    name: str
    kernel: Any
    make: Callable[[np.random.Generator], Args]
    launch: Callable[[Args], tuple[Any, ...]]
    reference: Callable[[Args], Expected]
    rtol: float = 0.0
    atol: float = 0.0
    features: frozenset[str] = frozenset()
    effects: tuple[frozenset[str], frozenset[str]] | None = None

    def __post_init__(self) -> None:
        unknown = self.features - FEATURES
        if unknown:
            raise ValueError(f"case {self.name}: unknown features {sorted(unknown)}")


def uses(features: str) -> frozenset[str]:
    """Feature names from one string."""
    return frozenset(features.split())


def effects(reads: str, writes: str) -> tuple[frozenset[str], frozenset[str]]:
    """Effects from two strings of argument paths."""
    return frozenset(reads.split()), frozenset(writes.split())


def line(argument: int, threads: int = 64) -> Callable[[Args], tuple[Any, ...]]:
    """A 1-D launch with one thread for each element of an argument."""

    def launch(args: Args) -> tuple[Any, ...]:
        return blocks(args[argument].size, threads), threads

    return launch


def plane(argument: int, block: tuple[int, int]) -> Callable[[Args], tuple[Any, ...]]:
    """A 2-D launch over a 2-D argument whose first axis is the kernel's x."""

    def launch(args: Args) -> tuple[Any, ...]:
        rows, columns = args[argument].shape
        return (blocks(rows, block[0]), blocks(columns, block[1])), block

    return launch


def turned_plane(argument: int, block: tuple[int, int]) -> Callable[[Args], tuple[Any, ...]]:
    """A 2-D launch over a 2-D argument whose last axis is the kernel's x."""

    def launch(args: Args) -> tuple[Any, ...]:
        rows, columns = args[argument].shape
        return (blocks(columns, block[0]), blocks(rows, block[1])), block

    return launch


def fixed(*config: Any) -> Callable[[Args], tuple[Any, ...]]:
    """A launch that doesn't depend on the arguments."""
    return lambda _args: config


def blocks(count: int, threads: int) -> int:
    """How many blocks cover `count` elements; at least 1, since CUDA refuses an empty grid."""
    return max(1, -(-count // threads))


def ragged(rng: np.random.Generator, low: int, high: int, block: int = 64) -> int:
    """A random size in [low, high) that `block` doesn't divide."""
    size = int(rng.integers(low, high))
    return size if size % block else size + 1


def dyadic(
    rng: np.random.Generator, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32
) -> npt.NDArray[Any]:
    """Random multiples of 1/8 in [-4, 4).

    Sums of a few thousand products of two of them are exact in float32, so neither the order of
    atomics nor a fused multiply-add changes a bit, and references can be compared exactly.
    """
    return (rng.integers(-32, 32, size=shape) / 8).astype(dtype)
