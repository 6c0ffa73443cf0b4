"""Every atomic on every type that Numba gives it, alone and contended."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import cuda

from .case import Args, Case, Expected, dyadic, effects, fixed, line, uses

INTEGERS = (np.int32, np.uint32, np.int64, np.uint64)
UNSIGNED = (np.uint32, np.uint64)
NUMBERS = (*INTEGERS, np.float32, np.float64)


@cuda.jit
def add(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, index[i], x[i])


@cuda.jit
def sub(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.sub(out, index[i], x[i])


@cuda.jit
def maximum(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(out, index[i], x[i])


@cuda.jit
def minimum(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.min(out, index[i], x[i])


@cuda.jit
def nan_maximum(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.nanmax(out, index[i], x[i])


@cuda.jit
def nan_minimum(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.nanmin(out, index[i], x[i])


@cuda.jit
def bit_and(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.and_(out, index[i], x[i])


@cuda.jit
def bit_or(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.or_(out, index[i], x[i])


@cuda.jit
def bit_xor(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.xor(out, index[i], x[i])


@cuda.jit
def increment(limit, index, out):
    i = cuda.grid(1)
    if i < index.size:
        cuda.atomic.inc(out, index[i], limit[index[i]])


@cuda.jit
def decrement(limit, index, out):
    i = cuda.grid(1)
    if i < index.size:
        cuda.atomic.dec(out, index[i], limit[index[i]])


@cuda.jit
def exchange(x, out, old):
    i = cuda.grid(1)
    if i < x.size:
        old[i] = cuda.atomic.exch(out, x.size - 1 - i, x[i])


@cuda.jit
def compare_exchange(expected, x, out, old):
    i = cuda.grid(1)
    if i < x.size:
        old[i] = cuda.atomic.cas(out, i, expected[i], x[i])


@cuda.jit
def compare_and_swap_first(value, winners, cell):
    # Of all threads exactly one sees the initial zero.
    if cuda.atomic.compare_and_swap(cell, 0, value[0]) == 0:
        cuda.atomic.add(winners, 0, 1)


@cuda.jit
def returned_values(x, counter, slots):
    # What add returns hands every thread its own slot, in an order nobody knows.
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        slots[cuda.atomic.add(counter, 0, 1)] = i
    cuda.syncthreads()
    if i == 0:
        # Sorted, so that the order doesn't show.
        for a in range(1, counter[0]):
            value = slots[a]
            b = a
            while b > 0 and slots[b - 1] > value:
                slots[b] = slots[b - 1]
                b -= 1
            slots[b] = value


@cuda.jit
def contended_exchange(x, box, total):
    # Every value put in is taken out exactly once, whoever takes it.
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(total, 0, cuda.atomic.exch(box, 0, x[i]))


@cuda.jit
def histogram_2d(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, (x[i], y[i]), 1.0)


@cuda.jit
def reduce_axis_3d(x, largest, smallest):
    i, j, k = cuda.grid(3)
    if i < x.shape[0] and j < x.shape[1] and k < x.shape[2]:
        cuda.atomic.max(largest, (i, k), x[i, j, k])
        cuda.atomic.min(smallest, (0, j, 0), x[i, j, k])


@cuda.jit
def cas_spin_product(x, out):
    # An atomic that Numba lacks, made of compare and swap in a loop.
    i = cuda.grid(1)
    if i < x.size:
        seen = out[0]
        while True:
            assumed = seen
            seen = cuda.atomic.cas(out, 0, assumed, assumed * x[i] % 1000003)
            if seen == assumed:
                break


@cuda.jit
def negative_index(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, -1 - i % 3, x[i])


def _values(rng: np.random.Generator, shape: int, dtype: Any) -> np.ndarray:
    if np.issubdtype(dtype, np.floating):
        return dyadic(rng, shape, dtype)
    # The whole range, so that sums wrap and signed and unsigned order differ.
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def _pairwise(
    kernel: Any, ufunc: np.ufunc, dtypes: tuple[Any, ...], nan: float = 0
) -> Iterator[Case]:
    """Cases of an atomic whose result is a NumPy ufunc applied with `.at`."""

    def case(dtype: Any) -> Case:
        floating = np.issubdtype(dtype, np.floating)

        def make(rng: np.random.Generator) -> Args:
            x, out = _values(rng, 301, dtype), _values(rng, 13, dtype)
            if nan and floating:
                x[rng.random(301) < nan] = np.nan
                out[::5] = np.nan
            return x, rng.integers(0, 12, 301), out

        def reference(args: Args) -> Expected:
            x, index, out = args
            ufunc.at(out, index, x)
            return {2: out}

        return Case(
            f"atomic_{kernel.__name__}_{np.dtype(dtype).name}",
            kernel,
            make,
            line(0),
            reference,
            features=uses("atomic"),
            effects=effects("x index out", "out"),
        )

    return map(case, dtypes)


def _counting(kernel: Any, step: Any) -> Iterator[Case]:
    """Cases of inc and dec, whose result is a step applied as often as an index occurs."""

    def case(dtype: Any) -> Case:
        def make(rng: np.random.Generator) -> Args:
            limit = np.array([0, 1, 5, 9, 400, 13, 2, 7], dtype)
            return limit, rng.integers(0, 8, 301), rng.integers(0, 20, 8).astype(dtype)

        def reference(args: Args) -> Expected:
            limit, index, out = args
            for k in range(8):
                value = int(out[k])
                for _ in range(np.count_nonzero(index == k)):
                    value = step(value, int(limit[k]))
                out[k] = value
            return {2: out}

        return Case(
            f"atomic_{kernel.__name__}_{np.dtype(dtype).name}",
            kernel,
            make,
            line(1),
            reference,
            features=uses("atomic"),
            effects=effects("limit index out", "out"),
        )

    return map(case, UNSIGNED)


def _exchanges() -> Iterator[Case]:
    for dtype in INTEGERS:
        name = np.dtype(dtype).name

        def make(rng: np.random.Generator, dtype: Any = dtype) -> Args:
            return tuple(_values(rng, 99, dtype) for _ in range(3))

        def make_cas(rng: np.random.Generator, dtype: Any = dtype) -> Args:
            x, out, old = (_values(rng, 99, dtype) for _ in range(3))
            expected = np.where(rng.random(99) < 0.5, out, x)
            return expected, x, out, old

        def make_swap(rng: np.random.Generator, dtype: Any = dtype) -> Args:
            return np.array([77], dtype), np.zeros(1, np.int32), np.zeros(3, dtype)

        yield Case(
            f"atomic_exchange_{name}",
            exchange,
            make,
            line(0, 32),
            lambda a: {1: a[0][::-1], 2: a[1][::-1]},
            features=uses("atomic"),
            # An exchange reads what it returns.
            effects=effects("x out", "out old"),
        )
        yield Case(
            f"atomic_cas_{name}",
            compare_exchange,
            make_cas,
            line(0, 32),
            lambda a: {2: np.where(a[0] == a[2], a[1], a[2]), 3: a[2]},
            features=uses("atomic"),
            effects=effects("expected x out", "out old"),
        )
        yield Case(
            f"atomic_compare_and_swap_{name}",
            compare_and_swap_first,
            make_swap,
            fixed(3, 50),
            lambda a: {1: [1], 2: [77, 0, 0]},
            features=uses("atomic"),
            effects=effects("value winners cell", "winners cell"),
        )


def _slots(args: Args) -> Expected:
    x, _, slots = args
    chosen = np.flatnonzero(x > 0)
    slots[: chosen.size] = chosen
    return {1: [chosen.size], 2: slots}


def _grid_histogram(args: Args) -> Expected:
    x, y, out = args
    shape = out.shape
    counts = np.bincount(np.ravel_multi_index((x, y), shape), minlength=out.size)
    return {2: out + counts.reshape(shape)}


def _products(args: Args) -> Expected:
    product = int(args[1][0])
    for value in args[0]:
        product = product * int(value) % 1000003
    return {1: [product]}


def _from_the_end(args: Args) -> Expected:
    x, out = args
    for k in range(3):
        out[-1 - k] += x[k::3].sum()
    return {1: out}


CASES = [
    *_pairwise(add, np.add, NUMBERS),
    *_pairwise(sub, np.subtract, NUMBERS),
    *_pairwise(maximum, np.maximum, NUMBERS),
    *_pairwise(minimum, np.minimum, NUMBERS),
    *_pairwise(nan_maximum, np.fmax, NUMBERS, nan=0.4),
    *_pairwise(nan_minimum, np.fmin, NUMBERS, nan=0.4),
    *_pairwise(bit_and, np.bitwise_and, INTEGERS),
    *_pairwise(bit_or, np.bitwise_or, INTEGERS),
    *_pairwise(bit_xor, np.bitwise_xor, INTEGERS),
    *_counting(increment, lambda value, top: 0 if value >= top else value + 1),
    *_counting(decrement, lambda value, top: top if value == 0 or value > top else value - 1),
    *_exchanges(),
    Case(
        "atomic_returned_values",
        returned_values,
        lambda rng: (dyadic(rng, 61), np.zeros(1, np.int32), np.full(64, -1)),
        fixed(1, 64),
        _slots,
        features=uses("atomic barrier"),
        effects=effects("x counter slots", "counter slots"),
    ),
    Case(
        "atomic_contended_exchange",
        contended_exchange,
        # All values alike, but for the one that lies in the box at first.
        lambda rng: (np.full(250, 3, np.int64), np.full(1, 50), np.zeros(1, np.int64)),
        line(0),
        lambda a: {1: [3], 2: [50 + 249 * 3]},
        features=uses("atomic"),
        effects=effects("x box total", "box total"),
    ),
    Case(
        "atomic_histogram_2d",
        histogram_2d,
        lambda rng: (rng.integers(0, 5, 333), rng.integers(0, 7, 333), dyadic(rng, (5, 7))),
        line(0),
        _grid_histogram,
        features=uses("atomic"),
        effects=effects("x y out", "out"),
    ),
    Case(
        "atomic_reduce_axis_3d",
        reduce_axis_3d,
        lambda rng: (
            rng.normal(size=(5, 6, 7)),
            np.full((5, 7), -np.inf),
            np.full((2, 6, 1), np.inf),
        ),
        fixed((2, 2, 2), (3, 4, 5)),
        lambda a: {
            1: a[0].max(axis=1),
            2: np.stack([a[0].min(axis=(0, 2)), np.full(6, np.inf)])[:, :, None],
        },
        features=uses("atomic"),
        effects=effects("x largest smallest", "largest smallest"),
    ),
    Case(
        "atomic_cas_spin_product",
        cas_spin_product,
        lambda rng: (rng.integers(1, 1000, 77), np.ones(1, np.int64)),
        line(0, 32),
        _products,
        features=uses("atomic"),
        effects=effects("x out", "out"),
    ),
    Case(
        "atomic_negative_index",
        negative_index,
        lambda rng: (dyadic(rng, 90), dyadic(rng, 5)),
        line(0, 32),
        _from_the_end,
        features=uses("atomic"),
        effects=effects("x out", "out"),
    ),
]
