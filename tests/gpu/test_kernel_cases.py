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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_replayed(case: Case) -> None:
    check_case(case, 1, launch)


def launch_by_numba(kernel: Any, config: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Launch eagerly, as Numba does without graphjit."""
    kernel[config](*args)
    return args


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reference_against_numba(case: Case) -> None:
    """The reference is right about Numba too, so that a failure above is graphjit's."""
    check_case(case, 1, launch_by_numba)
