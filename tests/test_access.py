"""Strides of neighbouring threads, against the addresses that a launch really has."""

from __future__ import annotations

import pytest
from numba import cuda

import graphjit as gj
from graphjit.kernel.access import fast_axis, thread_strides
from graphjit.schedule.schedule import schedule

pytestmark = pytest.mark.usefixtures("cpu")


@cuda.jit
def rows(u, v):
    i, j = cuda.grid(2)
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        v[i, j] = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]


@cuda.jit
def columns(u, v):
    j, i = cuda.grid(2)
    if i < u.shape[0] and j < u.shape[1]:
        v[i, j] = u[i, j]


@cuda.jit
def gather(u, v):
    i, j = cuda.grid(2)
    if i < v.shape[0] and j < v.shape[1]:
        v[i, j] = u[int(v[i, j]) % u.shape[0], j]


def strides(kernel, u, v, block=(16, 16)):
    plan = schedule(gj.make_graph(lambda u, v: kernel[1, block](u, v))(u, v))
    (launch,) = plan.graph.nodes
    image = plan.image(launch)
    found = {thread_strides(a, image.integers(), launch.block) for a in launch.kernel.accesses}
    return found, fast_axis(launch.kernel.accesses, image.integers(), launch.block)


def test_strides_of_a_stencil():
    u = gj.zeros((40, 30), "f4")
    assert strides(rows, u, u) == ({(120, 4, 0)}, "y")
    assert strides(columns, u, u) == ({(4, 120, 0)}, "x")


def test_strides_of_other_layouts():
    f = gj.zeros((40, 30), "f4", order="F")
    assert strides(rows, f, f) == ({(4, 160, 0)}, "x")
    half = gj.zeros((40, 60))[:, ::2]
    assert strides(columns, half, half) == ({(16, 480, 0)}, "x")
    assert strides(rows, half, half)[1] == "y"


def test_what_is_not_linear_is_not_guessed():
    u = gj.zeros((40, 30))
    found, axis = strides(gather, u, u)
    assert axis == "y" and (240, 8, 0) in found


def test_blocks_of_one_row():
    u = gj.zeros((40, 30))
    assert strides(columns, u, u, (16, 1))[1] == "x"
    assert strides(columns, u, u, (1, 16))[1] == "y"
