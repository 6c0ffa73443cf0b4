"""Functions of numbers inside a traced function: recorded, and evaluated anew at every call."""

from __future__ import annotations

import cmath
import copy
import math
import operator
import os
import pickle
import random
import subprocess
import sys
import threading
import types
from math import floor, sin, sqrt

import numba
import numpy as np
import pytest
from numba import cuda

import graphjit as gj

from .programs import scale

pytestmark = pytest.mark.usefixtures("_restored")


@pytest.fixture
def _restored(cpu):
    """Whatever happens in a trace, it leaves everything as it was."""
    before = [dict(vars(module)) for module in (math, cmath, sys.modules[__name__])]
    yield
    for module, names in zip((math, cmath, sys.modules[__name__]), before, strict=True):
        assert all(vars(module)[name] is value for name, value in names.items())


def unit():
    return random.uniform(-0.99, 0.99)


def real():
    return random.uniform(-5, 5)


def positive():
    return random.uniform(1.01, 9)


def whole():
    return random.randrange(20)


def few():
    return random.randrange(6)


def point():
    return real(), real()


def several():
    return [real(), real(), 1.0]


def complex_number():
    return complex(real(), real())


ARGUMENTS = {
    **dict.fromkeys("acos asin atanh".split(), (unit,)),
    **dict.fromkeys("acosh gamma lgamma log10 log1p log2 sqrt ulp".split(), (positive,)),
    **dict.fromkeys("factorial isqrt".split(), (whole,)),
    **dict.fromkeys("comb gcd lcm perm".split(), (whole, few)),
    **dict.fromkeys("atan2 copysign fmax fmin fmod hypot isclose remainder".split(), (real, real)),
    **dict.fromkeys("dist sumprod".split(), (point, point)),
    **dict.fromkeys("fsum prod".split(), (several,)),
    "fma": (real, real, real),
    "ldexp": (real, few),
    "log": (positive, positive),
    "nextafter": (real, real),
    "pow": (positive, real),
}
COMPLEX_ARGUMENTS = {
    "isclose": (complex_number, complex_number),
    "log": (complex_number, complex_number),
    "rect": (real, real),
}
MATH = sorted(n for n, f in vars(math).items() if isinstance(f, types.BuiltinFunctionType))
CMATH = sorted(n for n, f in vars(cmath).items() if isinstance(f, types.BuiltinFunctionType))


def same(result, expected):
    """Equal, and of the same classes."""
    if isinstance(expected, tuple):
        return type(result) is tuple and all(map(same, result, expected))
    return type(result) is type(expected) and repr(result) == repr(expected)


def check(function, *calls):
    """A graphed function does at each call what the function does, for one trace."""
    traced = []

    def counted(args):
        traced.append(1)
        return function(*args)

    graphed = gj.graphed(counted)
    for args in calls:
        assert same(graphed(args), function(*args)), args
    assert len(traced) == 1
    return graphed


@pytest.mark.parametrize("name", MATH)
def test_functions_of_math(name):
    bound = getattr(math, name)
    makers = ARGUMENTS.get(name, (real,))
    calls = [tuple(make() for make in makers) for _ in range(5)]
    check(lambda *args: (getattr(math, name)(*args), bound(*args)), *calls)


@pytest.mark.parametrize("name", CMATH)
def test_functions_of_cmath(name):
    bound = getattr(cmath, name)
    makers = COMPLEX_ARGUMENTS.get(name, (complex_number,))
    calls = [tuple(make() for make in makers) for _ in range(5)]
    check(lambda *args: (getattr(cmath, name)(*args), bound(*args)), *calls)


@pytest.mark.parametrize("cls", [float, int, bool, np.float32, np.float64, np.int8, np.uint16])
@pytest.mark.parametrize("name", "sqrt exp floor hypot isnan atanh log".split())
def test_classes_of_numbers(name, cls):
    values = (0, 0.5) if name == "atanh" else (1, 2, 5)
    values = [v for v in map(cls, values) if name != "atanh" or v < 1]
    check(lambda k: getattr(math, name)(k), *((v,) for v in values))


