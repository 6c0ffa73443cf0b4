"""Programs at random with control that the device decides."""

# ruff: noqa: B023 - `again` is called before it changes
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from numba import cuda

import graphjit as gj

N, B = 7, 32


@cuda.jit
def mix(x, k, y, out):
    """Exact in floats, so that any order of arithmetic gives the same."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = (x[i] + k * y[i] + i) % 101


@cuda.jit
def bump(x, k):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = (x[i] * 3 + k + 1) % 103


def mixed(x: Any, k: Any, y: Any) -> Any:
    out = gj.empty_like(x)
    mix[1, B](x, k, y, out)
    return out


KINDS = ["new", "new", "new", "write", "copy", "fill", "outside", "row", "number", "item", "view"]
CONTROL = ["static", "range", "range", "while", "cond", "cond", "switch", "scan"]


def program(rng: random.Random, depth: int = 3, size: int = 4) -> Callable[..., Any]:
    """A function of three arrays, a table of rows, an array of one integer and two numbers."""

    def block(level: int) -> Any:
        steps = []
        for _ in range(rng.randint(1, size)):
            kind = rng.choice(KINDS + CONTROL * (level < depth))
            detail = tuple(rng.randrange(99) for _ in range(4))
            count = {"cond": 2, "switch": 3}.get(kind, 1) if kind in CONTROL else 0
            steps.append((kind, detail, [block(level + 1) for _ in range(count)]))
        return steps, [rng.randrange(99) for _ in range(3)], rng.randrange(3)

    plan = block(0)

    def run(plan: Any, carry: Any, table: Any, outside: Any, k: Any, m: Any) -> Any:
        steps, order, kept = plan
        arrays, n, t = list(carry[0]), carry[1], carry[2]
        for kind, (a, b, c, d), inner in steps:
            x, y = arrays[a % len(arrays)], arrays[b % len(arrays)]
            numbers = [n, k, t, m, c % 5]
            number = numbers[d % 5]
            again = [lambda carry, p=p, k=k: run(p, carry, table, outside, k, m) for p in inner]
            now = (arrays[:3], n, t)
            if kind == "new":
                arrays.append(mixed(x, number, y))
            elif kind == "write":
                bump[1, B](x, number)
            elif kind == "copy":
                x[...] = y
            elif kind == "fill":
                x[1:3] = number
            elif kind == "outside":
                mix[1, B](x, number, outside, outside)
            elif kind == "row":
                arrays.append(table[n % 4])
            elif kind == "number":
                n, t = (n * 3 + c) % 11, (t + n + c) % 7
            elif kind == "item":
                t = (t + x[b % N].item()) % 13
            elif kind == "view":
                arrays.append(mixed(x[::-1], number, y[::-1]))
            elif kind == "static":
                now = gj.fori_loop(0, c % 4, lambda i, s: again[0]((s[0], s[1] + i, s[2])), now)
            elif kind == "range":
                lower = [0, n % 2, m][a % 3]
                now = gj.fori_loop(
                    lower, n % (2 + c % 10), lambda i, s: again[0]((s[0], s[1] + i, s[2])), now
                )
            elif kind == "while":
                limit, every = [(None, 1), (4, 1), (6, 2)][d % 3]

                def more(s: Any, c: Any = c, a: Any = a) -> Any:
                    return (s[1] < c % 5) & (s[0][0][a % N].item() % 5 != 2)

                now, _ = gj.while_loop(
                    lambda s, more=more: more((s[0][0], s[1])),
                    lambda s: (again[0](s[0]), s[1] + 1),
                    (now, 0),
                    max_iterations=limit,
                    check_every=every,
                )
            elif kind == "cond":
                pred = [x[c % N].item() % 2 < 1, n > 3, t < 3.5][d % 3]
                now = gj.cond(pred, *again, now)
            elif kind == "switch":
                now = gj.switch(n % 5 - 1, again, now)
            else:

                def stacked(s: Any, row: Any) -> Any:
                    s = again[0](s)
                    return s, {"x": mixed(s[0][0], s[1], row), "t": s[2]}

                now, ys = gj.scan(stacked, now, table)
                arrays.append(ys["x"][c % 4])
                t = (t + ys["t"][a % 4].item()) % 5
                now = (now[0], now[1], now[2] if c % 2 else t)
            if kind in CONTROL:
                arrays[:3], n, t = now
        chosen = [arrays[index % len(arrays)] for index in order]
        chosen[kept] = carry[0][kept]  # an array that is kept, if nothing else moves
        return chosen, n % 11, t

    def function(x: Any, y: Any, z: Any, table: Any, start: Any, k: Any, m: Any) -> Any:
        arrays, n, t = run(plan, ([x, y, z], start.item(), 1.0), table, z, k, m)
        return [mixed(a, 1, a) for a in arrays], arrays, n, t

    return function
