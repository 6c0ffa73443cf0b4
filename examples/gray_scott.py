"""Gray-Scott reaction and diffusion: ten thousand steps and eight pictures with one launch.

Two substances on a plate: u is fed, v eats u to make more of itself and decays. Spots of v grow,
divide and crowd each other (J. E. Pearson, "Complex patterns in a simple system", Science 261,
1993). The steps are a `fori_loop` in a `scan` that keeps v as it is after every 1250 of them.

    python examples/gray_scott.py [--steps 10000] [--size 192] [--out out/gray_scott.png]

runs it on the GPU where there is one, and else on the CPU.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numba import cuda

import graphjit as gj

# Diffusion of u and v in cells^2 a step (a fifth and a tenth); what is fed and what decays a step.
SPREAD_U, SPREAD_V = np.float32(0.2), np.float32(0.1)
FEED, KILL = np.float32(0.0367), np.float32(0.0649)
SNAPSHOTS = 8
BLOCK = (32, 8)


@cuda.jit
def react(u, v, feed, kill, next_u, next_v):
    """One explicit step of length 1; what leaves the plate on one side enters on the other."""
    j, i = cuda.grid(2)
    rows, columns = u.shape
    if i < rows and j < columns:
        north, south = (i + rows - 1) % rows, (i + 1) % rows
        west, east = (j + columns - 1) % columns, (j + 1) % columns
        a, b = u[i, j], v[i, j]
        around_u = u[north, j] + u[south, j] + u[i, west] + u[i, east]
        around_v = v[north, j] + v[south, j] + v[i, west] + v[i, east]
        eaten = a * b * b
        next_u[i, j] = a + SPREAD_U * (around_u - 4 * a) - eaten + feed * (1 - a)
        next_v[i, j] = b + SPREAD_V * (around_v - 4 * b) + eaten - (feed + kill) * b


@gj.graphed(static_argnames=("steps", "snapshots"))
def grow(u: Any, v: Any, feed: Any, kill: Any, steps: int, snapshots: int) -> Any:
    """The plate after so many steps, so many times, and v at each of them."""
    rows, columns = u.shape
    grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]))

    def step(_: Any, plate: Any) -> Any:
        u, v = plate
        next_u, next_v = gj.empty_like(u), gj.empty_like(v)
        react[grid, BLOCK](u, v, feed, kill, next_u, next_v)
        return next_u, next_v

    def picture(plate: Any, _: None) -> Any:
        plate = gj.fori_loop(0, steps, step, plate)
        return plate, plate[1]

    return gj.scan(picture, (u, v), length=snapshots)


def seeded(size: int) -> tuple[Any, Any]:
    """A plate full of u, with twelve squares in which half of it is v."""
    u, v = np.ones((size, size), np.float32), np.zeros((size, size), np.float32)
    random = np.random.default_rng(1)
    for _ in range(12):
        i, j = random.integers(0, size, 2)
        rows, columns = np.arange(i, i + size // 16) % size, np.arange(j, j + size // 16) % size
        u[np.ix_(rows, columns)], v[np.ix_(rows, columns)] = 0.5, 0.5
    return u, v


def main(steps: int = 10_000, size: int = 192, out: str | Path = "out/gray_scott.png") -> Any:
    """Let the spots grow, print what it took, and draw them.

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
        v after each eighth of the steps, float32[8, size, size].
    """
    each = -(-steps // SNAPSHOTS)
    u, v = (gj.array(host) for host in seeded(size))
    start = time.perf_counter()
    compiled = grow.lower(u, v, FEED, KILL, steps=each, snapshots=SNAPSHOTS).compile()
    built = time.perf_counter()
    _, pictures = compiled(u, v, FEED, KILL, steps=each, snapshots=SNAPSHOTS)
    pictures.block_until_ready()
    seconds = time.perf_counter() - built
    print(f"backend   {gj.default_device()}")
    print(f"steps     {each * SNAPSHOTS} on {size} x {size} cells, float32, with one launch")
    print(f"time      {seconds / (each * SNAPSHOTS) * 1e6:.1f} us a step, {seconds:.2f} s in all")
    print(f"compiled  in {built - start:.2f} s")
    found = pictures.copy_to_host()
    draw(found, each, Path(out))
    print(f"picture   {out}")
    return found


def draw(pictures: Any, each: int, out: Path) -> None:
    """Draw v at each of the pictures."""
    figure = Figure(figsize=(13, 6.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, SNAPSHOTS // 2)
    for index, ax in enumerate(axes.flat):
        image = ax.imshow(pictures[index], cmap="magma", vmin=0, vmax=0.4)
        ax.set_title(f"{(index + 1) * each} steps")
        ax.set_axis_off()
    figure.colorbar(image, ax=axes, label="v", shrink=0.8)
    figure.suptitle(f"Gray-Scott, fed {FEED:.4f} and losing {KILL:.4f} a step")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--out", type=Path, default=Path("out/gray_scott.png"))
    options = parser.parse_args()
    main(options.steps, options.size, options.out)