def test_keywords_and_constants():
    check(
        lambda a, b, t: (
            math.isclose(a, b, rel_tol=t),
            math.isclose(a, b, abs_tol=0.5, rel_tol=0),
            math.prod([2, a], start=b),
            math.log(a, 2),
            math.hypot(1, a, b),
            math.atan2(2.0, a),
            cmath.isclose(a, b, rel_tol=t),
        ),
        (1.0, 1.1, 0.2),
        (1.0, 1.1, 0.01),
        (3.5, 0.5, 0.0),
    )


def test_iterables_of_every_kind():
    check(
        lambda a, b: (
            math.fsum(x * a for x in (0.1, 0.2, b)),
            math.fsum(iter([a, b])),
            math.fsum({1: a, 2: b}.values()),
            math.dist([a, b], np.array([1.0, 2.0])),
            math.prod(iter((a, b))),
        ),
        (1.0, 2.0),
        (0.3, 1e20),
    )


@pytest.mark.parametrize(
    "function",
    [
        np.sqrt,
        np.exp,
        np.floor,
        np.isnan,
        np.sign,
        np.negative,
        np.square,
        np.modf,
        np.frexp,
        lambda k: np.maximum(k, 2),
        lambda k: np.minimum(3.5, k),
        lambda k: np.arctan2(k, k + 1),
        lambda k: np.power(k, 2),
        lambda k: np.divmod(k, 2),
        lambda k: np.float32(2) * k,
        lambda k: np.less(k, 2),
    ],
    ids=lambda f: getattr(f, "__name__", None),
)
@pytest.mark.parametrize("cls", [float, int, np.float32, np.int16])
def test_ufuncs(function, cls):
    check(function, *((cls(v),) for v in (1.5, 2.5, 7)))


@pytest.mark.parametrize(
    "function, values",
    [
        (abs, (-1.5, 2.5)),
        (round, (1.5, 2.5, -7.2)),
        (lambda k: round(k, 1), (1.55, 2.45)),
        (lambda k: divmod(k, 3), (7, -8)),
        (lambda k: divmod(7.5, k), (2.0, -0.7)),
        (lambda k: pow(k, 2), (3, -4)),
        (lambda k: pow(k, 2, 5), (3, 14)),
        (lambda k: pow(k, -1, 7), (3, 5)),
        (lambda k: (k.real, k.imag, k.conjugate()), (1 + 2j, -3j)),
        (lambda k: (k.real, k.imag, k.conjugate()), (1.5, -0.0)),
        (lambda k: (k.is_integer(), k.as_integer_ratio()), (1.5, 2.0, -0.25)),
        (lambda k: (k.bit_length(), k.bit_count(), k.numerator), (0, 255, -2)),
        (lambda k: (k.item(), k.real, k.is_integer()), tuple(np.float32([1.5, 3]))),
        (lambda k: (k.item(), k.bit_count()), tuple(np.int16([3, 1000]))),
        (lambda k: sum([k, k * 2, 1]), (1, 5)),
        (lambda k: (+k, -k, ~k, k << 1, k >> 1, k & 6, k | 1, k ^ 3), (5, -9)),
        (lambda k: operator.mod(k, 4), (7, -7)),
        (lambda k: (k < 2, k == 2, k != 2, k >= 2), (1, 2, 3)),
    ],
)
def test_builtins_and_methods(function, values):
    check(function, *((v,) for v in values))


def test_methods_that_the_class_lacks():
    for use in (lambda k: k.bit_length(), lambda k: k.item()):
        with pytest.raises(AttributeError, match="'float' has no attribute"):
            gj.graphed(use)(1.5)
    assert gj.graphed(lambda k: k * hasattr(k, "bit_length"))(3) == 3
    assert gj.graphed(lambda k: k * hasattr(k, "bit_length"))(3.0) == 0


