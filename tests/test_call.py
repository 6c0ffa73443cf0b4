"""What a graphed call does: it is what eager code does, on every backend."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import cuda

import graphjit as gj

from .programs import add, add_2d, axpy, grid, increment, scale, shift

N = 1003
B = 64


def _random(shape: Any = N, dtype: Any = np.float64, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@gj.graphed
def scaled(x, k):
    out = gj.empty_like(x)
    scale[grid(x.size), B](x, out, k)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_result(backend, dtype):
    x = _random(dtype=dtype)
    result = scaled(gj.array(x), 3.0)
    assert isinstance(result, gj.Array)
    assert result.device.backend == backend
    np.testing.assert_array_equal(result.copy_to_host(), 3.0 * x)


def test_an_output_is_never_overwritten_by_a_later_call(backend):
    x = _random()
    kept = [scaled(gj.array(x), float(k)) for k in range(20)]
    for k, result in enumerate(kept):
        np.testing.assert_array_equal(result.copy_to_host(), k * x)


def test_feedback(backend):
    @gj.graphed
    def step(u, v):
        out = gj.empty_like(u)
        add[grid(u.size), B](u, v, out)
        return out

    u, v = gj.ones(N), gj.full(N, 2.0)
    for _ in range(100):
        u = step(u, v)
    assert (u.copy_to_host() == 201.0).all()


def test_swap_feedback(backend):
    @gj.graphed
    def step(u, v):
        out = gj.empty_like(u)
        add[grid(u.size), B](u, v, out)
        return v, out

    a, b = 1.0, 1.0
    u, v = gj.ones(N), gj.ones(N)
    for _ in range(30):
        u, v = step(u, v)
        a, b = b, a + b
    assert (v.copy_to_host() == b).all() and (u.copy_to_host() == a).all()


def test_in_place_writes_reach_the_argument_exactly_once(backend):
    @gj.graphed
    def bump(x):
        increment[grid(x.size), B](x)

    x = gj.zeros(N)
    for count in range(1, 4):
        assert bump(x) is None
        assert (x.copy_to_host() == count).all()
    other = gj.zeros(N)
    bump(other)
    assert (other.copy_to_host() == 1).all() and (x.copy_to_host() == 3).all()


def test_numpy_arguments_are_read_at_every_call_and_written_back(backend):
    @gj.graphed
    def f(x, y):
        axpy[grid(x.size), B](2.0, x, y)

    x, y = _random(), _random(seed=1)
    expected = y.copy()
    for _ in range(3):
        f(x, y)
        expected += 2.0 * x
        np.testing.assert_allclose(y, expected, rtol=1e-15)
        x += 1.0


def test_overlapping_numpy_arguments(backend):
    @gj.graphed
    def f(x, y):
        increment[grid(x.size), B](x)
        increment[grid(y.size), B](y)

    host = np.zeros(200)
    f(host[:150], host[50:])
    expected = np.zeros(200)
    expected[:150] += 1
    expected[50:] += 1
    np.testing.assert_array_equal(host, expected)


def test_the_same_array_passed_twice(backend):
    @gj.graphed
    def f(x, y):
        out = gj.empty_like(x)
        add[grid(x.size), B](x, y, out)
        increment[grid(x.size), B](x)
        shift[grid(x.size), B](y, out)
        return out

    x, y = _random(), _random(seed=1)
    apart = f(gj.array(x), gj.array(y)).copy_to_host()
    np.testing.assert_array_equal(apart, np.roll(y, -1) + 1)
    same = gj.array(x)
    together = f(same, same).copy_to_host()
    np.testing.assert_array_equal(together, np.roll(x + 1, -1) + 1)
    np.testing.assert_array_equal(same.copy_to_host(), x + 1)
    # And apart once more: the schedule belongs to the call.
    np.testing.assert_array_equal(f(gj.array(x), gj.array(y)).copy_to_host(), apart)


def test_partly_overlapping_arguments(backend):
    @gj.graphed
    def f(x, y):
        increment[grid(x.size), B](x)
        scale[grid(y.size), B](y, y, 2.0)

    whole = gj.array(np.arange(300.0))
    f(whole[:200], whole[100:])
    expected = np.arange(300.0)
    expected[:200] += 1
    expected[100:] *= 2
    np.testing.assert_array_equal(whole.copy_to_host(), expected)


def test_a_returned_argument_is_that_argument(backend):
    @gj.graphed
    def f(x):
        increment[grid(x.size), B](x)
        return x, x[2:5], x.reshape(-1)

    x = gj.zeros(N)
    same, part, flat = f(x)
    assert same is x
    part[...] = 7.0
    np.testing.assert_array_equal(x.copy_to_host()[:6], [1, 1, 7, 7, 7, 1])
    assert flat.copy_to_host()[3] == 7.0
    host = np.zeros(8)
    assert f(host)[0] is host


def test_views_of_results_share_memory(backend):
    @gj.graphed
    def f(x):
        out = gj.empty((4, x.size))
        for row in range(4):
            scale[grid(x.size), B](x, out[row], float(row))
        return out, out[1], out.T

    x = _random()
    whole, row, turned = f(gj.array(x))
    np.testing.assert_array_equal(whole.copy_to_host(), np.outer(np.arange(4.0), x))
    np.testing.assert_array_equal(turned.copy_to_host(), np.outer(x, np.arange(4.0)))
    row[...] = 5.0
    assert (whole.copy_to_host()[1] == 5).all()


class State(NamedTuple):
    u: Any
    v: Any


@dataclasses.dataclass
class Model:
    weights: Any
    gain: float
    label: str = dataclasses.field(default="model", metadata={"static": True})


def test_pytrees(backend):
    @gj.graphed
    def f(tree, model):
        u = gj.empty_like(tree["state"].u)
        add[grid(u.size), B](tree["state"].u, tree["list"][0], u)
        scale[grid(u.size), B](u, u, model.gain)
        return {"u": State(u, tree["list"][0]), "model": model, "n": 3, "none": None}

    a, b = _random(), _random(seed=1)
    for seed in range(3):
        b = _random(seed=seed)
        tree = {"state": State(gj.array(a), 0), "list": [gj.array(b)]}
        model = Model(gj.zeros(2), 2.0)
        result = f(tree, model)
        np.testing.assert_array_equal(result["u"].u.copy_to_host(), 2.0 * (a + b))
        assert result["u"].v is tree["list"][0]
        assert isinstance(result["model"], Model) and result["model"].label == "model"
        assert result["n"] == 3 and result["none"] is None


def test_scalars_are_dynamic(backend):
    calls = []

    @gj.graphed
    def f(x, k, n, flag):
        calls.append(1)
        out = gj.empty_like(x)
        scale[grid(x.size), B](x, out, (k * 2 + n) / 4 - abs(-k) ** 2 + flag * 1)
        return out, k * n

    x = _random()
    a = gj.array(x)
    for k, n, flag in [(0.5, 3, True), (1.5, -2, False), (-2.0, 7, True)]:
        result, product = f(a, k, n, flag)
        np.testing.assert_allclose(
            result.copy_to_host(), ((k * 2 + n) / 4 - abs(-k) ** 2 + flag) * x, rtol=1e-14
        )
        assert product == k * n and type(product) is float
    assert len(calls) == 1


@pytest.mark.parametrize(
    "values",
    [
        (1, 2**40, -5),
        (1.5, -0.0, np.inf),
        (True, False),
        (1 + 2j, -1j),
        tuple(np.float32([1.5, 2.5])),
        tuple(np.int8([-3, 4])),
        tuple(np.uint16([1, 65535])),
        tuple(np.complex64([1 + 1j, 2])),
        tuple(np.float16([1.5, -2])),
    ],
    ids=lambda v: type(v[0]).__name__,
)
def test_scalar_types(backend, values):
    @cuda.jit
    def put(out, value):
        out[0] = value

    @gj.graphed
    def f(out, value):
        put[1, 1](out, value)

    out = gj.zeros(1, np.asarray(values[0]).dtype)
    for value in values:
        f(out, value)
        assert out.item() == value


def test_scalars_inside_numpy_functions(backend):
    @gj.graphed
    def f(x, t):
        out = gj.empty_like(x)
        scale[grid(x.size), B](x, out, np.sin(t) + np.float64(1))
        return out

    x = gj.ones(N)
    for t in (0.0, 0.7):
        assert f(x, t).copy_to_host()[0] == np.sin(t) + 1


def test_static_arguments(backend):
    traced = []

    @gj.graphed(static_argnames="times", static_argnums=2)
    def f(x, times, kind="a"):
        traced.append((times, kind))
        for _ in range(times):
            increment[grid(x.size), B](x)
        return x

    x = gj.zeros(N)
    f(x, 3)
    f(x, times=2, kind="b")
    f(x, 3, "a")
    assert traced == [(3, "a"), (2, "b")]
    assert (x.copy_to_host() == 8).all()


def test_defaults_keywords_and_variadics(backend):
    traced = []

    @gj.graphed
    def f(x, /, y, *more, k=2.0, **options):
        traced.append(1)
        out = gj.empty_like(x)
        add[grid(x.size), B](x, y, out)
        for other in (*more, *options.values()):
            add[grid(x.size), B](out, other, out)
        scale[grid(x.size), B](out, out, k)
        return out

    one = gj.ones(N)
    assert (f(one, one).copy_to_host() == 4).all()
    assert (f(one, y=one).copy_to_host() == 4).all()
    assert (f(one, one, k=2.0).copy_to_host() == 4).all()
    assert len(traced) == 1
    assert (f(one, one, one, k=3.0, z=one).copy_to_host() == 12).all()


def test_methods(backend):
    class Solver:
        def __init__(self, k, u):
            self.k = k
            self.u = u

        @gj.graphed
        def step(self, x):
            out = gj.empty_like(x)
            scale[grid(x.size), B](x, out, self.k)
            add[grid(x.size), B](out, self.u, out)
            return out

    x = gj.ones(N)
    first, second = Solver(2.0, gj.ones(N)), Solver(3.0, gj.zeros(N))
    assert first.step(x).copy_to_host()[0] == 3
    assert second.step(x).copy_to_host()[0] == 3
    first.k = 5.0
    assert first.step(x).copy_to_host()[0] == 6
    first.u = gj.full(N, 10.0)
    assert first.step(x).copy_to_host()[0] == 15
    assert len(first.step.trace(x).graph.nodes) == 2


def test_nested_graphed_functions(backend):
    @gj.graphed
    def outer(x):
        return scaled(scaled(x, 2.0), 3.0)

    x = _random()
    np.testing.assert_array_equal(outer(gj.array(x)).copy_to_host(), 2.0 * x * 3.0)
    assert len(outer.trace(gj.array(x)).graph.nodes) == 2


def test_closed_over_arrays_are_read_by_reference(backend):
    bias = gj.array(_random())
    host = _random(seed=1)

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        add[grid(x.size), B](x, bias, out)
        add[grid(x.size), B](out, host, out)
        return out

    x = gj.zeros(N)
    np.testing.assert_array_equal(f(x).copy_to_host(), bias.copy_to_host() + host)
    bias[...] = 1.0
    host[:] = 5.0
    assert (f(x).copy_to_host() == 6).all()


def test_a_closed_over_array_that_is_also_an_argument(backend):
    table = gj.zeros(N)

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        increment[grid(x.size), B](x)
        shift[grid(x.size), B](table, out)
        return out

    assert (f(gj.ones(N)).copy_to_host() == 1).all()
    assert (f(table).copy_to_host() == 2).all()
    assert (table.copy_to_host() == 1).all()


def test_an_array_closed_over_by_a_kernel(backend):
    table = gj.array(np.arange(8.0))

    @cuda.jit
    def gather(index, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = table[index[i]]

    @gj.graphed
    def f(index):
        out = gj.empty(index.size)
        gather[grid(index.size), B](index, out)
        increment[1, B](table)
        gather[grid(index.size), B](index, out)
        return out

    index = gj.array(np.array([3, 0, 7]))
    np.testing.assert_array_equal(f(index).copy_to_host(), [4, 1, 8])
    np.testing.assert_array_equal(f(index).copy_to_host(), [5, 2, 9])


def test_numba_arrays_made_inside(backend):
    host = np.arange(float(N))

    @gj.graphed
    def f(x):
        stream = cuda.stream()
        a = cuda.device_array(x.shape, x.dtype)
        b = cuda.device_array_like(x)
        c = cuda.to_device(host, stream=stream)
        scale[grid(N), B, stream](x, a, 2.0)
        add[grid(N), B, stream](a, c, b)
        stream.synchronize()
        cuda.synchronize()
        return b

    x = _random()
    np.testing.assert_array_equal(f(gj.array(x)).copy_to_host(), 2.0 * x + host)
    host += 1.0
    np.testing.assert_array_equal(f(gj.array(x)).copy_to_host(), 2.0 * x + host)


def test_every_form_of_launch(backend):
    ready = scale[grid(N), B]

    @cuda.jit
    def uses_shared(out):
        s = cuda.shared.array(0, np.float64)
        t = cuda.threadIdx.x
        s[t] = t
        cuda.syncthreads()
        out[t] += s[cuda.blockDim.x - 1 - t]

    @cuda.jit
    def cube(out):
        x, y, z = cuda.grid(3)
        if x < out.shape[0] and y < out.shape[1] and z < out.shape[2]:
            out[x, y, z] += x + 10 * y + 100 * z

    @gj.graphed
    def f(x, small, big):
        out = gj.empty_like(x)
        ready(x, out, 2.0)
        scale[(grid(N),), (B,)](out, out, 3.0)
        scale.forall(x.size)(out, out, 5.0)
        scale.forall(x.size, tpb=32)(out, out, 7.0)
        scale[grid(N), B, cuda.default_stream()](out, out, 0.5)
        scale.configure(grid(N), B)(out, out, 2.0)
        uses_shared[1, 16, 0, 16 * 8](small)
        cube[(2, 2, 3), (2, 4, 2)](big)
        scale.forall(0)(out, out, 0.0)
        return out

    x = _random()
    small, big = gj.zeros(16), gj.zeros((3, 7, 5))
    np.testing.assert_allclose(f(gj.array(x), small, big).copy_to_host(), 210.0 * x, rtol=1e-14)
    np.testing.assert_array_equal(small.copy_to_host(), np.arange(16.0)[::-1])
    i, j, k = np.indices((3, 7, 5))
    np.testing.assert_array_equal(big.copy_to_host(), i + 10 * j + 100 * k)


def test_copies_fills_and_views(backend):
    @gj.graphed
    def f(x, k):
        a = gj.zeros((6, 8))
        a[1:5, ::2] = x
        a[0] = k
        a[5, 1:] = a[4, :-1]
        b = a.copy()
        b[:, ::-1][2] = 9
        c = gj.empty((3, 8))
        c[...] = a[::2]
        c[1] = np.arange(8.0)
        a[2:5] = a[1:4]
        d = gj.ones_like(x, dtype=np.int32)
        d[...] = k
        return a, b, c, d

    x = _random((4, 4))
    for k in (0.5, -2.0):
        a = np.zeros((6, 8))
        a[1:5, ::2] = x
        a[0] = k
        a[5, 1:] = a[4, :-1]
        b = a.copy()
        b[:, ::-1][2] = 9
        c = a[::2].copy()
        c[1] = np.arange(8.0)
        a[2:5] = a[1:4]
        d = np.ones_like(x, dtype=np.int32)
        d[...] = k
        for got, want in zip(f(gj.array(x), k), (a, b, c, d), strict=True):
            np.testing.assert_array_equal(got.copy_to_host(), want)


def test_non_contiguous_arguments(backend):
    @gj.graphed
    def f(x, y):
        out = gj.empty(x.shape)
        add_2d[(4, 4), (8, 8)](x, y, out)
        return out

    base = _random((60, 50))
    for x in (base[::2, 3:30], base[:30, 10:37], base.T[:30, :27], base[29::-1, 26::-1]):
        y = np.asfortranarray(_random(x.shape, seed=4))
        np.testing.assert_array_equal(f(x, y).copy_to_host(), x + y)
        np.testing.assert_array_equal(f(gj.array(x), gj.array(y)).copy_to_host(), x + y)


def test_empty_and_zero_dimensional_arrays(backend):
    @cuda.jit
    def bump(x):
        x[()] += 1

    @gj.graphed
    def f(x, empty):
        bump[1, 1](x)
        increment[1, 32](empty)
        empty[...] = 3
        y = gj.empty_like(empty)
        y[...] = empty
        return x, y

    x, y = f(gj.zeros(()), gj.zeros(0))
    assert x.item() == 1 and y.shape == (0,)
    with pytest.raises(gj.LaunchError):
        gj.make_graph(lambda x: increment[0, 32](x))(gj.zeros(0))


def test_structured_arrays(backend):
    record = np.dtype([("a", np.float64), ("b", np.int32)], align=True)

    @cuda.jit
    def update(values, by):
        i = cuda.grid(1)
        if i < values.size:
            values[i].a += by.a
            values[i].b -= by.b

    @gj.graphed
    def f(values, by):
        update[1, 32](values, by)

    values = np.zeros(5, record)
    for k in (1, 2):
        by = np.array([(k, 10 * k)], record)[0]
        f(values, by)
    assert (values["a"] == 3).all() and (values["b"] == -30).all()


def test_several_threads(backend):
    arrays = [gj.full(N, float(k)) for k in range(8)]
    wrong = []

    def work(k):
        for n in range(30):
            result = scaled(arrays[k], float(n)).copy_to_host()
            if not (result == k * float(n)).all():
                wrong.append((k, n))

    with gj.use_backend(backend):
        device = gj.default_device()

    def run(k):
        with gj.use_backend(device.backend):
            work(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_dropping_a_function_frees_everything(backend):
    held = gj.zeros(1000)

    def make():
        @gj.graphed
        def f(x):
            out = gj.empty_like(x)
            add[grid(x.size), B](x, held, out)
            return out

        return f

    f = make()
    f(gj.zeros(1000))
    compiled = weakref.ref(next(iter(f._cache.values())))
    del f
    gc.collect()
    assert compiled() is None


def test_clearing_the_cache_and_calling_again(backend):
    x = gj.ones(N)
    first = scaled(x, 2.0)
    scaled.cache_clear()
    assert (scaled(x, 3.0).copy_to_host() == 3).all()
    assert (first.copy_to_host() == 2).all()


def test_the_cache_forgets_what_was_unused_for_longest(backend):
    traced = []

    @gj.graphed(cache_size=3)
    def f(x):
        traced.append(x.size)
        return x[1:]

    for n in range(2, 10):
        f(gj.zeros(n))
        f(gj.zeros(2))
    assert f.cache_info().size == 3
    assert traced == list(range(2, 10))


def test_stages(backend):
    x = gj.ones(N)
    traced = scaled.trace(x, 2.0)
    lowered = traced.lower()
    assert "scale[" in lowered.as_text() and "test_call.py" in lowered.as_text()
    compiled = lowered.compile()
    assert (compiled(x, 2.0).copy_to_host() == 2).all()
    assert (compiled(x, k=4.0).copy_to_host() == 4).all()
    with pytest.raises(gj.ArgumentError, match="argument x was"):
        compiled(gj.ones(3), 2.0)
    compiled.close()
    compiled.close()
    with pytest.raises(RuntimeError, match="closed"):
        compiled(x, 2.0)


def test_arrays(backend):
    x = _random((5, 7), np.float32)
    a = gj.array(x)
    np.testing.assert_array_equal(np.asarray(a), x)
    np.testing.assert_array_equal(a[1:4, ::3].copy_to_host(), x[1:4, ::3])
    np.testing.assert_array_equal(a.T.reshape(7, 5).copy().ravel().copy_to_host(), x.T.ravel())
    np.testing.assert_array_equal(a.astype(np.int64).copy_to_host(), x.astype(np.int64))
    a[2] = 4
    a[:, 0] = np.arange(5)
    x[2] = 4
    x[:, 0] = np.arange(5)
    a[0, 1:] = a[3, :-1]
    x[0, 1:] = x[3, :-1]
    a[1:] = a[:-1]
    x[1:] = x[:-1].copy()
    np.testing.assert_array_equal(a.copy_to_host(), x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(a)).copy_to_host(), x)
    other = copy.deepcopy(a)
    other[...] = 0
    np.testing.assert_array_equal(a.copy_to_host(), x)
    assert len(a) == 5 and a[0, 0].item() == x[0, 0] and float(a[4, 4]) == float(x[4, 4])
    assert repr(a[0, :2]).startswith("graphjit.Array([")
    with pytest.raises(ValueError):
        bool(a)


def test_read_only_arrays(backend):
    host = np.zeros(8)
    host.flags.writeable = False

    @gj.graphed
    def reads(x):
        out = gj.empty(8)
        scale[1, 32](x, out, 2.0)
        return out

    assert (reads(host).copy_to_host() == 0).all()
    with pytest.raises(gj.KernelCompileError):
        gj.graphed(lambda x: increment[1, 32](x))(host)
