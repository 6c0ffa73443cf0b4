"""Shallow water in a turning basin: a hill of water collapses, and its waves meet the walls.

Depth and momentum obey the shallow-water equations with the Coriolis force and a drag at the bed
(A. E. Gill, "Atmosphere-Ocean Dynamics", 1982, chapter 7). Each step is five kernels: the fluxes
through the faces in x and in y (V. V. Rusanov's, 1961), the sources, the update, and the walls.
No water gets lost: what leaves one cell enters the next.

    python examples/shallow_water.py [--steps 1200] [--size 256] [--out out/shallow_water.png]

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
from numba import cuda

import graphjit as gj

GRAVITY = 9.81  # m / s^2
CORIOLIS = 1e-4  # 1 / s: twice the Earth's rotation, at 43 degrees north
DRAG = 1e-6  # 1 / s
DEPTH, HILL = 100.0, 5.0  # m, of the water at rest and of what stands on it
CELL = 2000.0  # m
SNAPSHOTS = 4
BLOCK = (32, 8)


@cuda.jit(device=True, inline="always")
def through_face(h, along, across, next_h, next_along, next_across):
    """What flows through a face from one cell into the next: water and both its momenta."""
    speed, next_speed = along / h, next_along / next_h
    fastest = max(
        abs(speed) + math.sqrt(GRAVITY * h), abs(next_speed) + math.sqrt(GRAVITY * next_h)
    )
    push = along * speed + 0.5 * GRAVITY * h * h
    next_push = next_along * next_speed + 0.5 * GRAVITY * next_h * next_h
    carried, next_carried = across * speed, next_across * next_speed
    return (
        0.5 * (along + next_along - fastest * (next_h - h)),
        0.5 * (push + next_push - fastest * (next_along - along)),
        0.5 * (carried + next_carried - fastest * (next_across - across)),
    )


@cuda.jit
def flux_x(h, hu, hv, flow_h, flow_hu, flow_hv):
    """Through the face between a cell and its neighbour to the right."""
    j, i = cuda.grid(2)
    if i < h.shape[0] and j < h.shape[1] - 1:
        flow_h[i, j], flow_hu[i, j], flow_hv[i, j] = through_face(
            h[i, j], hu[i, j], hv[i, j], h[i, j + 1], hu[i, j + 1], hv[i, j + 1]
        )


@cuda.jit
def flux_y(h, hu, hv, flow_h, flow_hu, flow_hv):
    """Through the face between a cell and its neighbour above."""
    j, i = cuda.grid(2)
    if i < h.shape[0] - 1 and j < h.shape[1]:
        flow_h[i, j], flow_hv[i, j], flow_hu[i, j] = through_face(
            h[i, j], hv[i, j], hu[i, j], h[i + 1, j], hv[i + 1, j], hu[i + 1, j]
        )


@cuda.jit
def sources(hu, hv, source_hu, source_hv):
    """What the turning and the bed do to the momentum."""
    j, i = cuda.grid(2)
    if i < hu.shape[0] and j < hu.shape[1]:
        source_hu[i, j] = CORIOLIS * hv[i, j] - DRAG * hu[i, j]
        source_hv[i, j] = -CORIOLIS * hu[i, j] - DRAG * hv[i, j]


@cuda.jit
def update(field, flow_x, flow_y, source, share, dt, new):
    """A field after a step: less what flows out, more what flows in, and its source."""
    j, i = cuda.grid(2)
    if 0 < i < field.shape[0] - 1 and 0 < j < field.shape[1] - 1:
        out = flow_x[i, j] - flow_x[i, j - 1] + flow_y[i, j] - flow_y[i - 1, j]
        new[i, j] = field[i, j] - share * out + dt * source[i, j]


@cuda.jit
def walls(h, hu, hv):
    """The frame of cells around the basin mirrors it, so that nothing flows through the walls."""
    k = cuda.grid(1)
    rows, columns = h.shape
    if k < columns:
        near = min(max(k, 1), columns - 2)  # corners mirror the corners of the basin
        for edge, inside in ((0, 1), (rows - 1, rows - 2)):
            h[edge, k] = h[inside, near]
            hu[edge, k], hv[edge, k] = hu[inside, near], -hv[inside, near]
    if 0 < k < rows - 1:
        for edge, inside in ((0, 1), (columns - 1, columns - 2)):
            h[k, edge], hu[k, edge], hv[k, edge] = h[k, inside], -hu[k, inside], hv[k, inside]


def step(h: Any, hu: Any, hv: Any, still: Any, dt: Any) -> Any:
    """Depth and momenta after a time step.

    Parameters
    ----------
    h, hu, hv : array
        Depth (m) and momenta (m^2 / s), float64[rows, columns] with a frame of cells around.
    still : array
        Zeros of the same shape: no water springs from the bed.
    dt : float
        Time step, s.

    Returns
    -------
    tuple of array
    """
    rows, columns = h.shape
    grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]))
    flows_x = tuple(gj.empty_like(h) for _ in range(3))
    flows_y = tuple(gj.empty_like(h) for _ in range(3))
    source_hu, source_hv = gj.empty_like(h), gj.empty_like(h)
    flux_x[grid, BLOCK](h, hu, hv, *flows_x)
    flux_y[grid, BLOCK](h, hu, hv, *flows_y)
    sources[grid, BLOCK](hu, hv, source_hu, source_hv)
    new = tuple(gj.empty_like(h) for _ in range(3))
    for field, flow_x, flow_y, source, made in zip(
        (h, hu, hv), flows_x, flows_y, (still, source_hu, source_hv), new, strict=True
    ):
        update[grid, BLOCK](field, flow_x, flow_y, source, dt / CELL, dt, made)
    walls[-(-max(rows, columns) // 128), 128](*new)
    return new


@gj.graphed(static_argnames="steps")
def run(h: Any, hu: Any, hv: Any, still: Any, dt: Any, steps: int) -> Any:
    """Depth and momenta after so many steps."""
    return gj.fori_loop(0, steps, lambda _, state: step(*state, still, dt), (h, hu, hv))


def at_start(rows: int, columns: int) -> tuple[Any, Any, Any]:
    """Water at rest with a round hill on it, off the middle, and a frame of cells around."""
    y, x = np.mgrid[-1 : rows + 1, -1 : columns + 1] + 0.5
    y, x = np.clip(y, 0.5, rows - 0.5), np.clip(x, 0.5, columns - 0.5)
    distance = np.hypot(x - 0.4 * columns, y - 0.45 * rows) / (0.1 * min(rows, columns))
    h = DEPTH + HILL * np.exp(-(distance**2))
    return h, np.zeros_like(h), np.zeros_like(h)


def time_step() -> float:
    """A time step (s) in which no wave crosses more than 0.4 of a cell."""
    return 0.4 * CELL / (math.sqrt(GRAVITY * (DEPTH + HILL)) + 2)


def water(h: Any) -> float:
    """The water in the basin, in m of depth summed over its cells."""
    return math.fsum(h[1:-1, 1:-1].ravel())


def benchmark_step(n: int) -> tuple[Any, tuple[Any, ...], int]:
    """The step, its arguments for n x n cells, and the bytes that it must at least move."""
    state = at_start(n, n)
    arguments = (*state, np.zeros_like(state[0]), time_step())
    return step, arguments, 6 * state[0].nbytes


def main(steps: int = 1200, size: int = 256, out: str | Path = "out/shallow_water.png") -> Any:
    """Let the hill collapse, print what it took, and draw the water.

    Parameters
    ----------
    steps : int
        Time steps, rounded up to a multiple of the number of pictures.
    size : int
        Cells along each side.
    out : path
        The picture to write; its folder is made.

    Returns
    -------
    numpy.ndarray
        The depth at the start and after each quarter of the steps, float64[5, size, size], m.
    """
    each, dt = -(-steps // SNAPSHOTS), time_step()
    state = tuple(map(gj.array, at_start(size, size)))
    still = gj.zeros_like(state[0])
    depths = [state[0].copy_to_host()]
    compiled = run.lower(*state, still, dt, steps=each).compile()
    start = time.perf_counter()
    for _ in range(SNAPSHOTS):
        state = compiled(*state, still, dt, steps=each)
        depths.append(state[0].copy_to_host())
    seconds = time.perf_counter() - start
    lost = max(abs(water(h) / water(depths[0]) - 1) for h in depths)
    taken = each * SNAPSHOTS
    print(f"backend   {gj.default_device()}")
    print(f"steps     {taken} of {dt:.1f} s on {size} x {size} cells, float64")
    print(f"time      {seconds / taken * 1e6:.1f} us a step, {seconds:.2f} s in all")
    print(f"water     {lost:.1e} of it lost or won")
    draw(depths, each * dt, Path(out))
    print(f"picture   {out}")
    return np.stack(depths)[:, 1:-1, 1:-1]


def draw(depths: Any, between: float, out: Path) -> None:
    """Draw how far the water stands above its rest."""
    figure = Figure(figsize=(16, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(depths))
    for index, ax in enumerate(axes.flat):
        above = depths[index][1:-1, 1:-1] - DEPTH
        side = above.shape[1] * CELL / 1000
        image = ax.imshow(
            above, cmap="RdBu_r", vmin=-1, vmax=1, origin="lower", extent=(0, side, 0, side)
        )
        ax.set_title(f"{index * between / 60:.0f} min")
        ax.set_xlabel("km")
    figure.colorbar(image, ax=axes, label="above rest (m)", shrink=0.8)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path("out/shallow_water.png"))
    options = parser.parse_args()
    main(options.steps, options.size, options.out)