def test_into_kernels():
    traced = []

    @gj.graphed
    def f(x, k, n):
        traced.append(1)
        out = gj.empty_like(x)
        scale[1, 32](x, out, math.sqrt(k) + sqrt(k) * floor(n / 2) + math.hypot(k, n))
        return out

    x = gj.ones(5)
    for k, n in ((2.0, 3), (0.5, -4), (9.0, 0)):
        expected = math.sqrt(k) + math.sqrt(k) * math.floor(n / 2) + math.hypot(k, n)
        assert (f(x, k, n).copy_to_host() == expected).all()
    assert len(traced) == 1


class Holder:
    """Has functions of math in its attributes."""

    def __init__(self):
        self.function = math.sqrt


TABLE = {"root": math.sqrt, "sine": math.sin}
LIST = [math.sqrt, math.sin]
HOLDER = Holder()


def helper(k):
    return sqrt(k)


def test_wherever_they_are_bound():
    cell = math.sqrt

    def nested(k):
        from math import sqrt as imported

        return cell(k) + imported(k)

    check(lambda k: helper(k) + nested(k), (2.0,), (3.0,))
    check(lambda k: TABLE["root"](k) + LIST[1](k) + HOLDER.function(k), (2.0,), (3.0,))
    assert TABLE == {"root": math.sqrt, "sine": math.sin} and TABLE["root"] is math.sqrt
    assert all(map(operator.is_, LIST, (math.sqrt, math.sin)))
    assert HOLDER.function is math.sqrt
    static = gj.graphed(lambda k, f: f(k), static_argnames="f")
    assert [static(2.0, f) for f in (math.sqrt, math.sin)] == [math.sqrt(2.0), math.sin(2.0)]


def test_where_they_are_not_found_they_raise():
    pair = (math.sqrt, math.sin)
    with pytest.raises(gj.ConcretizationError, match=r"functions of math.*math\.sqrt"):
        gj.graphed(lambda k: pair[0](k))(2.0)


def test_rebinding_one_is_noticed(monkeypatch):
    traced = []

    @gj.graphed
    def f(k):
        traced.append(1)
        return sqrt(k)

    assert f(4.0) == f(4.0) == 2.0
    monkeypatch.setattr(sys.modules[__name__], "sqrt", math.exp)
    assert f(4.0) == math.exp(4.0) and len(traced) == 2
    monkeypatch.undo()
    assert f(4.0) == 2.0 and len(traced) == 3


def test_rebinding_one_while_tracing_stays():
    namespace = {"math": math, "sqrt": math.sqrt, "other": math.exp}
    exec(
        "def f(k):\n    global sqrt, other\n    sqrt = abs\n    del other\n    return math.sin(k)",
        namespace,
    )
    gj.make_graph(namespace["f"])(1.0)
    assert namespace["sqrt"] is abs and "other" not in namespace


def test_in_control_flow():
    for use in (
        lambda k: 1 if math.isnan(k) else 2,
        lambda k: 1 if math.sqrt(k) > 1 else 2,
        lambda k: math.isclose(k, 1) and 2,
        lambda k: max(k, 1),
        lambda k: min(1, k),
        lambda k: range(math.floor(k)),
        lambda k: 1 if np.isnan(k) else 2,
        lambda k: 1 if k.is_integer() else 2,
    ):
        with pytest.raises(gj.ConcretizationError, match="static_argnames"):
            gj.graphed(use)(2.0)


