"""Every kernel case on a GPU, replayed by a graphed function."""

from __future__ import annotations

from typing import Any

import pytest

import graphjit as gj

from ..cases import CASES
from ..cases.case import Case
from ..cases.check import check_case

pytestmark = pytest.mark.gpu


def launch(kernel: Any, config: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Replay a graph of one launch; NumPy arguments are uploaded and written back."""

    @gj.graphed
    def run(args: Any) -> None:
        kernel[config](*args)

    with gj.use_backend("cuda"):
        run(args)
    return args


# A device function with shared memory reached along two paths: Numba hands NVVM its memory twice.
REFUSED = ("shared_memory_reached_twice",)
RUNNABLE = [case for case in CASES if case.name not in REFUSED]


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_replayed(case: Case) -> None:
    check_case(case, 1, launch)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in REFUSED], ids=lambda c: c.name)
def test_what_numba_refuses_says_so(case: Case) -> None:
    with pytest.raises(gj.KernelCompileError, match="Numba can't compile kernel"):
        check_case(case, 1, launch)


def launch_by_numba(kernel: Any, config: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Launch eagerly, as Numba does without graphjit."""
    kernel[config](*args)
    return args


# Numba itself takes no strided host arrays.
EAGER = [case for case in RUNNABLE if "strided" not in case.features]


@pytest.mark.parametrize("case", EAGER, ids=lambda case: case.name)
def test_reference_against_numba(case: Case) -> None:
    """The reference is right about Numba too, so that a failure above is graphjit's."""
    check_case(case, 1, launch_by_numba)
