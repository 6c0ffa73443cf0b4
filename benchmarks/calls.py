"""The calls whose host cost is measured: one launch of one kernel, with arguments of many kinds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

import graphjit as gj

BLOCK = 256
# Arrays in turns, for x and for y: the same pair comes back after 64 * 67 calls.
TURNS = (64, 67)
Call = Callable[[], Any]


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def add_scaled(x, y, k, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + k * y[i]


@gj.graphed
def added(x: Any, y: Any) -> Any:
    out = gj.empty_like(x)
    add[-(-x.size // BLOCK), BLOCK](x, y, out)
    return out


@gj.graphed
def added_scaled(x: Any, y: Any, k: Any) -> Any:
    out = gj.empty_like(x)
    add_scaled[-(-x.size // BLOCK), BLOCK](x, y, k, out)
    return out


@gj.graphed
def added_items(arrays: Any) -> Any:
    out = gj.empty_like(arrays["x"])
    add[-(-out.size // BLOCK), BLOCK](arrays["x"], arrays["y"], out)
    return out


def host_arrays(size: int) -> tuple[list[Any], list[Any]]:
    """NumPy arrays for x and for y; no two are equal."""
    random = np.random.default_rng(0).random
    xs, ys = ([random(size, np.float32) for _ in range(count)] for count in TURNS)
    return xs, ys


def calls(size: int) -> dict[str, Call]:
    """Every kind of call on Arrays of the default device and on NumPy arrays, by name."""
    xs, ys = host_arrays(size)
    x, y = gj.array(xs[0]), gj.array(ys[0])
    arrays = {"x": x, "y": y}
    next_x, next_y = in_turns(xs, ys, gj.array)
    scalar = itertools.count(0.5, 0.5).__next__
    fed_back = [x]

    def feed_back() -> Any:
        fed_back[0] = result = added(fed_back[0], y)
        return result

    found: dict[str, Call] = {
        "the same arrays": lambda: added(x, y),
        "u = f(u)": feed_back,
        "new arrays": lambda: added(next_x(), next_y()),
        "a new scalar": lambda: added_scaled(x, y, scalar()),
        "new arrays, a new scalar": lambda: added_scaled(next_x(), next_y(), scalar()),
        "a keyword": lambda: added(x, y=y),
        "a dict of arrays": lambda: added_items(arrays),
        "NumPy arrays": lambda: added(xs[0], ys[0]),
    }
    expected = xs[0].copy()
    for _ in range(8):
        expected += ys[0]
        _expect(feed_back(), expected)
    for step in range(80):
        k = np.float32(0.5 * (step + 1))
        left, right = gj.array(xs[step % TURNS[0]]), gj.array(ys[step % TURNS[1]])
        _expect(
            added_scaled(left, right, 0.5 * (step + 1)),
            xs[step % TURNS[0]] + k * ys[step % TURNS[1]],
        )
    for name in ("the same arrays", "a keyword", "a dict of arrays", "NumPy arrays"):
        _expect(found[name](), xs[0] + ys[0])
    expect_turns(found["new arrays"], xs, ys)
    return found


def calls_on(make: Callable[[Any], Any], size: int, kind: str) -> dict[str, Call]:
    """Calls on another library's arrays: `make` makes one of a NumPy array."""
    xs, ys = host_arrays(size)
    x, y = make(xs[0]), make(ys[0])
    next_x, next_y = in_turns(xs, ys, make)
    found: dict[str, Call] = {
        f"the same {kind}": lambda: added(x, y),
        f"new {kind}": lambda: added(next_x(), next_y()),
    }
    _expect(found[f"the same {kind}"](), xs[0] + ys[0])
    expect_turns(found[f"new {kind}"], xs, ys)
    return found


def in_turns(xs: list[Any], ys: list[Any], make: Callable[[Any], Any]) -> tuple[Call, Call]:
    """What gives the next array for x, and for y."""
    return (
        itertools.cycle([make(x) for x in xs]).__next__,
        itertools.cycle([make(y) for y in ys]).__next__,
    )


def expect_turns(call: Call, xs: list[Any], ys: list[Any], count: int = 80) -> None:
    """Check the first results of calls on arrays in turns: none may be of other arguments."""
    for step in range(count):
        _expect(call(), xs[step % len(xs)] + ys[step % len(ys)])


def _expect(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(result.copy_to_host(), expected, rtol=1e-6)
