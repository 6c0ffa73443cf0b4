"""Orbits round Earth and Moon: Runge-Kutta steps that the device sizes, with one launch.

A satellite in the plane in which the Earth and the Moon circle each other, and which turns with
them (the restricted three-body problem). R. F. Arenstorf found orbits that close ("Periodic
solutions of the restricted three body problem representing analytic continuations of Keplerian
elliptic motions", American Journal of Mathematics 85, 1963); this one passes close by the Moon,
where steps must be hundreds of times shorter than elsewhere. Its numbers are those of E. Hairer,
S. P. Nørsett and G. Wanner, "Solving Ordinary Differential Equations I", II.0. With it fly
satellites that set out a little slower or faster, all with the same steps.

The method is the pair of orders 5 and 4 of J. R. Dormand and P. J. Prince ("A family of embedded
Runge-Kutta formulae", Journal of Computational and Applied Mathematics 6, 1980). The steps are a
`while_loop`; in it a `cond` accepts or rejects each, so that the host waits for none.

    python examples/adaptive_ode.py [--satellites 9] [--tolerance 1e-9] [--out out/orbits.png]

runs it on the GPU where there is one, and else on the CPU.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numba import cuda
from scipy.integrate import solve_ivp

import graphjit as gj
from graphjit import kernels

# Lengths in distances of Earth and Moon, times in months over 2 pi, masses in those of both.
MOON = 0.012277471
PERIOD = 17.0652165601579625588917206249
START = (0.994, 0.0, 0.0, -2.00158510637908252240537862224)  # x, y and their velocities
BLOCK = 64
FIRST_STEP = np.float64(0.01)  # as NumPy's functions make the later ones
ATTEMPTS = 10_000

# Row i: how the slopes before the i-th make the point at which that is taken.
TABLE = np.zeros((7, 7))
TABLE[1, :1] = 1 / 5
TABLE[2, :2] = 3 / 40, 9 / 40
TABLE[3, :3] = 44 / 45, -56 / 15, 32 / 9
TABLE[4, :4] = 19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729
TABLE[5, :5] = 9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656
TABLE[6, :6] = 35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84
# The solution of order 5, which is the last row's point, minus the one of order 4.
DIFFERENCE = np.array((71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40))


@cuda.jit(device=True)
def acceleration(x, y, u, v):
    """Pull of Earth and Moon, and what turning with them adds."""
    earth = (1 - MOON) / ((x + MOON) ** 2 + y**2) ** 1.5
    moon = MOON / ((x - 1 + MOON) ** 2 + y**2) ** 1.5
    return (
        x + 2 * v - earth * (x + MOON) - moon * (x - 1 + MOON),
        y - 2 * u - (earth + moon) * y,
    )


@cuda.jit
def stage(state, slopes, step, row, point):
    """Go to the point that a row of the table says, and take the slope there."""
    i = cuda.grid(1)
    if i < state.shape[1]:
        for c in range(4):
            slope = 0.0
            for k in range(row):
                slope += TABLE[row, k] * slopes[k, c, i]
            point[c, i] = state[c, i] + step * slope
        u, v = point[2, i], point[3, i]
        slopes[row, 0, i], slopes[row, 1, i] = u, v
        slopes[row, 2, i], slopes[row, 3, i] = acceleration(point[0, i], point[1, i], u, v)


@cuda.jit
def misfit(state, point, slopes, step, tolerance, errors):
    """Estimate each satellite's error: at most 1 is allowed."""
    i = cuda.grid(1)
    if i < state.shape[1]:
        worst = 0.0
        for c in range(4):
            error = 0.0
            for k in range(7):
                error += DIFFERENCE[k] * slopes[k, c, i]
            size = max(abs(state[c, i]), abs(point[c, i]))
            worst = max(worst, abs(step * error) / (tolerance * (1 + size)))
        errors[i] = worst


class Flight(NamedTuple):
    """What a step hands to the next; all but the arrays are numbers that the device keeps."""

    time: Any
    step: Any
    state: Any
    slope: Any
    accepted: Any
    rejected: Any


