"""Small whole algorithms without barriers: data-dependent loops, sums, stencils."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import math

import numpy as np
from numba import cuda

from .case import (
    Args,
    Case,
    Expected,
    dyadic,
    effects,
    line,
    plane,
    turned_plane,
    uses,
)


@cuda.jit
def mandelbrot(x0, y0, step, limit, out):
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        re = x0 + j * step
        im = y0 + i * step
        zr = 0.0
        zi = 0.0
        count = 0
        while zr * zr + zi * zi <= 4.0 and count < limit:
            zr, zi = zr * zr - zi * zi + re, 2.0 * zr * zi + im
            count += 1
        out[i, j] = count


@cuda.jit
def collatz(start, out):
    i = cuda.grid(1)
    if i < start.size:
        n = start[i]
        steps = 0
        while n != 1:
            if n % 2 == 0:
                n //= 2
            else:
                n = 3 * n + 1
            steps += 1
        out[i] = steps


@cuda.jit
def greatest_common_divisor(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        x, y = a[i], b[i]
        while y:
            x, y = y, x % y
        out[i] = x


@cuda.jit
def lower_bound(sorted_values, wanted, out):
    i = cuda.grid(1)
    if i >= wanted.size:
        return
    low, high = 0, sorted_values.size
    while low < high:
        middle = (low + high) >> 1
        if sorted_values[middle] < wanted[i]:
            low = middle + 1
        else:
            high = middle
    out[i] = low


@cuda.jit
def game_of_life(board, out):
    i, j = cuda.grid(2)
    rows, columns = board.shape
    if i < rows and j < columns:
        alive = 0
        for di in range(-1, 2):
            for dj in range(-1, 2):
                if di != 0 or dj != 0:
                    alive += board[(i + di) % rows, (j + dj) % columns]
        out[i, j] = 1 if alive == 3 or (alive == 2 and board[i, j] == 1) else 0


@cuda.jit(device=True)
def pull(p, q, softening):
    dx = q[0] - p[0]
    dy = q[1] - p[1]
    dz = q[2] - p[2]
    r2 = dx * dx + dy * dy + dz * dz + softening
    inverse = 1.0 / (r2 * math.sqrt(r2))
    return dx * inverse, dy * inverse, dz * inverse


@cuda.jit
def nbody(position, mass, velocity, dt):
    i = cuda.grid(1)
    if i < position.shape[0]:
        ax = 0.0
        ay = 0.0
        az = 0.0
        for j in range(position.shape[0]):
            fx, fy, fz = pull(position[i], position[j], 0.01)
            ax += mass[j] * fx
            ay += mass[j] * fy
            az += mass[j] * fz
        velocity[i, 0] += dt * ax
        velocity[i, 1] += dt * ay
        velocity[i, 2] += dt * az


@cuda.jit
def spmv_csr(pointers, columns, values, x, y):
    row = cuda.grid(1)
    if row < y.size:
        total = np.float32(0)
        for k in range(pointers[row], pointers[row + 1]):
            total += values[k] * x[columns[k]]
        y[row] = total


@cuda.jit
def matmul_naive(a, b, c):
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total


@cuda.jit
def convolve(x, kernel, out):
    i = cuda.grid(1)
    if i < out.size:
        total = 0.0
        for k in range(kernel.size):
            j = i + k - kernel.size // 2
            if 0 <= j < x.size:
                total += x[j] * kernel[kernel.size - 1 - k]
        out[i] = total


@cuda.jit
def laplace_3d(u, out, k):
    i, j, m = cuda.grid(3)
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1 and 0 < m < u.shape[2] - 1:
        around = (
            u[i - 1, j, m]
            + u[i + 1, j, m]
            + u[i, j - 1, m]
            + u[i, j + 1, m]
            + u[i, j, m - 1]
            + u[i, j, m + 1]
        )
        out[i, j, m] = u[i, j, m] + k * (around - 6 * u[i, j, m])


def _life(args: Args) -> Expected:
    board = args[0].astype(np.int64)
    neighbours = sum(
        np.roll(board, (di, dj), (0, 1))
        for di in (-1, 0, 1)
        for dj in (-1, 0, 1)
        if (di, dj) != (0, 0)
    )
    return {1: (neighbours == 3) | ((neighbours == 2) & (board == 1))}


def _mandelbrot(args: Args) -> Expected:
    x0, y0, step, limit, out = args
    c = (x0 + np.arange(out.shape[1]) * step) + 1j * (y0 + np.arange(out.shape[0]) * step)[:, None]
    z, count = np.zeros_like(c), np.zeros(out.shape, np.int64)
    for _ in range(limit):
        inside = np.abs(z) <= 2
        z[inside] = z[inside] ** 2 + c[inside]
        count += inside
    return {4: count}


def _collatz(args: Args) -> Expected:
    n, steps = args[0].copy(), np.zeros(args[0].size, np.int64)
    while (n != 1).any():
        steps += n != 1
        n = np.where(n == 1, 1, np.where(n % 2, 3 * n + 1, n // 2))
    return {1: steps}


def _nbody(args: Args) -> Expected:
    position, mass, velocity, dt = args
    apart = position[None, :, :] - position[:, None, :]
    strength = mass[None, :] * (np.sum(apart**2, axis=-1) + 0.01) ** -1.5
    return {2: velocity + dt * np.einsum("ij,ijk->ik", strength, apart)}


def _laplace(args: Args) -> Expected:
    u, out, k = args
    inside = (slice(1, -1),) * 3
    second = sum(np.roll(u, 1, axis) - 2 * u + np.roll(u, -1, axis) for axis in range(3))
    out[inside] = (u + k * second)[inside]
    return {1: out}


def _csr(rng: np.random.Generator) -> Args:
    held = rng.random((123, 45)) < 0.1
    rows, columns = np.nonzero(held)
    pointers = np.concatenate([[0], np.cumsum(held.sum(axis=1))])
    return (
        pointers.astype(np.int32),
        columns.astype(np.int32),
        dyadic(rng, rows.size),
        dyadic(rng, 45),
        np.ones(123, np.float32),
    )


def _spmv(args: Args) -> Expected:
    pointers, columns, values, x, y = args
    dense = np.zeros((y.size, x.size))
    dense[np.repeat(np.arange(y.size), np.diff(pointers)), columns] = values
    return {4: dense @ x}


CASES = [
    Case(
        "mandelbrot",
        mandelbrot,
        # An odd start keeps every orbit that matters away from the exact boundary |z| = 2.
        lambda rng: (-2.0131, -1.2107, 0.0713, 40, np.zeros((35, 41), np.int32)),
        turned_plane(4, (16, 4)),
        _mandelbrot,
        effects=effects("", "out"),
    ),
    Case(
        "collatz",
        collatz,
        lambda rng: (rng.integers(1, 3000, 133), np.zeros(133, np.int32)),
        line(0),
        _collatz,
        effects=effects("start", "out"),
    ),
    Case(
        "greatest_common_divisor",
        greatest_common_divisor,
        lambda rng: (rng.integers(0, 500, 150), rng.integers(0, 500, 150), np.zeros(150, np.int64)),
        line(0),
        lambda a: {2: np.gcd(a[0], a[1])},
        effects=effects("a b", "out"),
    ),
    Case(
        "lower_bound",
        lower_bound,
        lambda rng: (np.sort(rng.normal(size=77)), rng.normal(size=150), np.zeros(150, np.uint32)),
        line(1),
        lambda a: {2: np.searchsorted(a[0], a[1])},
        effects=effects("sorted_values wanted", "out"),
    ),
    Case(
        "game_of_life",
        game_of_life,
        lambda rng: (rng.integers(0, 2, (19, 23), np.int8), np.zeros((19, 23), np.int8)),
        plane(0, (8, 4)),
        _life,
        features=uses("small_int"),
        effects=effects("board", "out"),
    ),
    Case(
        "nbody",
        nbody,
        lambda rng: (
            rng.normal(size=(37, 3)),
            rng.uniform(0.5, 1, 37),
            rng.normal(size=(37, 3)),
            0.01,
        ),
        line(1, 32),
        _nbody,
        # Another order of the sum, contraction, 1/sqrt against a power.
        rtol=1e-12,
        atol=1e-13,
        features=uses("device_function math"),
        effects=effects("position mass velocity", "velocity"),
    ),
    Case(
        "spmv_csr",
        spmv_csr,
        _csr,
        line(4, 32),
        _spmv,
        effects=effects("pointers columns values x", "y"),
    ),
    Case(
        "matmul_naive",
        matmul_naive,
        lambda rng: (dyadic(rng, (21, 30)), dyadic(rng, (30, 19)), np.zeros((21, 19), np.float32)),
        plane(2, (8, 8)),
        lambda a: {2: a[0].astype(np.float64) @ a[1].astype(np.float64)},
        effects=effects("a b", "c"),
    ),
    Case(
        "convolve",
        convolve,
        lambda rng: (dyadic(rng, 201, np.float64), dyadic(rng, 5, np.float64), np.zeros(201)),
        line(0),
        lambda a: {2: np.convolve(a[0], a[1], "same")},
        effects=effects("x kernel", "out"),
    ),
    Case(
        "laplace_3d",
        laplace_3d,
        lambda rng: (dyadic(rng, (9, 7, 11)), np.ones((9, 7, 11), np.float32), np.float32(0.125)),
        lambda a: ((3, 2, 3), (4, 4, 4)),
        _laplace,
        effects=effects("u", "out"),
    ),
]
