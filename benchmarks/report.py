"""Interleaved timing, and the table, JSON and exit status of a benchmark."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import graphjit

ROOT = Path(__file__).parent.parent
# Thread pools spin for a while before they sleep, and would take the next contestant's cores.
# Seconds. OpenMP's threads spin for some 10 ms after their last loop.
_PAUSE = 0.03
_WARM = 0.02


@dataclass(frozen=True)
class Time:
    """Seconds of one call: the median sample and the least one.

    On a machine that others use too, the median can be theirs; the least sample is the one that
    was disturbed the least.
    """

    median: float
    least: float

    def __mul__(self, factor: float) -> Time:
        return Time(self.median * factor, self.least * factor)

    def __sub__(self, other: Time) -> Time:
        return Time(self.median - other.median, self.least - other.least)


@dataclass(frozen=True)
class Row:
    """One measurement: graphjit's figure, what it is compared with, and the target.

    A target is met when both the medians and the least samples meet it, so that a disturbance of
    what graphjit is compared with can't meet it.

    Parameters
    ----------
    name : str
        What is measured.
    value : Time
        graphjit's time, in `unit`.
    unit : str
        Unit of `value` and `reference`.
    reference : Time, optional
        Time of what it is compared with, in the same run.
    against : str
        What that is.
    limit : float, optional
        Largest acceptable ratio to the reference, or value where there is no reference.
    faster_by : float, optional
        Smallest acceptable ratio of the reference to the value.
    """

    name: str
    value: Time
    unit: str
    reference: Time | None = None
    against: str = ""
    limit: float | None = None
    faster_by: float | None = None

    @property
    def ratio(self) -> Time | None:
        """The value over the reference, for the medians and for the least samples."""
        if self.reference is None:
            return None
        return Time(
            self.value.median / self.reference.median, self.value.least / self.reference.least
        )

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        compared = self.ratio or self.value
        worst = max(compared.median, compared.least)
        if self.faster_by is not None:
            return worst * self.faster_by <= 1
        return None if self.limit is None else worst <= self.limit

    @property
    def target(self) -> str:
        """The target in words."""
        if self.faster_by is not None:
            return f">= {self.faster_by:g}x faster"
        if self.limit is None:
            return ""
        return f"<= {self.limit:g}" + ("x" if self.reference else f" {self.unit}")


def interleaved(
    contestants: Mapping[str, Callable[[], Any]],
    *,
    rounds: int,
    calls: int = 1,
    sync: Callable[[], Any] = lambda: None,
    sync_inside: bool = True,
    pause: float = _PAUSE,
    warm: float = _WARM,
) -> dict[str, Time]:
    """Time one call of each contestant, measured in turns.

    Parameters
    ----------
    contestants : mapping of str to callable
        What to call; each is called in every round, so that drift hits all alike.
    rounds : int
        Samples of each.
    calls : int
        Calls in a sample.
    sync : callable
        Waits until the calls are done.
    sync_inside : bool
        Whether that wait is part of the sample; without it, only what the caller waits for is.
    pause, warm : float
        Seconds without work before a sample, and then of calls that aren't counted.

    Returns
    -------
    dict of str to Time
    """
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for function in contestants.values():
        for _ in range(3):
            function()
    for _ in range(rounds):
        for name, function in contestants.items():
            # The threads of the one before have gone to sleep, and this one's are awake: that
            # can take a virtual machine some milliseconds, so more than one call.
            time.sleep(pause)
            awake = time.perf_counter() + warm
            while time.perf_counter() < awake:
                function()
            sync()
            start = time.perf_counter()
            for _ in range(calls):
                function()
            if sync_inside:
                sync()
            samples[name].append((time.perf_counter() - start) / calls)
    sync()
    return {name: summary(taken) for name, taken in samples.items()}


def summary(samples: Sequence[float]) -> Time:
    """The median and the least of some samples."""
    return Time(statistics.median(samples), min(samples))


def finish(
    rows: list[Row], machine: Mapping[str, Any], options: argparse.Namespace | None = None
) -> int:
    """Print the table, write the JSON, and say by the exit status whether the targets were met.

    Parameters
    ----------
    rows : list of Row
        The measurements.
    machine : mapping
        What they were made on.
    options : argparse.Namespace, optional
        What `command_line` gave; read now if None.

    Returns
    -------
    int
        1 if ``--check`` was given and a target missed, else 0.
    """
    options = options or command_line()
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    if (machine.get("load") or 0) > 0.3 * machine["cores"]:
        print("the machine was busy with other work when this began: run it again on a quiet one")
    print("median (least) of samples taken in turns")
    print(f"{'':48}{'graphjit':>22} {'other':>23}{'ratio':>16}  target")
    for row in rows:
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        print(
            f"{row.name:48}{_cell(row.value, row.unit):>22} {_cell(row.reference, row.unit):>23}"
            f"{_cell(row.ratio):>16}  {row.target} {verdict} "
            f"{f'({row.against})' if row.against else ''}".rstrip()
        )
    if options.json:
        record = {
            "commit": commit(),
            "machine": dict(machine),
            "rows": [{**asdict(row), "met": row.met} for row in rows],
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=2) + "\n")
    return int(options.check and any(row.met is False for row in rows))


def _cell(time: Time | None, unit: str = "") -> str:
    return "" if time is None else f"{time.median:.3g} ({time.least:.3g}) {unit}".rstrip()


def command_line(**flags: str) -> argparse.Namespace:
    """Read the command line: ``--check``, ``--json PATH``, and flags given as name and help."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="PATH", help="record the figures there")
    for name, text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    return parser.parse_args()


def commit() -> str:
    """The commit, with "+changes" where the tree has uncommitted ones; "unknown" without git."""
    try:
        head = _git("rev-parse", "HEAD")
        return head + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    """The processor, its cores, how busy it is now, and the versions that matter."""
    names = [
        line.split(":")[1].strip()
        for line in _read("/proc/cpuinfo").splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "call path": "compiled" if graphjit.is_compiled else "pure Python",
        **{name: importlib.metadata.version(name) for name in ("numba", "numba-cuda", "llvmlite")},
    }


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""