def test_what_is_no_number_is_refused_as_ever():
    x = gj.ones(3)
    for use in (
        lambda x, k: math.sqrt(x),
        lambda x, k: math.hypot(k, x),
        lambda x, k: math.fsum(x),
        lambda x, k: sqrt(x[0]),
        lambda x, k: np.float32(k),
        lambda x, k: np.add(k, 1, out=np.zeros(())),
        lambda x, k: np.add.reduce(k),
        lambda x, k: np.add(k, 1, where=True),
    ):
        with pytest.raises(gj.ConcretizationError, match=r"test_scalars\.py"):
            gj.graphed(use)(x, 2.0)
    for use in (
        lambda k: math.sqrt(k, 1),
        lambda k: math.sqrt("text"),
        lambda k: math.sqrt([k]),
        lambda k: math.sqrt({1: k}),
        lambda k: math.isclose(k, 1, no=2),
        lambda k: math.factorial(k),
    ):
        with pytest.raises(TypeError) as eager:
            use(2.5)
        with pytest.raises(TypeError) as traced:
            gj.graphed(use)(2.5)
        assert str(traced.value) == str(eager.value)


def test_a_tracer_used_after_its_trace():
    kept = []
    gj.make_graph(kept.append)(2.0)
    for use in (lambda k: math.sqrt(k), lambda k: np.sqrt(k), lambda k: k.real, divmod):
        with pytest.raises(gj.LeakedTracerError):
            use(*kept) if use is not divmod else divmod(kept[0], 2)
    with pytest.raises(gj.LeakedTracerError):
        gj.graphed(lambda k: k * math.sqrt(kept[0]))(1.0)


def test_errors_of_a_call():
    x = gj.zeros(3)

    @gj.graphed
    def f(x, k):
        x[...] = 7.0
        root = math.sqrt(k)
        scale[1, 32](x, x, root)
        return root

    assert f(x, 4.0) == 2.0
    x[...] = 1.0
    with pytest.raises(ValueError, match="math domain error") as info:
        f(x, -1.0)
    assert noted(info.value) == "sqrt(-1.0)"
    assert (x.copy_to_host() == 1).all()
    assert f(x, 9.0) == 3.0 and (x.copy_to_host() == 21).all()


def noted(error):
    """The expression that an error's note names, with a line of this file."""
    (note,) = error.__notes__
    expression, where = note.strip().removeprefix("in ").split(", at ")
    assert "test_scalars.py:" in where
    return expression


@pytest.mark.parametrize(
    "function, good, bad, error",
    [
        (lambda k: 1 / k, 2, 0, ZeroDivisionError),
        (lambda k: math.exp(k), 2.0, 1e4, OverflowError),
        (lambda k: math.factorial(k), 3, -1, ValueError),
        (lambda k: math.log(2.0, k), 2.0, 1.0, ZeroDivisionError),
        (lambda k: 1 << k, 3, -1, ValueError),
        (lambda k: math.sqrt(k << 2000), 0, 1, OverflowError),
    ],
)
def test_each_error_is_pythons_own(function, good, bad, error):
    f = gj.graphed(function)
    assert f(good) == function(good)
    with pytest.raises(error) as eager:
        function(bad)
    with pytest.raises(error) as traced:
        f(bad)
    assert str(traced.value) == str(eager.value)
    noted(traced.value)


def test_errors_that_no_value_avoids():
    with pytest.raises(ValueError, match="math domain error") as info:
        gj.graphed(lambda k: math.fmod(k, 0))(1.0)
    assert "test_scalars.py" in info.value.__notes__[0]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_ends_the_standing_in(error):
    def f(k):
        math.sqrt(k)
        helper(k)
        raise error

    with pytest.raises(error):
        gj.graphed(f)(1.0)


def test_graphs_compare():
    def graph(function):
        return gj.make_graph(function)(1.0)

    assert graph(lambda k: math.sqrt(k)) == graph(lambda k: sqrt(k))
    assert graph(lambda k: math.sqrt(k)) != graph(lambda k: cmath.sqrt(k))
    assert graph(lambda k: math.fsum([k, 1])) == graph(lambda k: math.fsum((k, 1)))
    assert graph(lambda k: math.isclose(k, 1, rel_tol=2)) != graph(
        lambda k: math.isclose(k, 1, abs_tol=2)
    )
    assert hash(graph(lambda k: math.modf(k))) == hash(graph(lambda k: math.modf(k)))
    text = str(graph(lambda k: divmod(math.hypot(k, 2), 3)))
    assert "%1: float = hypot(k, 2)" in text and "%3: float = divmod[1](%1, 3)" in text


