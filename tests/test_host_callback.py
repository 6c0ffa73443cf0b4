"""Calls of Python functions from graphs, against the same Python code run eagerly."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import cuda

import graphjit as gj

from .programs import add

B = 32


@cuda.jit
def shift(x, k, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + k


def shifted(x, k):
    out = gj.empty_like(x)
    shift[1, B](x, k, out)
    return out


def calls(graph, make_function):
    """What a function that reports reported, and its results."""
    seen = []

    def report(*values):
        seen.append([v.tolist() if isinstance(v, np.ndarray) else v for v in values])

    function = make_function(report)
    result = (gj.graphed(function) if graph else function)(gj.arange(3, dtype=float), 2)
    return seen, [r.copy_to_host().tolist() if isinstance(r, gj.Array) else r for r in result]


def compared(make_function):
    mine, eager = calls(True, make_function), calls(False, make_function)
    assert mine == eager
    return mine[0]


@pytest.mark.parametrize("period", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 150])
def test_in_a_loop(backend, count, period):
    def make(report):
        def f(x, n):
            def body(i, carry):
                x, t = carry
                y = shifted(x, i)
                gj.host_callback(report, i, y, t, n, 5, every=period)
                return shifted(y, 1), t + i

            return gj.fori_loop(3, 3 + count, body, (x, 0))

        return f

    assert len(compared(make)) == count // period


def test_at_its_place_among_kernels(backend):
    def make(report):
        def f(x, n):
            y = x.copy()
            gj.host_callback(report, y)
            y[1:] = 7.0
            gj.host_callback(report, y[::-1], y[2].item())
            add[1, B](y, y, y)
            gj.host_callback(report, y, every=2)  # there is no second time
            return y, x

        return f

    assert len(compared(make)) == 2


def test_in_what_the_device_decides(backend):
    def make(report):
        def f(x, n):
            def outer(i, x):
                def inner(x):
                    x = shifted(x, 1.0)
                    gj.host_callback(report, i, x, every=2)
                    return x

                x = gj.while_loop(lambda x: x[0].item() < 5 * (i + 1), inner, x)
                gj.cond(x[1].item() > 9, lambda: gj.host_callback(report, "many"), lambda: None)
                return x

            return (gj.fori_loop(0, n + 1, outer, x),)

        return f

    assert compared(make)


def test_several_periods_in_one_body(backend):
    def make(report):
        def f(x, n):
            def body(i, x):
                gj.host_callback(report, "two", i, every=2)
                x = shifted(x, 1)
                gj.host_callback(report, "three", i, x, every=3)
                return x

            return (gj.fori_loop(0, 20, body, x),)

        return f

    assert len(compared(make)) == 16


def test_numbers_keep_their_class(backend):
    seen = []
    f = gj.graphed(
        lambda x, a, b, c: gj.host_callback(
            lambda *values: seen.extend(values), a, b, c, x.item(), x > 0 if x is None else True
        )
    )
    f(gj.array([2.5]), 3, np.float32(0.5), 1 + 2j)
    assert seen == [3, np.float32(0.5), 1 + 2j, 2.5, True]
    assert [type(value) for value in seen] == [int, np.float32, complex, float, bool]


def test_what_it_is_given_is_its_own(backend):
    kept = []

    @gj.graphed
    def f(x):
        def body(i, x):
            y = shifted(x, 1)
            gj.host_callback(kept.append, y)
            return y

        return gj.fori_loop(0, 3, body, x)

    f(gj.zeros(2))
    assert [k[0] for k in kept] == [1, 2, 3]
    assert all(k.flags.owndata and k.flags.writeable for k in kept)


def test_an_error_ends_the_call(backend):
    failing = [True]

    def report(i):
        if failing[0] and i == 2:
            raise KeyError("no")

    @gj.graphed
    def f(x):
        def body(i, x):
            x = shifted(x, 1)
            gj.host_callback(report, i)
            return x

        return gj.fori_loop(0, 5, body, x)

    with pytest.raises(KeyError) as raised:
        f(gj.zeros(2))
    assert "test_host_callback.py" in raised.value.__notes__[0]
    failing[0] = False
    assert (f(gj.zeros(2)).copy_to_host() == 5).all()


def test_threads(backend):
    @gj.graphed
    def f(x, k, seen):
        def body(i, x):
            x = shifted(x, k)
            gj.host_callback(lambda v: None, x, every=5)
            return x

        return gj.fori_loop(0, 20, body, x)

    wrong = []

    def work(k):
        for _ in range(10):
            if not (f(gj.zeros(4), float(k), None).copy_to_host() == 20 * k).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bad_arguments(cpu):
    with pytest.raises(ValueError, match="every is 0"):
        gj.host_callback(print, every=0)


def test_trees_and_other_values(backend):
    seen = []
    f = gj.graphed(
        lambda x: gj.host_callback(lambda *v: seen.append(v), "text", {"x": x, "n": [1, None]})
    )
    f(gj.ones(2))
    ((text, tree),) = seen
    assert text == "text" and tree["n"] == [1, None] and (tree["x"] == 1).all()


@pytest.mark.parametrize("count", [0, 1, 5, 99, 305])
def test_progress(backend, count, capsys):
    pytest.importorskip("tqdm")

    def looped(x):
        return gj.fori_loop(2, 2 + count, lambda i, x: shifted(x, 1), x, progress=True)

    def scanned(x):
        return gj.scan(lambda x, _: (shifted(x, 1), x), x, length=count, progress=True)

    assert (gj.graphed(looped)(gj.zeros(2)).copy_to_host() == count).all()
    bar = capsys.readouterr().err
    assert f"{count}/{count}" in bar if count else bar == ""
    last, rows = gj.graphed(scanned)(gj.zeros(2))
    assert (last.copy_to_host() == count).all() and rows.shape == (count, 2)
    assert (looped(gj.zeros(2)).copy_to_host() == count).all()
    assert f"{count}/{count}" in capsys.readouterr().err or not count


def test_progress_of_a_range_that_is_not_known(cpu):
    f = gj.graphed(lambda x, n: gj.fori_loop(0, n, lambda i, x: x, x, progress=True))
    with pytest.raises(gj.TraceError, match=r"progress .*test_host_callback"):
        f(gj.zeros(1), 3)
