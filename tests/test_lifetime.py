"""Nothing leaks: memory over many calls, signatures and functions; quiet exits and forks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import graphjit as gj

from .programs import add, grid, scale

pytestmark = pytest.mark.usefixtures("cpu")


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@gj.graphed
def f(x, k):
    out = gj.empty_like(x)
    scale[grid(x.size), 64](x, out, k)
    return out


@pytest.mark.filterwarnings("ignore:f keeps being traced anew")
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_memory_does_not_grow():
    x = gj.ones(1000)

    def calls(count):
        for n in range(count):
            f(x, float(n))

    def signatures(count):
        for n in range(count):
            f(gj.ones(n + 1), 1.0)

    def functions(count):
        for _ in range(count):
            gj.graphed(lambda x: add[1, 64](x, x, x))(x)

    for work, warm, count in ((calls, 2000, 20_000), (signatures, 200, 400), (functions, 60, 150)):
        work(warm)
        before = _resident()
        work(count)
        assert _resident() - before < 8 * 2**20, work.__name__


def test_a_result_keeps_its_memory_after_all_else_is_gone():
    def make():
        g = gj.graphed(lambda x: gj.full_like(x, 7.0))
        return g(gj.ones(5))[1:3]

    view = np.asarray(make())
    for _ in range(50):
        f(gj.ones(5), 3.0)
    assert (view == 7).all()


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "GRAPHJIT_BACKEND": "cpu"},
    )


PROGRAM = """
    import graphjit as gj
    from numba import cuda

    @cuda.jit
    def add(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + 1

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        add[4000, 256](x, out)
        return out

    x = gj.ones(1000000)
    y = f(x)
"""


def test_exit_with_live_objects_is_quiet():
    result = _run(PROGRAM)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_fork_can_replay_and_trace():
    result = _run(
        PROGRAM
        + """
    import os, sys
    pid = os.fork()
    if pid == 0:
        ok = f(x).copy_to_host()[-1] == 2 and f(gj.ones(7)).copy_to_host()[-1] == 2
        os._exit(0 if ok else 1)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    assert f(x).copy_to_host()[-1] == 2
    """
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_closing_in_any_order_is_quiet():
    result = _run(
        PROGRAM
        + """
    compiled = f.lower(x).compile()
    compiled.close()
    f.cache_clear()
    f.cache_clear()
    del f
    assert y.copy_to_host()[0] == 2
    """
    )
    assert (result.returncode, result.stderr) == (0, "")
