"""The suite's kernels, each with an independent NumPy reference."""

from __future__ import annotations

from . import (
    algorithms,
    arguments,
    atomics,
    barriers,
    control_flow,
    cooperation,
    elementwise,
    functions,
    indexing,
    integers,
    intrinsics,
    language,
    libdevice,
    maths,
    randoms,
    reals,
    records,
    shared_memory,
    tiles,
    views,
    warps,
)
from .case import Case
from .check import check_case

CASES: list[Case] = [
    *elementwise.CASES,
    *indexing.CASES,
    *algorithms.CASES,
    *functions.CASES,
    *language.CASES,
    *views.CASES,
    *arguments.CASES,
    *records.CASES,
    *barriers.CASES,
    *tiles.CASES,
    *control_flow.CASES,
    *cooperation.CASES,
    *shared_memory.CASES,
    *atomics.CASES,
    *warps.CASES,
    *intrinsics.CASES,
    *maths.CASES,
    *libdevice.CASES,
    *integers.CASES,
    *reals.CASES,
    *randoms.CASES,
]

__all__ = ["CASES", "Case", "check_case"]
