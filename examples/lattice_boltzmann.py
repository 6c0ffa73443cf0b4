"""Flow between two plates by lattice Boltzmann: fluid at rest is pushed until walls hold it.

Nine streams of particles per cell collide and move to the neighbours (D2Q9 with one relaxation
time: Y. H. Qian, D. d'Humieres and P. Lallemand, Europhysics Letters 17, 1992; the push after
Z. Guo, C. Zheng and B. Shi, Physical Review E 65, 2002). What meets a wall turns round. The flow
grows towards Poiseuille's parabola, and is compared at its end with the exact solution in between.

    python examples/lattice_boltzmann.py [--steps 4000] [--size 128] [--out out/flow.png]

runs it on the GPU where there is one, and else on the CPU.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numba import cuda, float32

import graphjit as gj

# The nine streams: at rest, along the axes, along the diagonals; how heavy they are; who turns
# into whom at a wall.
CX = (0, 1, 0, -1, 0, 1, -1, -1, 1)
CY = (0, 0, 1, 0, -1, 1, 1, -1, -1)
WEIGHTS = tuple(np.float32(w) for w in (4 / 9, *[1 / 9] * 4, *[1 / 36] * 4))
OPPOSITE = (0, 3, 4, 1, 2, 7, 8, 5, 6)
# With this relaxation the walls are exactly half a cell outside the outermost cells.
RELAXATION = 0.5 + math.sqrt(3) / 4
VISCOSITY = (RELAXATION - 0.5) / 3  # cells^2 a step
OMEGA = np.float32(1 / RELAXATION)
KEPT = np.float32(1 - 0.5 / RELAXATION)
BLOCK = (32, 8)


@cuda.jit
def macroscopic(f, push, density, u, v):
    """Density and velocity of each cell."""
    j, i = cuda.grid(2)
    if i < density.shape[0] and j < density.shape[1]:
        mass, along, across = float32(0), float32(0), float32(0)
        for q in range(9):
            mass += f[q, i, j]
            along += CX[q] * f[q, i, j]
            across += CY[q] * f[q, i, j]
        density[i, j] = mass
        u[i, j] = (along + float32(0.5) * push) / mass
        v[i, j] = across / mass


@cuda.jit
def collide(f, density, u, v, push, out):
    """Each cell's streams relax towards equilibrium, and are pushed along the plates."""
    j, i = cuda.grid(2)
    if i < density.shape[0] and j < density.shape[1]:
        mass, along, across = density[i, j], u[i, j], v[i, j]
        squares = float32(1.5) * (along * along + across * across)
        for q in range(9):
            c = CX[q] * along + CY[q] * across
            balance = WEIGHTS[q] * mass * (1 + 3 * c + float32(4.5) * c * c - squares)
            forced = KEPT * WEIGHTS[q] * (3 * (CX[q] - along) + 9 * c * CX[q]) * push
            out[q, i, j] = f[q, i, j] - OMEGA * (f[q, i, j] - balance) + forced


@cuda.jit
def stream(f, out):
    """Streams move to the neighbours; along the plates, what leaves on one side enters again."""
    j, i = cuda.grid(2)
    rows, columns = f.shape[1:]
    if i < rows and j < columns:
        for q in range(9):
            row = i - CY[q]
            if 0 <= row < rows:
                out[q, i, j] = f[q, row, (j - CX[q] + columns) % columns]


@cuda.jit
def bounce(f, out):
    """What would come from within a wall is what went into it."""
    j = cuda.grid(1)
    rows, columns = f.shape[1:]
    if j < columns:
        for q in range(9):
            if CY[q] == 1:
                out[q, 0, j] = f[OPPOSITE[q], 0, j]
            if CY[q] == -1:
                out[q, rows - 1, j] = f[OPPOSITE[q], rows - 1, j]


