"""Hillslope diffusion: a measured landscape worn down by soil creep, ten steps a graph replay.

The landscape is the elevation model that matplotlib ships as sample data
(`jacksboro_fault_dem.npz`): 344 x 403 cells of 3 arc seconds around the Jacksboro fault, Tennessee,
measured by radar in the Shuttle Radar Topography Mission (NASA, NGA, USGS). Soil creeps downhill in
proportion to the slope, so that the height z obeys dz/dt = D laplace(z) (W. E. H. Culling,
"Analytical theory of erosion", Journal of Geology, 1960). No soil crosses the borders: the total is
conserved, and how far it drifts is the rounding error.

    python examples/heat.py [--steps 3000] [--out out/heat.png]

runs it on the GPU where there is one, and else on the CPU.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import get_sample_data
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LightSource, ListedColormap, Normalize
from matplotlib.figure import Figure
from numba import cuda
from tqdm import tqdm

import graphjit as gj

DIFFUSIVITY = 0.01  # m^2 a year, of soil-mantled hillslopes in a humid climate
STEPS_PER_CALL = 10
BLOCK = (32, 8)
METRES_PER_DEGREE = 111_200.0


@cuda.jit
def creep(z, east, south, kx, ky):
    """Soil that crosses each cell's eastern and southern edge in one time step, in metres."""
    j, i = cuda.grid(2)
    rows, columns = z.shape
    if i < rows and j < columns:
        east[i, j] = kx * (z[i, j] - z[i, j + 1]) if j + 1 < columns else 0.0
        south[i, j] = ky * (z[i, j] - z[i + 1, j]) if i + 1 < rows else 0.0


@cuda.jit
def settle(z, east, south, out):
    """Add what came in through the four edges and take away what went out."""
    j, i = cuda.grid(2)
    rows, columns = z.shape
    if i < rows and j < columns:
        change = -east[i, j] - south[i, j]
        if j > 0:
            change += east[i, j - 1]
        if i > 0:
            change += south[i - 1, j]
        out[i, j] = z[i, j] + change


def advance(z: Any, kx: float, ky: float) -> Any:
    """Take ten time steps: twenty launches."""
    rows, columns = z.shape
    grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]))
    for _ in range(STEPS_PER_CALL):
        east, south, out = gj.empty_like(z), gj.empty_like(z), gj.empty_like(z)
        creep[grid, BLOCK](z, east, south, kx, ky)
        settle[grid, BLOCK](z, east, south, out)
        z = out
    return z


step = gj.graphed(advance)


@dataclass(frozen=True)
class Terrain:
    """Heights in metres, north up and west left, and the sides of a cell in metres."""

    height: np.ndarray[Any, np.dtype[np.float64]]
    dx: float
    dy: float

    @classmethod
    def jacksboro(cls) -> Terrain:
        """The elevation model that matplotlib ships."""
        with get_sample_data("jacksboro_fault_dem.npz") as dem:
            latitude = np.radians((dem["ymin"] + dem["ymax"]) / 2)
            return cls(
                dem["elevation"].astype(np.float64),
                float(METRES_PER_DEGREE * dem["dx"] * np.cos(latitude)),
                float(METRES_PER_DEGREE * dem["dy"]),
            )

    @property
    def time_step(self) -> float:
        """Years: a 25th of the longest step at which the explicit scheme is stable."""
        return 0.04 * 0.5 / (DIFFUSIVITY * (self.dx**-2 + self.dy**-2))


@dataclass(frozen=True)
class Result:
    """What `main` found: the landscapes, the years between them, and seconds per time step."""

    before: Terrain
    after: Terrain
    years: float
    seconds_per_step: float
    speedup: float
    drift: float


