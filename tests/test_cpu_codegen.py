"""One kernel compiled for the CPU: what it computes, what it refuses, what it leaves alone."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import math
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba import cuda
from numba.cuda import libdevice, libdevicefuncs, types
from numba.cuda.np.numpy_support import from_dtype

import graphjit as gj
from graphjit._errors import UnsupportedKernelError
from graphjit.backends.cpu import host, runtime
from graphjit.backends.cpu.codegen import check_kernel, compile_kernel
from graphjit.kernel import half
from graphjit.kernel import libdevice as host_libdevice
from graphjit.kernel.frontend import kernel_ir
from graphjit.kernel.ir import KernelIR

from .cases import CASES, check_case

_FUNCTION = ctypes.CFUNCTYPE(
    None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p, ctypes.c_int32
)
_FULL = 0xFFFFFFFF
_GUARD = 0xA5


def ir_of(kernel: Any, *args: Any) -> KernelIR:
    return kernel_ir(kernel, tuple(_type(kernel, value) for value in args))


def run(
    kernel: Any,
    grid: Any,
    block: Any,
    *args: Any,
    dynamic: int = 0,
    fast_axis: str = "x",
    workers: int = 1,
    pieces: int = 1,
) -> None:
    """Run all blocks, in `pieces` ranges spread over `workers` threads."""
    ir = ir_of(kernel, *args)
    native = compile_kernel(ir, fast_axis)
    values: list[Any] = []
    backs: list[tuple[Any, Any]] = []
    for type_, value in zip(ir.argtypes, args, strict=True):
        values += _pack(type_, value, backs)
    params = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(v) for v in values])
    sizes = [*_triple(block), *_triple(grid)]
    dims = (ctypes.c_int32 * 6)(*sizes)
    blocks, threads = math.prod(sizes[3:]), math.prod(sizes[:3])
    size = native.scratch_bytes(threads, dynamic)
    function = _FUNCTION(native.address)

    def work(piece: int) -> None:
        memory = np.full(size + 256, _GUARD, np.uint8)
        start = -memory.ctypes.data % 64 + 64
        begin, end = (blocks * k // pieces for k in (piece, piece + 1))
        address = memory.ctypes.data + start
        function(ctypes.addressof(params), ctypes.addressof(dims), begin, end, address, dynamic)
        assert (memory[:start] == _GUARD).all() and (memory[start + size :] == _GUARD).all()

    if workers == 1:
        for piece in range(pieces):
            work(piece)
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, range(pieces)))
    for record, copy in backs:
        for name in record.dtype.names:
            record[name] = copy[0][name]


def _triple(size: Any) -> tuple[int, int, int]:
    values = (*(size if isinstance(size, tuple) else (size,)), 1, 1)
    return values[0], values[1], values[2]


def _type(kernel: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        flags = value.flags
        order = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return types.Array(from_dtype(value.dtype), value.ndim, order, not flags.writeable)
    if type(value) is tuple:
        return types.Tuple([_type(kernel, element) for element in value])
    return kernel.typeof_pyval(value)


def _pack(type_: Any, value: Any, backs: list[tuple[Any, Any]]) -> list[Any]:
    if isinstance(type_, types.BaseTuple):
        pairs = zip(type_, value, strict=True)
        return [part for element, v in pairs for part in _pack(element, v, backs)]
    if isinstance(value, np.ndarray):
        numbers = [0, 0, value.size, value.itemsize, value.ctypes.data]
        return [ctypes.c_int64(n) for n in (*numbers, *value.shape, *value.strides)]
    if isinstance(value, np.void):
        copy = np.array([value])
        backs.append((value, copy))
        return [ctypes.c_void_p(copy.ctypes.data)]
    data = np.array(value, from_numba(type_)).tobytes()
    half_size = len(data) // 2
    parts = [data[:half_size], data[half_size:]] if isinstance(type_, types.Complex) else [data]
    return [ctypes.create_string_buffer(part, len(part)) for part in parts]


def from_numba(type_: Any) -> np.dtype[Any]:
    return np.dtype(str(type_))


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Any, pieces: int) -> None:
    if "grid_sync" in case.features:
        pytest.skip("a grid-wide barrier is refused")

    def launch(kernel: Any, config: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
        dynamic = config[3] if len(config) > 3 else 0
        axis = "x" if pieces == 1 else "y"
        run(kernel, config[0], config[1], *args, dynamic=dynamic, pieces=pieces, fast_axis=axis)
        return args

    check_case(case, 11 + pieces, launch)


@cuda.jit
def place(out):
    x, y, z = cuda.grid(3)
    if x < out.shape[0] and y < out.shape[1] and z < out.shape[2]:
        out[x, y, z] += x * 10000 + y * 100 + z


@cuda.jit
def place_apart(out):
    x, y, z = cuda.grid(3)
    if x < out.shape[0] and y < out.shape[1] and z < out.shape[2]:
        out[x, y, z] += (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * 10000
        out[x, y, z] += y * 100 + z + 0 * cuda.threadIdx.y


@pytest.mark.parametrize("fast_axis", ["x", "y"])
@pytest.mark.parametrize("pieces", [1, 2, 7, 60])
@pytest.mark.parametrize("kernel", [place, place_apart], ids=["flat", "nested"])
def test_every_thread_runs_once(kernel: Any, pieces: int, fast_axis: str) -> None:
    out = np.zeros((17, 11, 9), np.int64)
    run(kernel, (5, 4, 3), (4, 3, 3), out, pieces=pieces, fast_axis=fast_axis)
    i, j, k = np.indices(out.shape)
    np.testing.assert_array_equal(out, i * 10000 + j * 100 + k)


@cuda.jit
def early_return(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    if x[i] < 0:
        out[i] = 0
        return
    out[i] = math.sqrt(x[i])


@pytest.mark.parametrize("size", [0, 1, 31, 1000])
def test_early_returns(size: int) -> None:
    x = np.linspace(-1, 5, size).astype(np.float32)
    out = np.full(size, 7, np.float32)
    run(early_return, max(1, -(-size // 64)), 64, x, out)
    np.testing.assert_array_equal(out, np.sqrt(np.maximum(x, 0)))


@cuda.jit
def two_halves(out):
    lane = cuda.laneid
    value = lane
    if lane < 16:
        for _ in range(3):
            value += cuda.shfl_xor_sync(0x0000FFFF, value, 1)
    else:
        for _ in range(5):
            value += cuda.shfl_xor_sync(0xFFFF0000, value, 2)
    out[cuda.grid(1)] = value + cuda.shfl_sync(_FULL, lane, 31)


def test_halves_of_a_warp_shuffle_apart() -> None:
    out = np.zeros(64, np.int64)
    run(two_halves, 1, 64, out)
    value = np.arange(32)
    low, high = value[:16].copy(), value[16:].copy()
    for _ in range(3):
        low = low + low[np.arange(16) ^ 1]
    for _ in range(5):
        high = high + high[np.arange(16) ^ 2]
    np.testing.assert_array_equal(out, np.tile(np.concatenate([low, high]) + 31, 2))


@cuda.jit
def own_masks(out):
    lane = cuda.laneid
    mask = 0xF << (lane // 4 * 4)
    out[lane] = cuda.ballot_sync(mask, lane % 2)


def test_groups_of_one_place_keep_their_masks() -> None:
    out = np.zeros(32, np.uint32)
    run(own_masks, 1, 32, out)
    groups = np.arange(32) // 4 * 4
    np.testing.assert_array_equal(out, 0b1010 << groups)


@cuda.jit
def active(out):
    lane = cuda.laneid
    if lane % 3 == 0:
        out[lane] = cuda.activemask()
    else:
        out[lane] = cuda.lanemask_lt()


def test_activemask_is_of_those_who_are_there() -> None:
    out = np.zeros(20, np.uint32)
    run(active, 1, 20, out)
    lanes = np.arange(20)
    there = sum(1 << lane for lane in range(0, 20, 3))
    np.testing.assert_array_equal(out, np.where(lanes % 3 == 0, there, (1 << lanes) - 1))


@cuda.jit
def uneven(rounds, out):
    shared = cuda.shared.array(64, types.int32)
    t = cuda.threadIdx.x
    local = cuda.local.array(5, types.int32)
    for k in range(5):
        local[k] = t + k
    shared[t] = t
    if t < rounds.size:
        for k in range(rounds[t]):
            cuda.syncthreads()
            local[k % 5] += shared[(t + 1) % rounds.size]
        total = 0
        for k in range(5):
            total += local[k]
        out[t] = total


def test_threads_may_leave_a_barrier_loop_at_different_times() -> None:
    rounds = np.random.default_rng(0).integers(0, 9, 50).astype(np.int32)
    out = np.zeros(50, np.int32)
    run(uneven, 1, 64, rounds, out)
    t = np.arange(50)
    np.testing.assert_array_equal(out, 5 * t + 10 + rounds * ((t + 1) % 50))


@cuda.jit
def votes_2d(out):
    t = cuda.threadIdx.x + cuda.blockDim.x * cuda.threadIdx.y
    if t == 5:
        return
    count = cuda.syncthreads_count(t % 3)
    every = cuda.syncthreads_and(t + 1)
    some = cuda.syncthreads_or(types.int32(t == 5))
    out[t] = count * 100 + (every != 0) * 10 + (some != 0)


def test_reducing_barriers_count_who_is_left() -> None:
    out = np.zeros(42, np.int32)
    run(votes_2d, 1, (7, 6), out)
    expected = np.full(42, 100 * (28 - 1) + 10)
    expected[5] = 0
    np.testing.assert_array_equal(out, expected)


@cuda.jit
def sum_all(x, total, low, high):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(total, 0, x[i])
        cuda.atomic.min(low, 0, x[i])
        cuda.atomic.max(high, 0, x[i])


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64])
def test_atomics_hold_between_threads(dtype: Any) -> None:
    x = np.random.default_rng(1).integers(-8, 8, 20000).astype(dtype)
    total, low, high = (np.zeros(1, dtype) for _ in range(3))
    run(sum_all, 79, 256, x, total, low, high, workers=4, pieces=16)
    assert (total[0], low[0], high[0]) == (x.sum(), x.min(), x.max())


@cuda.jit
def narrow(values, out):
    i = cuda.grid(1)
    if i < values.size:
        out[i] = types.float16(values[i])


def test_double_rounds_to_half_once() -> None:
    rng = np.random.default_rng(2)
    exact = rng.uniform(-3, 3, 2000).astype(np.float16).astype(np.float64)
    ties = exact * (1 + 2.0**-11)
    values = np.concatenate(
        [exact, ties, ties * (1 + 2e-16), ties * (1 - 2e-16), rng.normal(size=999) * 1e4]
    )
    values = np.append(values, [0.0, 1e-300, -1e-300, 6e-8, 65520.0, 65519.99, np.inf, -np.inf])
    out = np.zeros(values.size, np.float16)
    run(narrow, -(-values.size // 128), 128, values, out)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(out, values.astype(np.float16))


@cuda.jit
def speak(x):
    i = cuda.grid(1)
    if i < x.size:
        print("thread", i, "has", x[i], x[i] > 0.5, types.uint8(200))


def test_print_keeps_lines_whole(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.linspace(0, 1, 200)
    run(speak, 25, 8, x, workers=4, pieces=25)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == sorted(
        f"thread {i} has {v:f} {bool(v > 0.5)} 200" for i, v in enumerate(x)
    )


@cuda.jit
def hinted(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.stcs(out, i, cuda.ldcg(x, i) + cuda.ldca(x, (i,)))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.float32, np.float64])
def test_cache_hints(dtype: Any) -> None:
    x = np.arange(50).astype(dtype)
    out = np.zeros_like(x)
    run(hinted, 1, 64, x, out)
    np.testing.assert_array_equal(out, 2 * x)


@cuda.jit
def spin_in_order(turn, out):
    i = cuda.grid(1)
    while cuda.atomic.cas(turn, 0, i, i) != i:
        pass
    out[i] = turn[0]
    cuda.atomic.add(turn, 0, 1)


def test_blocks_may_wait_for_earlier_ones() -> None:
    turn, out = np.zeros(1, np.int64), np.zeros(96, np.int64)
    run(spin_in_order, 6, 16, turn, out, workers=2, pieces=2)
    np.testing.assert_array_equal(out, np.arange(96))


@cuda.jit
def ticks(out):
    cuda.nanosleep(types.uint32(10))
    cuda.threadfence()
    out[cuda.grid(1)] = cuda.warpsize


def test_sleep_and_fence() -> None:
    out = np.zeros(3, np.int32)
    run(ticks, 1, 3, out)
    assert out.tolist() == [32] * 3


def test_scratch_holds_shared_memory_and_frames() -> None:
    @cuda.jit
    def plain(x):
        x[cuda.grid(1)] = 1

    native = compile_kernel(ir_of(plain, np.zeros(1)))
    assert not native.has_barriers and native.static_shared == 0
    assert native.scratch_bytes(256, 100) == 128
    native = compile_kernel(ir_of(uneven, *[np.zeros(1, np.int32)] * 2))
    assert native.has_barriers and native.static_shared == 256
    assert native.scratch_bytes(1024, 0) > native.scratch_bytes(64, 0) > 256


def test_compiled_once_for_each_axis_and_dropped_with_the_kernel() -> None:
    ir = ir_of(place, np.zeros((1, 1, 1), np.int64))
    assert compile_kernel(ir) is compile_kernel(ir, "x")
    assert compile_kernel(ir, "y") is not compile_kernel(ir)
    waits = ir_of(uneven, *[np.zeros(1, np.int32)] * 2)
    assert compile_kernel(waits, "y") is compile_kernel(waits)

    copy = dataclasses.replace(ir)
    native = weakref.ref(compile_kernel(copy))
    assert native() is not None
    del copy
    gc.collect()
    assert native() is None


def test_compiles_from_several_threads() -> None:
    ir = ir_of(early_return, *[np.zeros(1, np.float32)] * 2)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(compile_kernel(ir))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(native) for native in found}) == 1


def refused(kernel: Any, *args: Any) -> str:
    ir = ir_of(kernel, *args)
    with pytest.raises(UnsupportedKernelError) as caught:
        check_kernel(ir)
    with pytest.raises(UnsupportedKernelError):
        compile_kernel(ir)
    message = str(caught.value)
    assert kernel.py_func.__name__ in message and "cuda backend" in message
    return message


def test_refuses_grid_barriers() -> None:
    @cuda.jit
    def whole_grid(x):
        cuda.cg.this_grid().sync()
        x[0] = 1

    assert "grid-wide synchronisation" in refused(whole_grid, np.zeros(1))


def test_refuses_linked_code() -> None:
    source = cuda.CUSource('extern "C" __device__ int twice(int *r, int x) { return 0; }')
    twice = cuda.declare_device("twice", "int32(int32)", link=source)

    @cuda.jit
    def foreign(x):
        x[0] = twice(x[0])

    assert "CUDA C file" in refused(foreign, np.zeros(1, np.int32))


def test_refuses_functions_nobody_defines() -> None:
    unknown = cuda.declare_device("unknown_function", "int32(int32)")

    @cuda.jit
    def calls(x):
        x[0] = unknown(x[0])

    assert "unknown_function" in refused(calls, np.zeros(1, np.int32))


def test_refuses_barriers_in_recursion() -> None:
    @cuda.jit(device=True)
    def descend(n):
        cuda.syncthreads()
        if n <= 0:
            return types.int64(0)
        return descend(n - 1) + 1

    @cuda.jit
    def dives(x):
        x[0] = descend(x[0])

    with pytest.raises(UnsupportedKernelError, match="recursive"):
        compile_kernel(ir_of(dives, np.zeros(1, np.int64)))


def test_refuses_foreign_assembly() -> None:
    @cuda.jit
    def stops(x):
        breakpoint()
        x[0] = 1

    assert "inline assembly 'brkpt;'" in refused(stops, np.zeros(1))


def test_refuses_libdevice_functions_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    @cuda.jit
    def cube_root(x):
        x[0] = libdevice.cbrt(x[0])

    ir = ir_of(cube_root, np.zeros(1))
    monkeypatch.delitem(host_libdevice.DEFINITIONS, "__nv_cbrt")
    runtime.exists.cache_clear()
    with pytest.raises(UnsupportedKernelError, match="libdevice function __nv_cbrt"):
        check_kernel(ir)


def test_libdevice_is_complete() -> None:
    assert set(host_libdevice.DEFINITIONS) == set(libdevicefuncs.functions)
    machine = host.target_machine()
    host.parse(runtime.definitions(libdevicefuncs.functions), machine)
    assert all(runtime.exists(name) for name in libdevicefuncs.functions)


def test_half_functions_parse() -> None:
    machine = host.target_machine()
    host.parse(runtime.definitions(half.DEFINITIONS), machine)
    assert half.definition("_ZplRK6__halfS1__nbst") is not None
    assert half.definition("something_else") is None


def call(name: str, *values: Any) -> Any:
    """Call one libdevice function of scalars."""
    returns, parameters = libdevicefuncs.functions[name]
    names = {"float32": "float", "float64": "double", "int16": "i16", "int32": "i32"}
    to_llvm = {**names, "int64": "i64"}
    to_c = {"float32": ctypes.c_float, "float64": ctypes.c_double}
    kinds = [str(p.ty) for p in parameters]
    declared = ", ".join(f"{to_llvm[k]} %p{i}" for i, k in enumerate(kinds))
    result = to_llvm[str(returns)]
    text = runtime.definitions([name]) + (
        f"\ndefine {result} @test.call({declared}) {{\n"
        f"  %r = call {result} @{name}({declared})\n  ret {result} %r\n}}"
    )
    machine = host.target_machine()
    module = host.parse(text, machine)
    for function in module.functions:
        if function.is_declaration and not llvm.address_of_symbol(function.name):
            runtime.callbacks.provide(function.name)
    engine = host.compile_module(module, machine)
    convert = [to_c.get(k) or getattr(ctypes, f"c_{k}") for k in (str(returns), *kinds)]
    return ctypes.CFUNCTYPE(*convert)(engine.get_function_address("test.call"))(*values)


@pytest.mark.parametrize("mode", ["rn", "rz", "ru", "rd"])
@pytest.mark.parametrize("prefix", ["f", "d"])
def test_rounding_modes(prefix: str, mode: str) -> None:
    third = call(f"__nv_{prefix}div_{mode}", -1.0, 3.0)
    nearest = float(np.float32(-1) / np.float32(3)) if prefix == "f" else -1.0 / 3.0
    dtype = np.float32 if prefix == "f" else np.float64
    # -1/3 rounds to nearest away from zero in single and toward zero in double.
    away = nearest if prefix == "f" else float(np.nextafter(dtype(nearest), dtype(-1)))
    toward = float(np.nextafter(dtype(nearest), dtype(0))) if prefix == "f" else nearest
    assert third == {"rn": nearest, "rz": toward, "ru": toward, "rd": away}[mode]
    assert 1.0 / 3.0 * 3.0 == 1.0  # the rounding mode was put back


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("__nv_erfinv", (0.3,), 0.2724627147267543),
        ("__nv_erfcinv", (1e-100,), 15.065574702593),
        ("__nv_normcdfinv", (0.975,), 1.959963984540054),
        ("__nv_normcdf", (-10.0,), 7.61985302416052e-24),
        ("__nv_erfcx", (30.0,), 0.018795888861416751),
        ("__nv_sinpi", (1e15,), 0.0),
        ("__nv_cospi", (1.5,), 0.0),
        ("__nv_powi", (2.0, -3), 0.125),
        ("__nv_mul24", (-3, 5), -15),
        ("__nv_byte_perm", (0x03020100, 0x07060504, 0x7531), 0x07050301),
        ("__nv_float2int_rn", (2.5,), 2),
        ("__nv_float2int_rz", (1e20,), 2**31 - 1),
        ("__nv_umul64hi", (-1, -1), -2),
        ("__nv_rhadd", (3, 4), 4),
    ],
)
def test_libdevice_values(name: str, values: tuple[Any, ...], expected: Any) -> None:
    assert call(name, *values) == pytest.approx(expected, rel=1e-13, abs=1e-15)


def test_kernels_of_any_name(cpu):
    x = gj.zeros(1)
    for name in ("<lambda>", "größe", "a b"):

        def body(out):
            out[0] += 1

        body.__name__ = name
        cuda.jit(body)[1, 1](x)
    cuda.jit(lambda out: None)[1, 1](x)
    assert x.copy_to_host()[0] == 3


def test_a_loop_uses_no_more_stack_with_each_iteration():
    """Numba allocates the parts of float16 operations where they are used."""

    @cuda.jit
    def kernel(x, out, n):
        total = x[0]
        for i in range(n):
            total = max(total, x[i % x.size]) + x[1]
        out[0] = total

    x = np.zeros(8, np.float16)
    x[3] = 5
    with gj.use_backend("cpu"):
        out = gj.zeros(1, np.float16)
        kernel[1, 1](gj.array(x), out, 3_000_000)
        assert out.copy_to_host()[0] == 5


@cuda.jit
def all_pairs(x, out):
    i = cuda.grid(1)
    if i < x.size:
        total = 0.0
        for j in range(x.size):
            total += abs(x[i] - x[j])
        out[i] = total


@cuda.jit
def neighbours_in_block(x, out):
    shared = cuda.shared.array(256, types.float64)
    t = cuda.threadIdx.x
    shared[t] = x[t]
    cuda.syncthreads()
    out[t] = shared[255 - t]


@cuda.jit
def one_sum(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + 1


def test_a_thread_that_loops_is_taken_to_have_much_to_do():
    x = np.zeros(256)
    works = [
        compile_kernel(ir_of(kernel, x, x)).work
        for kernel in (one_sum, neighbours_in_block, all_pairs)
    ]
    assert works[0] == works[1] == 1
    assert works[2] >= 64