def step(f: Any, push: Any) -> Any:
    """The streams after a time step, and the density and velocity before it.

    Parameters
    ----------
    f : array
        The nine streams, float32[9, rows, columns].
    push : float
        Force along the plates, a cell.

    Returns
    -------
    tuple of array
        Streams; density, u and v, float32[rows, columns].
    """
    _, rows, columns = f.shape
    grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]))
    density, u, v = (gj.empty((rows, columns), f.dtype) for _ in range(3))
    collided, streamed = gj.empty_like(f), gj.empty_like(f)
    macroscopic[grid, BLOCK](f, push, density, u, v)
    collide[grid, BLOCK](f, density, u, v, push, collided)
    stream[grid, BLOCK](collided, streamed)
    bounce[-(-columns // 128), 128](collided, streamed)
    return streamed, density, u, v


@gj.graphed(static_argnames="steps")
def run(f: Any, push: Any, steps: int) -> Any:
    """The streams after so many steps, and their velocity along the plates one step before."""
    f = gj.fori_loop(0, steps - 1, lambda _, f: step(f, push)[0], f)
    f, _, u, _ = step(f, push)
    return f, u


def at_rest(rows: int, columns: int) -> Any:
    """The streams of a fluid that doesn't move."""
    return np.repeat(np.array(WEIGHTS, np.float32), rows * columns).reshape(9, rows, columns)


def profile(rows: int, steps: float, push: float) -> Any:
    """The exact velocity in each row after so many steps from rest, in cells a step.

    Parameters
    ----------
    rows : int
        Cells from wall to wall.
    steps : float
        Time; infinity for Poiseuille's parabola.
    push : float
        Force along the plates, a cell.

    Returns
    -------
    numpy.ndarray
        float64[rows].
    """
    y = np.arange(rows) + 0.5
    steady = push / (2 * VISCOSITY) * y * (rows - y)
    k = np.arange(1, 400, 2)[:, None] * np.pi / rows
    amounts = 4 * push / (VISCOSITY * rows) / k**3
    return steady - (amounts * np.exp(-VISCOSITY * k**2 * steps) * np.sin(k * y)).sum(0)


def benchmark_step(n: int) -> tuple[Any, tuple[Any, ...], int]:
    """The step, its arguments for n x n cells, and the bytes that it must at least move."""
    f = at_rest(n, n)
    return step, (f, push_for(n)), 2 * f.nbytes + 3 * f[0].nbytes


def push_for(rows: int) -> Any:
    """The force that ends in a flow of a twentieth of a cell a step in the middle."""
    return np.float32(0.05 * 8 * VISCOSITY / rows**2)


def main(steps: int = 4000, size: int = 128, out: str | Path = "out/flow.png") -> Any:
    """Let the flow start, print what it took, and draw its profile.

    Parameters
    ----------
    steps : int
        Time steps.
    size : int
        Cells along each side.
    out : path
        The picture to write; its folder is made.

    Returns
    -------
    numpy.ndarray
        The velocity along the plates before the last step, float32[size, size], in cells a step.
    """
    f, push = gj.array(at_rest(size, size)), push_for(size)
    compiled = run.lower(f, push, steps=steps).compile()
    start = time.perf_counter()
    f, u = compiled(f, push, steps=steps)
    u = u.copy_to_host()
    seconds = time.perf_counter() - start
    exact = profile(size, steps - 1, float(push))
    print(f"backend   {gj.default_device()}")
    print(f"steps     {steps} on {size} x {size} cells, float32, with one launch")
    print(f"time      {seconds / steps * 1e6:.1f} us a step, {seconds:.2f} s in all")
    print(f"error     {abs(u - exact[:, None]).max() / exact.max():.1e} of the fastest")
    draw(u, exact, profile(size, math.inf, float(push)), steps, Path(out))
    print(f"picture   {out}")
    return u


def draw(u: Any, exact: Any, steady: Any, steps: int, out: Path) -> None:
    """Draw the profile between the plates."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    y = np.arange(len(exact)) + 0.5
    ax.plot(steady, y, color="0.6", label="in the end (Poiseuille)")
    ax.plot(exact, y, label=f"exact, after {steps} steps")
    ax.plot(u[:, 0], y, "k.", markersize=4, label="lattice Boltzmann")
    ax.set_xlabel("velocity (cells a step)")
    ax.set_ylabel("distance from the lower plate (cells)")
    ax.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("out/flow.png"))
    options = parser.parse_args()
    main(options.steps, options.size, options.out)
