"""Rebinding what a trace read from outside its arguments is a miss, never a stale replay."""

from __future__ import annotations

import types

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