def test_other_functions_during_a_trace():
    outcomes = []
    hidden = (math.sqrt,)
    pickled = pickle.dumps(math.sqrt)

    def f(k):
        (original,) = hidden
        outcomes.append(math.sqrt(2.0))
        outcomes.append((pickle.dumps([math.sqrt, original, len]), copy.deepcopy(math.sqrt)))
        outcomes.append({sqrt: 1}[math.sqrt] + {math.exp: 2}[math.exp])
        outcomes.append((repr(math.sqrt), math.sqrt.__name__, math.sqrt == sqrt))
        for bad in (lambda: math.sqrt(-1), lambda: math.sqrt("text"), lambda: math.isclose(1)):
            try:
                bad()
            except (ValueError, TypeError) as error:
                outcomes.append(str(error))
        return math.sqrt, k

    returned, _ = gj.graphed(f)(1.0)
    assert returned is math.sqrt
    assert outcomes[0] == math.sqrt(2.0)
    assert pickle.loads(outcomes[1][0]) == [math.sqrt, math.sqrt, len]
    assert outcomes[1][1] == math.sqrt and pickle.dumps(math.sqrt) == pickled
    assert outcomes[2] == 3
    assert outcomes[3] == ("<built-in function sqrt>", "sqrt", True)
    expected = []
    for bad in (lambda: math.sqrt(-1), lambda: math.sqrt("text"), lambda: math.isclose(1)):
        with pytest.raises((ValueError, TypeError)) as info:
            bad()
        expected.append(str(info.value))
    assert outcomes[4:] == expected


