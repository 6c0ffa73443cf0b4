"""Nothing leaks: memory over many calls, signatures and functions; quiet exits and forks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import weakref

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


@gj.graphed
def summed(state):
    out = gj.empty_like(state["u"])
    add[grid(out.size), 64](state["u"], state["v"][0], out)
    return {"u": out, "v": state["v"]}


X = None
ARRAYS: list[gj.Array] = []


def calls(count):
    for n in range(count):
        f(X, float(n))


def calls_in_every_way(count):
    """By name, with other libraries' arrays, containers, numbers that Numba types otherwise."""
    host, state = np.ones(1000), {"u": X, "v": [X]}
    for n in range(count // 5):
        f(k=float(n), x=X)
        f(host, 2.0)
        f(X, 2**63 + n)
        state = summed(state)
        f(ARRAYS[n % len(ARRAYS)], 1.0)


def failed_calls(count):
    for _ in range(count):
        with pytest.raises(gj.ArgumentError):
            f(X, object())
        with pytest.raises(ZeroDivisionError):
            gj.graphed(lambda x: 1 / 0)(X)


def signatures(count):
    for n in range(count):
        f(gj.ones(n + 1), 1.0)


def functions(count):
    for _ in range(count):
        gj.graphed(lambda x: add[1, 64](x, x, x))(X)


def methods(count):
    class Model:
        @gj.graphed
        def step(self, x):
            add[1, 64](x, x, x)

    for _ in range(count):
        Model().step(X)


def cleared(count):
    for _ in range(count):
        f(X, 1.0)
        f.cache_clear()


@pytest.mark.filterwarnings("ignore:f keeps being traced anew")
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.parametrize(
    "work, warm, count",
    [
        (calls, 2000, 100_000),
        (calls_in_every_way, 2000, 50_000),
        (failed_calls, 100, 400),
        (functions, 100, 1000),
        (methods, 100, 500),
        (cleared, 50, 300),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nothing_grows(monkeypatch, work, warm, count):
    monkeypatch.setitem(globals(), "X", gj.ones(1000))
    monkeypatch.setitem(globals(), "ARRAYS", [gj.ones(n) for n in range(1, 4)])
    work(warm)
    gc.collect()
    grown = []
    # Other tests' memory settles meanwhile, once; what leaks does so each time.
    while len(grown) < 3 and (not grown or grown[-1] >= 8 * 2**20):
        resident, objects = _resident(), len(gc.get_objects())
        work(count)
        gc.collect()
        # One object in each ten functions would be too many.
        assert len(gc.get_objects()) - objects < 100
        grown.append(_resident() - resident)
    assert grown[-1] < 8 * 2**20, grown


@pytest.mark.filterwarnings("ignore:f keeps being traced anew")
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_a_thousand_signatures():
    f.cache_clear()
    signatures(300)
    resident = _resident()
    signatures(1000)
    gc.collect()
    # Layouts are remembered, 2048 of them; what was compiled for them is not.
    made = [each for each in gc.get_objects() if type(each) is gj.Compiled]
    ours = [each for each in made if each.traced.signature is f._signature]
    assert len(ours) == f.cache_info().size == 128
    assert _resident() - resident < 8 * 2**20
    f.cache_clear()


def test_dropped_functions_are_gone_with_all_they_compiled():
    x = gj.ones(1000)
    refs = []
    for _ in range(100):
        held = gj.ones(8)
        g = gj.graphed(lambda x, held=held: add[1, 64](x, held, x))
        g(x)
        g(x=x)
        g(gj.ones(1001))
        refs += map(weakref.ref, (g, held, *g._cache.values()))
    del g, held
    gc.collect()
    assert len(refs) == 400 and not any(ref() is not None for ref in refs)


def test_one_that_only_reference_counts_free():
    # Functions that nothing else refers to need no garbage collection.
    gc.collect()
    gc.disable()
    try:
        g = gj.graphed(lambda x: add[1, 64](x, x, x))
        g(gj.ones(64))
        refs = [weakref.ref(compiled) for compiled in g._cache.values()]
        g.cache_clear()
        assert not any(ref() is not None for ref in refs)
    finally:
        gc.enable()


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


METHODS = """
    import threading

    class Model:
        def __init__(self):
            self.gain = 1.0

        @gj.graphed
        def step(self, x):
            out = gj.empty_like(x)
            add[4000, 256](x, out)
            return out

    class Bare(Model):
        __slots__ = ()

    model, bare = Model(), Bare()
    model.step(x), bare.step(x)
    model.bound = model.step
    compiled = f.lower(x).compile()
    results = [compiled(x), f({0: x}[0]), model.step(y)]
"""

ENDS = {
    "closed and cleared": """
    compiled.close()
    compiled.close()
    f.cache_clear(), model.step.cache_clear(), Model.step.cache_clear()
    del f, model
    results.clear()
    del compiled
    """,
    "closed while a cycle holds all": """
    f.everything = [f, model, compiled, results, globals()]
    compiled.close()
    del f, model, compiled, x, y
    """,
    "calls at exit and after": """
    import atexit

    class Last:
        def __del__(self, f=f, x=x):
            f(x)

    last = Last()
    atexit.register(lambda: f(x).copy_to_host())
    atexit.register(lambda: f(gj.ones(5)).copy_to_host())
    atexit.register(f.cache_clear)
    t = threading.Thread(target=lambda: [f(x) for _ in range(20)])
    t.start()
    """,
    "daemons that go on calling and tracing": """
    import time
    import warnings

    def call():
        while True:
            f(x)
            model.step(x)

    def trace():
        n = 0
        while True:
            n += 1
            f(gj.ones(n))
            gj.graphed(lambda x: x.copy())(x)

    warnings.simplefilter("ignore")
    for work in (call, trace):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.3)
    """,
    "close while another thread calls": """
    stop = threading.Event()
    def work():
        try:
            while not stop.is_set():
                compiled(x)
        except RuntimeError as error:
            assert "closed" in str(error)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    compiled.close()
    stop.set()
    for t in threads:
        t.join()
    """,
    "a fork with live methods and results": """
    import os
    pid = os.fork()
    if pid == 0:
        ok = model.step(x).copy_to_host()[0] == 2 and results[2].copy_to_host()[-1] == 3
        ok = ok and compiled(x).copy_to_host()[0] == 2
        f.cache_clear()
        ok = ok and f(x).copy_to_host()[0] == 2
        compiled.close()
        results.clear()
        raise SystemExit(0 if ok else 1)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    """,
    "a fork while threads call": """
    import os
    stop = threading.Event()
    def work():
        while not stop.is_set():
            f(x)
            f(gj.ones(3))
    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            ok = f(x).copy_to_host()[0] == 2 and f(gj.ones(9)).copy_to_host()[0] == 2
            os._exit(0 if ok else 1)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
    stop.set()
    for t in threads:
        t.join()
    """,
}


@pytest.mark.parametrize("end", ENDS)
def test_the_end_is_quiet(end):
    result = _run(PROGRAM + METHODS + ENDS[end])
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
