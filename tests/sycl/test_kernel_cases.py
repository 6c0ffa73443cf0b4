"""Every kernel case on a SYCL device, replayed by a graphed function."""

from __future__ import annotations

from typing import Any

import pytest

import graphjit as gj

from ..cases import CASES
from ..cases.case import Case
from ..cases.check import check_case

pytestmark = pytest.mark.sycl

# What SYCL can't express, and what the message calls it.
REFUSED = {
    "recursive_power": "a recursive function",
    "reshaped_inside": "external function numba_attempt_nocopy_reshape",
    "print_some": "print",
    "grid_wide_shift": "grid-wide synchronisation",
    "barrier_after_return": "a barrier or an exchange between lanes that some threads",
    "block_reduce_by_warps": "a barrier or an exchange between lanes that some threads",
    "half_warps": "a barrier or an exchange between lanes that some threads",
    "shuffles_in_uneven_warps": "a barrier or an exchange between lanes that some threads",
}


def launch(kernel: Any, config: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Replay a graph of one launch; NumPy arguments are uploaded and written back."""

    @gj.graphed
    def run(args: Any) -> None:
        kernel[config](*args)

    with gj.use_backend("sycl"):
        run(args)
    return args


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in REFUSED], ids=lambda case: case.name
)
def test_replayed(case: Case) -> None:
    check_case(case, 1, launch)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in REFUSED], ids=lambda case: case.name
)
def test_what_sycl_cannot_express_is_named(case: Case) -> None:
    with pytest.raises(gj.UnsupportedKernelError, match=REFUSED[case.name]) as info:
        check_case(case, 1, launch)
    assert "the sycl backend can't run" in str(info.value)
    assert "cuda backend" in str(info.value)
    assert "test_kernel_cases.py" in str(info.value)
