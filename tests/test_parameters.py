"""The order of a kernel's parameters on a GPU: which comes where, and PTX that has it so."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

from graphjit.kernel import frontend
from graphjit.kernel.parameters import moving_first, reordered

PTX = """
.version 9.0
.visible .entry _ZN6cudapy3addE(
\t.param .u64 .ptr .align 1 _ZN6cudapy3addE_param_0,
\t.param .f32 _ZN6cudapy3addE_param_1,
\t.param .align 8 .b8 _ZN6cudapy3addE_param_2[16]
)
.maxntid 256, 1, 1
{
\tld.param.u64 %rd1, [_ZN6cudapy3addE_param_0];
\tld.param.f32 %f1, [_ZN6cudapy3addE_param_1];
}
.visible .entry other(
\t.param .u64 other_param_0
)
{ }
"""
FLAT = types.float32[::1]
RECORD = types.float64[:, :]


@cuda.jit
def several(x, k, pair, z):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = k + pair[0][i, 0] + pair[1] + z.real


def test_pointers_then_numbers_then_the_rest():
    argtypes = FLAT, types.int64, types.Tuple((RECORD, types.float64)), types.complex64
    kernel = frontend.kernel_ir(several, argtypes)
    order = moving_first(kernel)
    count = sum(leaf.count for leaf in kernel.leaves)
    assert sorted(order) == list(range(count))
    # x is 7 parameters, k one, pair[0] nine, pair[1] one, z two.
    assert order[:6] == (4, 7 + 1 + 4, 7, 17, 18, 19)
    assert list(order[6:]) == sorted(order[6:])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_ptx_in_another_order(order):
    made = reordered(PTX, "_ZN6cudapy3addE", order)
    head = made[made.index("addE(") : made.index(".maxntid")]
    assert tuple(int(n) for n in re.findall(r"_param_(\d)", head)) == order
    assert "_param_2[16]" in head and ".ptr .align 1 _ZN6cudapy3addE_param_0" in head
    # All else is as it was, and the way back gives what there was.
    assert made.split(".maxntid")[1] == PTX.split(".maxntid")[1]
    back = tuple(int(n) for n in np.argsort(order))
    assert re.sub(r"\s+", "", reordered(made, "_ZN6cudapy3addE", back)) == re.sub(r"\s+", "", PTX)


def test_ptx_of_something_else():
    assert reordered(PTX, "addE", (0, 1, 2)) is None
    assert reordered(PTX, "_ZN6cudapy3addE", (0, 1)) is None
    assert reordered("", "k", ()) is None