def main(steps: int = 3000, out: str | Path = "out/heat.png") -> Result:
    """Wear the landscape down, print what it took, and draw it.

    Parameters
    ----------
    steps : int
        Time steps, rounded up to a multiple of ten.
    out : path
        The picture to write; its folder is made.

    Returns
    -------
    Result
    """
    before = Terrain.jacksboro()
    calls = -(-steps // STEPS_PER_CALL)
    steps = calls * STEPS_PER_CALL
    dt = before.time_step
    kx, ky = DIFFUSIVITY * dt / before.dx**2, DIFFUSIVITY * dt / before.dy**2
    rows, columns = before.height.shape
    print(f"backend   {gj.default_device()}")
    print(f"grid      {rows} x {columns} cells of {before.dy:.1f} x {before.dx:.1f} m, float64")
    print(f"steps     {steps} of {dt:,.0f} years: {steps * dt / 1e6:.1f} million years")

    z = gj.array(before.height)
    step(z, kx, ky).block_until_ready()  # traces and compiles
    start = time.perf_counter()
    for _ in tqdm(range(calls), unit=" calls", disable=None):
        z = step(z, kx, ky)
    z.block_until_ready()
    seconds = (time.perf_counter() - start) / steps
    after = Terrain(z.copy_to_host(), before.dx, before.dy)
    graphed, eager = time_both(z, kx, ky)

    total = [float(t.height.sum()) * t.dx * t.dy / 1e9 for t in (before, after)]
    # Summed exactly: the sums themselves agree to the last digit.
    lost = math.fsum(np.concatenate([after.height.ravel(), -before.height.ravel()]))
    drift = abs(lost) / before.height.sum()
    print(f"time      {seconds * 1e6:.1f} us a step, {seconds * steps:.2f} s in all")
    print(
        f"speed-up  {eager / graphed:.1f}x over launching the same kernels one by one "
        f"(in turns, waiting for each call: {eager * 1e6:.1f} against {graphed * 1e6:.1f} us)"
    )
    print(f"volume    {total[0]:.6f} km^3 before, {total[1]:.6f} after: drift {drift:.1e}")
    result = Result(before, after, steps * dt, seconds, eager / graphed, drift)
    draw(result, Path(out))
    print(f"picture   {out}")
    return result


def time_both(z: Any, kx: float, ky: float, rounds: int = 25) -> tuple[float, float]:
    """Median seconds a time step takes, replayed and launched eagerly, in turns."""
    seconds: dict[Any, list[float]] = {step: [], advance: []}
    advance(z, kx, ky).block_until_ready()
    for _ in range(rounds):
        for function, taken in seconds.items():
            start = time.perf_counter()
            function(z, kx, ky).block_until_ready()
            taken.append((time.perf_counter() - start) / STEPS_PER_CALL)
    return statistics.median(seconds[step]), statistics.median(seconds[advance])


def draw(result: Result, out: Path) -> None:
    """Draw the landscape before and after, hillshaded, and what was worn away and filled up."""
    before, after = result.before, result.after
    change = after.height - before.height
    figure = Figure(figsize=(15, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3, sharex=True, sharey=True)
    rows, columns = before.height.shape
    extent = (0, columns * before.dx / 1e3, 0, rows * before.dy / 1e3)
    sun = LightSource(azdeg=315, altdeg=45)
    shading = {"vert_exag": 4, "dx": before.dx, "dy": before.dy}

    land = ListedColormap(colormaps["gist_earth"](np.linspace(0.35, 0.98, 256)))  # without the sea
    heights = ScalarMappable(Normalize(before.height.min(), before.height.max()), land)
    for ax, terrain, title in zip(
        axes,
        (before, after),
        ("Measured", f"After {result.years / 1e6:.0f} million years"),
        strict=False,
    ):
        picture = sun.shade(
            terrain.height, cmap=heights.cmap, norm=heights.norm, blend_mode="soft", **shading
        )
        ax.imshow(picture, extent=extent)
        ax.set_title(title)
    figure.colorbar(heights, ax=axes[:2], label="Height (m)", shrink=0.8, aspect=30)

    limit = np.quantile(abs(change), 0.998)
    difference = axes[2].imshow(change, extent=extent, cmap="RdBu", vmin=-limit, vmax=limit)
    axes[2].set_title("Difference")
    figure.colorbar(
        difference,
        ax=axes[2],
        label="Worn away (red) and filled up (blue) (m)",
        extend="both",
        shrink=0.8,
        aspect=30,
    )
    for ax in axes:
        ax.set_xlabel("East (km)")
    axes[0].set_ylabel("North (km)")
    figure.suptitle(
        f"Soil creep at the Jacksboro fault, Tennessee (D = {DIFFUSIVITY} m²/year, no flux across "
        "the borders)"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("out/heat.png"))
    options = parser.parse_args()
    main(options.steps, options.out)
