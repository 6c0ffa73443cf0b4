"""Rebinding what a trace read from outside its arguments is a miss, never a stale replay."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
from numba import cuda

import graphjit as gj

from .programs import scale

pytestmark = pytest.mark.usefixtures("cpu")

GAIN = 2.0
TABLE = None
settings = types.SimpleNamespace(gain=1.0, nested=types.SimpleNamespace(gain=1.0))


def helper(x, out):
    scale[1, 64](x, out, GAIN)


@cuda.jit
def kernel(out):
    out[0] = 1


class Config:
    gain = 1.0


def value(f, *args):
    return f(*args).copy_to_host()[0]


def test_a_global_number(monkeypatch):
    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        scale[1, 64](x, out, GAIN)
        return out

    x = gj.ones(4)
    assert value(f, x) == 2
    monkeypatch.setitem(globals(), "GAIN", 5.0)
    assert value(f, x) == 5
    monkeypatch.setitem(globals(), "GAIN", 2.0)
    assert value(f, x) == 2


def test_a_global_that_a_helper_reads(monkeypatch):
    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        helper(x, out)
        return out

    x = gj.ones(4)
    assert value(f, x) == 2
    monkeypatch.setitem(globals(), "GAIN", 7.0)
    assert value(f, x) == 7
    monkeypatch.setitem(globals(), "helper", lambda x, out: scale[1, 64](x, out, 9.0))
    assert value(f, x) == 9


def test_a_global_array(monkeypatch):
    monkeypatch.setitem(globals(), "TABLE", gj.full(4, 3.0))

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        scale[1, 64](TABLE, out, 1.0)
        return out

    x = gj.ones(4)
    assert value(f, x) == 3
    TABLE[...] = 4.0
    assert value(f, x) == 4
    monkeypatch.setitem(globals(), "TABLE", gj.full(4, 8.0))
    assert value(f, x) == 8


def test_a_kernel_redefined_as_in_a_notebook(monkeypatch):
    @gj.graphed
    def f(x):
        kernel[1, 1](x)
        return x

    assert value(f, gj.zeros(1)) == 1

    @cuda.jit
    def again(out):
        out[0] = 2

    monkeypatch.setitem(globals(), "kernel", again)
    assert value(f, gj.zeros(1)) == 2


def test_a_closed_over_name():
    gain = 2.0

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        scale[1, 64](x, out, gain)
        return out

    x = gj.ones(4)
    assert value(f, x) == 2
    gain = 3.0
    assert value(f, x) == 3


def test_attributes_of_modules_and_objects(monkeypatch):
    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        scale[1, 64](x, out, settings.gain * settings.nested.gain * Config.gain)
        return out

    x = gj.ones(4)
    assert value(f, x) == 1
    monkeypatch.setattr(settings, "gain", 2.0)
    assert value(f, x) == 2
    monkeypatch.setattr(settings.nested, "gain", 3.0)
    assert value(f, x) == 6
    monkeypatch.setattr(Config, "gain", 5.0)
    assert value(f, x) == 30


def test_the_globals_of_a_nested_graphed_function(monkeypatch):
    @gj.graphed
    def inner(x):
        out = gj.empty_like(x)
        scale[1, 64](x, out, GAIN)
        return out

    @gj.graphed
    def outer(x):
        return inner(x)

    x = gj.ones(4)
    assert value(outer, x) == 2
    monkeypatch.setitem(globals(), "GAIN", 6.0)
    assert value(outer, x) == 6


def test_names_in_comprehensions_and_lambdas(monkeypatch):
    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        (lambda: [scale[1, 64](x, out, GAIN) for _ in range(2)])()
        return out

    x = gj.ones(4)
    assert value(f, x) == 2
    monkeypatch.setitem(globals(), "GAIN", 4.0)
    assert value(f, x) == 4


def test_nothing_changed_is_a_hit():
    traced = []

    @gj.graphed
    def f(x):
        traced.append(GAIN)
        helper(x, x)
        return x

    for _ in range(3):
        f(gj.ones(4))
    assert len(traced) == 1


def test_methods_and_the_attributes_they_read():
    class Base:
        bias = 1.0

        def amount(self):
            return self.gain * self.bias

    class Model(Base):
        def __init__(self):
            self.gain = 2.0

        @gj.graphed
        def __call__(self, x):
            out = gj.empty_like(x)
            scale[1, 64](x, out, self.amount())
            return out

    model, x = Model(), gj.ones(4)
    assert value(model, x) == 2
    model.gain = 3.0
    assert value(model, x) == 3
    Base.bias = 2.0
    assert value(model, x) == 6
    Model.amount = lambda self: 10.0
    assert value(model, x) == 10


def test_defaults_of_whatever_is_called(backend):
    import functools

    def base(x, k=2.0):
        out = gj.empty_like(x)
        scale[1, 32](x, out, k)
        return out

    class Callable:
        def __call__(self, x, k=2.0):
            return base(x, k)

    def keyword_only(x, *, k=2.0):
        return base(x, k)

    @functools.wraps(base)
    def wrapper(*args, **kwargs):
        return base(*args, **kwargs)

    partial = functools.partial(base)
    with_keyword = functools.partial(base, k=2.0)
    functions = [Callable(), partial, with_keyword, keyword_only, wrapper]
    graphed = [gj.graphed(function) for function in functions]
    x = gj.ones(3)
    for f in graphed:
        assert (f(x).copy_to_host() == 2).all()
    base.__defaults__ = Callable.__call__.__defaults__ = (9.0,)
    keyword_only.__kwdefaults__["k"] = 9.0
    with_keyword.keywords["k"] = 9.0
    for f in graphed:
        assert (f(x).copy_to_host() == 9).all()


def test_methods_that_override_and_replace_each_other(backend):
    class Base:
        @gj.graphed
        def step(self, x):
            out = gj.empty_like(x)
            scale[1, 32](x, out, 2.0)
            return out

    class Derived(Base):
        @gj.graphed
        def step(self, x):
            twice = super().step(x)
            out = gj.empty_like(x)
            scale[1, 32](twice, out, 5.0)
            return out

    x = gj.ones(3)
    base, derived = Base(), Derived()
    for _ in range(3):
        assert (derived.step(x).copy_to_host() == 10).all()
        assert (base.step(x).copy_to_host() == 2).all()

    def step(self, x):
        return x.copy()

    Base.step = gj.graphed(step)
    assert (base.step(x).copy_to_host() == 1).all()


def test_a_parameter_may_be_called_self(backend):
    def f(self, x):
        out = gj.empty_like(x)
        scale[1, 32](x, out, self)
        return out

    g = gj.graphed(f)
    assert (g(self=3.0, x=gj.ones(2)).copy_to_host() == 3).all()
    assert len(g.trace(self=3.0, x=gj.ones(2)).graph.nodes) == 1
    compiled = g.lower(self=3.0, x=gj.ones(2)).compile()
    assert (compiled(self=4.0, x=gj.ones(2)).copy_to_host() == 4).all()


AUDITED = """
import sys
import graphjit as gj
from tests.programs import scale

def helper(x, out, k=2.0, *, m=3.0):
    scale[1, 64](x, out, k * m)

@gj.graphed
def f(x, k=1.0):
    out = gj.empty_like(x)
    helper(x, out)
    return out

with gj.use_backend("cpu"):
    x = gj.ones(4)
    for _ in range(3):
        f(x)
    seen = []
    sys.addaudithook(lambda event, args: seen.append(event))
    for _ in range(5):
        f(x)
    assert not seen, seen
    helper.__kwdefaults__ = {"m": 5.0}
    assert f(x).copy_to_host()[0] == 10
    helper.__defaults__ = (3.0,)
    assert f(x).copy_to_host()[0] == 15
    helper.__code__ = (lambda x, out, k, *, m: scale[1, 64](x, out, k + m)).__code__
    assert f(x).copy_to_host()[0] == 8
"""


@pytest.mark.skipif(not gj.is_compiled, reason="Python code can only ask by name")
def test_calls_raise_no_audit_events():
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", AUDITED], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