def test_a_module_first_imported_during_a_trace(tmp_path, monkeypatch):
    (tmp_path / "imported_while_tracing.py").write_text(
        "from math import sqrt\ndef root(k):\n    return sqrt(k)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    @gj.graphed
    def f(k):
        import imported_while_tracing

        return imported_while_tracing.root(k)

    assert [f(4.0), f(9.0)] == [2.0, 3.0]
    assert sys.modules.pop("imported_while_tracing").sqrt is math.sqrt


# -- kernels that are compiled during a trace ------------------------------------------------------


def kernels():
    """Fresh kernels that call math.sin in each of the ways there are."""
    bound = math.sin

    @cuda.jit
    def by_module(x):
        x[0] = math.sin(x[0])

    @cuda.jit
    def by_name(x):
        x[0] = sin(x[0])

    @cuda.jit
    def by_cell(x):
        x[0] = bound(x[0])

    @cuda.jit(device=True)
    def device_function(v):
        return math.sin(v)

    @cuda.jit
    def by_device_function(x):
        x[0] = device_function(x[0])

    return by_module, by_name, by_cell, by_device_function


def hosts():
    """Fresh functions for Numba's CPU target."""
    bound = math.sin

    @numba.njit
    def by_module(v):
        return math.sin(v)

    @numba.njit
    def by_name(v):
        return sin(v)

    @numba.njit
    def by_cell(v):
        return bound(v)

    return by_module, by_name, by_cell


@pytest.mark.parametrize("inside", [True, False])
def test_kernels_compiled_during_a_trace(inside):
    made = kernels()

    @gj.graphed
    def f(x, k):
        sine = sin(k)  # binds the stand-in to this module's name too
        for kernel in kernels() if inside else made:
            kernel[1, 1](x)
        return sine

    for _ in range(2):
        x = gj.full(1, 0.5)
        assert f(x, 2.0) == math.sin(2.0)
        expected = math.sin(math.sin(math.sin(math.sin(0.5))))
        assert x.item() == pytest.approx(expected, rel=1e-15)


def test_host_functions_compiled_during_a_trace():
    made = hosts()
    results = []
    gj.make_graph(lambda k: [results.append(h(0.5)) for h in (*made, *hosts())] and sin(k))(1.0)
    assert results == pytest.approx([math.sin(0.5)] * 6, rel=1e-15)


def in_thread(function):
    """Run to the end on another thread; raises what the function raises."""
    outcome = []

    def run():
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def test_another_thread_compiles_during_a_trace():
    results = []

    def compile_and_run():
        with gj.use_backend("cpu"):
            for kernel in kernels():
                x = gj.full(1, 0.5)
                kernel[1, 1](x)
                results.append(x.item())
        results.extend(host(0.5) for host in hosts())

    gj.make_graph(lambda k: (sin(k), in_thread(compile_and_run)))(1.0)
    assert results == pytest.approx([math.sin(0.5)] * 7, rel=1e-15)


def test_other_threads_work_as_ever_during_a_trace():
    traced = []

    @gj.graphed
    def before(k):
        traced.append("before")
        return sqrt(k) + TABLE["sine"](k)

    @gj.graphed
    def during(k):
        traced.append("during")
        return sqrt(k) + TABLE["sine"](k)

    def work():
        assert math.sqrt(2.0) == sqrt(2.0) == 2.0**0.5
        # The other trace's stand-ins are no change of what this function has bound, nor kept.
        return before(4.0) + during(9.0)

    @gj.graphed
    def f(k):
        return TABLE["root"](k) * sqrt(k) + in_thread(work)

    before(2.0)
    assert f(4.0) == 4.0 + (2.0 + math.sin(4.0) + (3.0 + math.sin(9.0)))
    assert before(9.0) == during(9.0) == 3.0 + math.sin(9.0)
    assert traced == ["before", "during"]


def test_traces_that_overlap_in_time():
    inside, ended = threading.Event(), threading.Event()
    results = []

    @gj.graphed
    def longer(k):
        inside.set()
        assert ended.wait(60)
        return math.sqrt(k) + sqrt(k)

    thread = threading.Thread(target=lambda: results.append(longer(4.0)))

    @gj.graphed
    def shorter(k):
        thread.start()
        assert inside.wait(60)
        return sqrt(k)

    assert shorter(9.0) == 3.0
    ended.set()
    thread.join()
    assert results == [4.0]


def test_a_trace_inside_a_trace():
    def f(k):
        graph = gj.make_graph(lambda j: sqrt(j) + math.sin(j))(1.0)
        return sqrt(k) * len(graph.scalars)

    assert gj.graphed(f)(4.0) == 8.0


def test_graphed_functions_inside_graphed_functions():
    root = gj.graphed(lambda k: sqrt(k) + math.cos(k))
    check(lambda k: root(k) * 2, (2.0,), (3.0,))


def test_the_first_compilation_of_a_process_during_a_trace():
    """Numba then loads its own tables of functions, from modules that find the stand-ins."""
    code = """
import math
import numba
from numba import cuda
import graphjit as gj

@cuda.jit
def first(x, k):
    x[0] = math.sin(x[0]) + math.log(k)

@cuda.jit
def second(x, k):
    x[0] = math.sin(x[0]) + math.hypot(k, 1.0)

@gj.graphed
def f(x, k):
    first[1, 1](x, math.exp(k))
    assert abs(numba.njit(lambda v: math.cos(v))(0.5) - math.cos(0.5)) < 1e-15
    return math.sqrt(k)

x = gj.zeros(1)
assert f(x, 4.0) == 2.0 and abs(x.item() - 4.0) < 1e-14
second[1, 1](x, 2.0)
assert abs(x.item() - math.sin(4.0) - math.hypot(2.0, 1.0)) < 1e-14
assert abs(numba.njit(lambda v: math.tan(v))(0.5) - math.tan(0.5)) < 1e-15
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "GRAPHJIT_BACKEND": "cpu"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