@gj.graphed(static_argnames="attempts")
def fly(state: Any, end: float, tolerance: float, attempts: int) -> Any:
    """Follow the satellites from time 0.

    Parameters
    ----------
    state : Array
        Places and velocities, float64[4, satellites].
    end : float
        The time to end at.
    tolerance : float
        Error allowed of a step, relative to 1 plus each place and velocity.
    attempts : int
        The most steps to try.

    Returns
    -------
    state : Array
        Places and velocities at the end.
    time, accepted, rejected : Array
        The time reached, which is `end` unless the attempts didn't suffice, and the steps taken.
    times, path : Array
        When and where each accepted step led, float64[attempts] and float64[attempts, 4,
        satellites]; beyond the accepted ones lies nothing of use.
    """
    satellites = state.shape[1]
    grid = -(-satellites // BLOCK)
    times, path = gj.empty(attempts), gj.empty((attempts, *state.shape))

    def attempt(flight: Flight) -> Flight:
        step = np.minimum(flight.step, end - flight.time)
        slopes, point = gj.empty((7, *state.shape)), gj.empty_like(state)
        errors = gj.empty(satellites)
        slopes[0] = flight.slope
        for row in range(1, 7):
            stage[grid, BLOCK](flight.state, slopes, step, row, point)
        misfit[grid, BLOCK](flight.state, point, slopes, step, tolerance, errors)
        error = kernels.reduce_max(errors).item()
        change = 0.9 * np.maximum(error, 1e-10) ** -0.2

        def accept() -> Flight:
            times[flight.accepted] = flight.time + step
            path[flight.accepted] = point
            longer = step * np.minimum(change, 5.0)
            return Flight(
                flight.time + step, longer, point, slopes[6], flight.accepted + 1, flight.rejected
            )

        def reject() -> Flight:
            shorter = step * np.maximum(change, 0.2)
            return flight._replace(step=shorter, rejected=flight.rejected + 1)

        return gj.cond(error <= 1, accept, reject)

    slopes, point = gj.empty((1, *state.shape)), gj.empty_like(state)
    stage[grid, BLOCK](state, slopes, 0.0, 0, point)
    last = gj.while_loop(
        lambda flight: flight.time < end,
        attempt,
        Flight(np.float64(0), FIRST_STEP, state, slopes[0], 0, 0),
        max_iterations=attempts,
    )
    return last.state, last.time, last.accepted, last.rejected, times, path


def at_start(satellites: int, spread: float) -> Any:
    """States at time 0, float64[4, satellites]; the middle one is Arenstorf's."""
    states = np.repeat(np.array(START)[:, None], satellites, axis=1)
    states[3] *= 1 + spread * (np.arange(satellites) - satellites // 2)
    return states


def reference(states: Any, end: float) -> Any:
    """SciPy's solution of order 8 with tight tolerances, each satellite with steps of its own."""

    def slope(_: float, state: Any) -> Any:
        return (*state[2:], *acceleration.py_func(*state))

    tight = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12}
    return np.transpose([solve_ivp(slope, (0, end), s, **tight).y[:, -1] for s in states.T])


@dataclass(frozen=True)
class Result:
    """What `main` found: the steps, where they led, and how far that is from the reference."""

    times: np.ndarray[Any, np.dtype[np.float64]]
    path: np.ndarray[Any, np.dtype[np.float64]]
    rejected: int
    error: float
    gap: float


def main(
    satellites: int = 9,
    tolerance: float = 1e-9,
    spread: float = 1e-4,
    out: str | Path = "out/orbits.png",
) -> Result:
    """Follow the satellites for one period, print what it took, and draw their orbits.

    Parameters
    ----------
    satellites : int
        How many there are.
    tolerance : float
        The error that a step may have.
    spread : float
        By what part of it each sets out slower than the one before.
    out : path
        The picture to write; its folder is made.

    Returns
    -------
    Result
    """
    states = at_start(satellites, spread)
    state = gj.array(states)
    start = time.perf_counter()
    compiled = fly.lower(state, PERIOD, tolerance, attempts=ATTEMPTS).compile()
    built = time.perf_counter()
    last, _, accepted, rejected, times, path = compiled(state, PERIOD, tolerance, attempts=ATTEMPTS)
    last.block_until_ready()
    seconds = time.perf_counter() - built
    steps, found = int(accepted.item()), last.copy_to_host()
    expected = reference(states, PERIOD)
    result = Result(
        np.concatenate([[0.0], times.copy_to_host()[:steps]]),
        np.concatenate([states[None], path.copy_to_host()[:steps]]),
        int(rejected.item()),
        float(abs(found - expected)[:2].max()),
        float(np.hypot(*(found - states)[:2, satellites // 2])),
    )
    each = np.diff(result.times)
    print(f"backend   {gj.default_device()}")
    print(f"flight    {satellites} satellites for {result.times[-1]:.6f} of {PERIOD:.6f}")
    print(f"steps     {steps} accepted and {result.rejected} rejected, with one launch")
    print(f"lengths   {each.min():.1e} to {each.max():.1e}")
    print(f"error     {result.error:.1e} of SciPy's DOP853, {result.gap:.1e} from a closed orbit")
    taken = seconds / (steps + result.rejected)
    print(f"time      {taken * 1e6:.1f} us a step, {seconds * 1e3:.2f} ms in all")
    print(f"compiled  in {built - start:.2f} s")
    draw(result, Path(out))
    print(f"picture   {out}")
    return result


def draw(result: Result, out: Path) -> None:
    """Draw the orbits, and how long the steps were."""
    figure = Figure(figsize=(13, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    plane, lengths = figure.subplots(1, 2)
    satellites = result.path.shape[2]
    for i in range(satellites):
        middle = i == satellites // 2
        color, width = ("black", 1.6) if middle else ("tab:blue", 0.6)
        label = "closed" if middle else None
        plane.plot(*result.path[:, :2, i].T, color=color, lw=width, zorder=2 + middle, label=label)
    for place, name in ((-MOON, "Earth"), (1 - MOON, "Moon")):
        plane.plot(place, 0, "o", label=name)
    plane.set(title="Orbits in the plane that turns with the Moon", xlabel="x", ylabel="y")
    plane.set_aspect("equal")
    plane.legend()
    lengths.semilogy(result.times[1:], np.diff(result.times), ".", ms=3)
    lengths.set(title=f"{len(result.times) - 1} steps", xlabel="time", ylabel="length")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--satellites", type=int, default=9)
    parser.add_argument("--tolerance", type=float, default=1e-9)
    parser.add_argument("--out", type=Path, default=Path("out/orbits.png"))
    options = parser.parse_args()
    main(options.satellites, options.tolerance, out=options.out)
