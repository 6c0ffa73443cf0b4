"""Kernels whose threads wait for each other, on the CPU: in lockstep where that is proved."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda, int64

from graphjit.backends.cpu.codegen import compile_kernel

from .test_cpu_codegen import ir_of, run

_FULL = 0xFFFFFFFF
_MOST = 128


def lockstep(kernel: Any, *args: Any) -> bool:
    return compile_kernel(ir_of(kernel, *args)).lockstep


@cuda.jit
def tree(x):
    shared = cuda.shared.array(_MOST, int64)
    t = cuda.threadIdx.x
    shared[t] = x[t]
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            shared[t] += shared[t + half]
        cuda.syncthreads()
        half //= 2
    x[t] = shared[0]


@cuda.jit
def returns_early(x):
    shared = cuda.shared.array(_MOST, int64)
    t = cuda.threadIdx.x
    if t >= x.size:
        return
    shared[t] = x[t]
    cuda.syncthreads()
    x[t] = shared[x.size - 1 - t]


@cuda.jit
def as_memory_says(x):
    shared = cuda.shared.array(_MOST, int64)
    t = cuda.threadIdx.x
    for _ in range(x[0]):
        cuda.syncthreads()
        shared[t] = x[t]
        cuda.syncthreads()
        x[t] += shared[cuda.blockDim.x - 1 - t]


@cuda.jit
def one_warp(x):
    t = cuda.threadIdx.x
    if t < 32:
        x[t] = cuda.shfl_xor_sync(_FULL, x[t], 1)
    cuda.syncthreads()


@cuda.jit
def halves(x):
    t = cuda.threadIdx.x
    mask = 0xFFFF if t % 32 < 16 else 0xFFFF0000
    x[t] += cuda.ballot_sync(mask, t % 3 == 0)


@cuda.jit
def given_number(x, n):
    shared = cuda.shared.array(_MOST, int64)
    t = cuda.threadIdx.x
    for k in range(n):
        if k % 3 == 1:
            continue
        shared[t] = x[t] + k
        cuda.syncthreads()
        x[t] = shared[(t + 1) % cuda.blockDim.x]
        cuda.syncthreads()
        if k == 8:
            break


@pytest.mark.parametrize(
    ("kernel", "args", "expected"),
    [
        (tree, (), True),
        (given_number, (9,), True),
        (halves, (), True),
        (returns_early, (), False),
        (as_memory_says, (), False),
        (one_warp, (), False),
    ],
)
def test_lockstep_is_proved_where_only_parameters_decide(kernel, args, expected):
    assert lockstep(kernel, np.arange(64), *args) is expected


def test_results_of_both():
    x = np.arange(1, 65)
    run(tree, 1, 64, x)
    assert (x == 64 * 65 // 2).all()
    x = np.arange(50)
    run(returns_early, 1, 64, x)
    np.testing.assert_array_equal(x, np.arange(50)[::-1])
    x = np.full(64, 3)
    run(as_memory_says, 1, 64, x)
    assert (x == 24).all()
    x = np.arange(64)
    run(one_warp, 1, 64, x)
    np.testing.assert_array_equal(x, [*(np.arange(32) ^ 1), *range(32, 64)])
    x, want = np.arange(64), np.arange(64)
    run(given_number, 1, 64, x, 12)
    for k in (0, 2, 3, 5, 6, 8):
        want = np.roll(want + k, -1)
    np.testing.assert_array_equal(x, want)
    x = np.zeros(70, np.int64)
    run(halves, 1, 70, x)
    for t, found in enumerate(x):
        group = range(t - t % 16, min(t - t % 16 + 16, 70))
        assert found & _FULL == sum(1 << m % 32 for m in group if m % 3 == 0)


# Random kernels: each statement is written as code for a thread and done by NumPy for all threads.
# `u` and `k` are shared by a block, `a` and `b` each thread's own.


@dataclass
class Code:
    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


@dataclass
class State:
    t: np.ndarray[Any, Any]
    a: np.ndarray[Any, Any]
    b: np.ndarray[Any, Any]
    u: int
    n: int


@dataclass(frozen=True)
class Statement:
    kind: str
    c: int
    body: tuple[Statement, ...] = ()

    def write(self, code: Code) -> None:
        c = self.c
        if self.kind == "exchange":
            code.add("cuda.syncthreads()")
            code.add("s[t] = a")
            code.add("cuda.syncthreads()")
            code.add(f"b += s[(t + {c}) % B]")
        elif self.kind == "shuffle":
            code.add(f"b -= cuda.shfl_xor_sync(0xFFFFFFFF, a, {c % 32})")
        elif self.kind == "count":
            code.add(f"b += cuda.syncthreads_count(1 if a % 7 > {c % 7} else 0)")
        elif self.kind == "own":
            code.add(f"a = (a * 3 + b + u + {c}) % 1009")
        elif self.kind == "shared":
            code.add(f"u = (u * 5 + {c}) % 101")
        elif self.kind == "some":
            code.add(f"if (a + t) % {c + 2} == 0:")
            code.add(f"    b += u + {c}")
            code.add("else:")
            code.add("    a += 1")
        else:
            head = {
                "loop": f"for _ in range({c % 4}):",
                "given": f"for _ in range((n + {c}) % 4):",
                "if": f"if u % 3 != {c % 3}:",
            }[self.kind]
            code.add(head)
            code.depth += 1
            code.add("u += 1")
            for statement in self.body:
                statement.write(code)
            code.depth -= 1

    def do(self, s: State) -> None:
        c, size = self.c, s.t.size
        if self.kind == "exchange":
            s.b = s.b + s.a[(s.t + c) % size]
        elif self.kind == "shuffle":
            s.b = s.b - s.a[s.t ^ (c % 32)]
        elif self.kind == "count":
            s.b = s.b + int((s.a % 7 > c % 7).sum())
        elif self.kind == "own":
            s.a = (s.a * 3 + s.b + s.u + c) % 1009
        elif self.kind == "shared":
            s.u = (s.u * 5 + c) % 101
        elif self.kind == "some":
            chosen = (s.a + s.t) % (c + 2) == 0
            s.b = np.where(chosen, s.b + s.u + c, s.b)
            s.a = np.where(chosen, s.a, s.a + 1)
        else:
            times = {"loop": c % 4, "given": (s.n + c) % 4, "if": int(s.u % 3 != c % 3)}[self.kind]
            for _ in range(times):
                s.u += 1
                for statement in self.body:
                    statement.do(s)


_numbers = st.integers(0, 40)
_simple = st.builds(
    Statement, st.sampled_from("exchange shuffle count own shared some".split()), _numbers
)
_inner = st.builds(
    Statement,
    st.sampled_from("loop given if".split()),
    _numbers,
    st.lists(_simple, max_size=4).map(tuple),
)
_nested = st.builds(
    Statement,
    st.sampled_from("loop given if".split()),
    _numbers,
    st.lists(_simple | _inner, max_size=3).map(tuple),
)


def kernel_of(statements: list[Statement]) -> Any:
    code = Code(["def kernel(x, n):"])
    code.add(f"s = cuda.shared.array({_MOST}, int64)")
    code.add("t, B = cuda.threadIdx.x, cuda.blockDim.x")
    code.add("i = cuda.grid(1)")
    code.add("a, b, u = x[i], t, n % 11")
    for statement in statements:
        statement.write(code)
    code.add("x[i] = a * 100003 + b * 101 + u")
    source = "\n".join(code.lines) + "\n"
    name = f"<{hash(source)}>"
    # Numba reads a function's source.
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope: dict[str, Any] = {"cuda": cuda, "int64": int64}
    exec(compile(source, name, "exec"), scope)
    return cuda.jit(scope["kernel"])


@settings(max_examples=25, deadline=None)
@given(
    statements=st.lists(_simple | _nested, min_size=1, max_size=6),
    size=st.sampled_from((32, 64, 96, 128)),
    n=st.integers(0, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_kernels_against_numpy(statements, size, n, seed):
    kernel = kernel_of(statements)
    x = np.random.default_rng(seed).integers(0, 1000, 3 * size)
    want = []
    for block in x.reshape(3, size):
        state = State(np.arange(size), block.copy(), np.arange(size), n % 11, n)
        for statement in statements:
            statement.do(state)
        want.append(state.a * 100003 + state.b * 101 + state.u)
    # How often a loop runs is no more than a parameter says, and so known to be the same for all.
    assert lockstep(kernel, x, n) or not compile_kernel(ir_of(kernel, x, n)).has_barriers
    run(kernel, 3, size, x, n, pieces=2)
    np.testing.assert_array_equal(x, np.concatenate(want))
