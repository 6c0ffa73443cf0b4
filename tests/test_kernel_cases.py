"""Every kernel case on the CPU, replayed by a graphed function and launched eagerly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphjit as gj

from .cases import CASES
from .cases.case import Case
from .cases.check import check_case


def launch_graphed(kernel: Any, config: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Replay a graph of one launch on the arguments as they are, NumPy arrays in place."""

    @gj.graphed
    def run(args: Any) -> None:
        kernel[config](*args)

    with gj.use_backend("cpu"):
        run(args)
    return args


def launch_eager(kernel: Any, config: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Launch outside graphed functions, on Arrays over the arguments' memory."""

    def wrapped(value: Any) -> Any:
        if isinstance(value, tuple):
            items = [wrapped(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return gj.asarray(value) if isinstance(value, np.ndarray) else value

    with gj.use_backend("cpu"):
        # An argument list of NumPy arrays only would be Numba's own business.
        kernel[config](*wrapped(args))
    return args


RUNNABLE = [case for case in CASES if "grid_sync" not in case.features]


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_replayed(case: Case) -> None:
    check_case(case, 1, launch_graphed)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c not in RUNNABLE], ids=lambda case: case.name
)
def test_refused_by_name(case: Case) -> None:
    with pytest.raises(gj.UnsupportedKernelError, match="grid-wide synchronisation"):
        check_case(case, 1, launch_graphed)


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_eager(case: Case) -> None:
    check_case(case, 2, launch_eager)
