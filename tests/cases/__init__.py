"""The suite's kernels, each with an independent NumPy reference."""

from __future__ import annotations

from . import (
    algorithms,
    atomics,
    barriers,
    control_flow,
    dtypes,
    elementwise,
    maths,
    memory,
    randoms,
    shared_memory,
    warps,
)
from .case import Case
from .check import check_case

CASES: list[Case] = [
    *elementwise.CASES,
    *algorithms.CASES,
    *barriers.CASES,
    *control_flow.CASES,
    *shared_memory.CASES,
    *atomics.CASES,
    *warps.CASES,
    *maths.CASES,
    *dtypes.CASES,
    *memory.CASES,
    *randoms.CASES,
]

__all__ = ["CASES", "Case", "check_case"]
