"""From KernelIR to SPIR-V: what is refused, and that nothing ends the process."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda, float64, types

import graphjit as gj
from graphjit.backends.sycl import emission, runtime
from graphjit.backends.sycl.builder import loaded_kernel
from graphjit.backends.sycl.codegen import compile_kernel
from graphjit.kernel import frontend
from graphjit.kernel.generated import GeneratedLaunch

pytestmark = pytest.mark.sycl

TRIPLE = "spirv64-unknown-unknown"
FLOATS = types.Array(types.float64, 1, "C")


def compiled(kernel, *argtypes):
    return compile_kernel(frontend.kernel_ir(kernel, argtypes))


def test_modules_are_the_same_each_time():
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = math.sin(x[i]) + cuda.popc(i)

    ir = frontend.kernel_ir(kernel, (FLOATS, FLOATS))
    codes = set()
    for _ in range(3):
        # A copy, since each KernelIR is compiled once.
        codes.add(compile_kernel(type(ir)(**vars(ir))).code)
    assert len(codes) == 1


@pytest.mark.parametrize(
    "body",
    [
        "%v = load i128, ptr addrspace(1) %p\n store i128 %v, ptr addrspace(1) %p",
        "%v = load i33, ptr addrspace(1) %p\n store i33 %v, ptr addrspace(1) %p",
        "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
        '%v = call i32 asm sideeffect "mov.u32 $0, 1;", "=r"()',
        "%v = atomicrmw uinc_wrap ptr addrspace(1) %p, i32 7 monotonic",
        "%v = load <3 x i17>, ptr addrspace(1) %p\n store <3 x i17> %v, ptr addrspace(1) %p",
    ],
)
def test_what_llvm_cannot_select_is_an_exception_or_a_module(body):
    text = textwrap.dedent(f"""
        declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
        define spir_kernel void @f(ptr addrspace(1) %p) {{
          {body}
          ret void
        }}
    """)
    try:
        assert emission.spirv(text, TRIPLE)[:4] == b"\x03\x02\x23\x07"
    except emission.EmissionError as error:
        assert str(error)
    # The process that emits is there for the next.
    plain = "define spir_kernel void @f(ptr addrspace(1) %p) { ret void }"
    assert emission.spirv(plain, TRIPLE)[:4] == b"\x03\x02\x23\x07"


def test_text_that_is_no_ir_is_an_exception():
    with pytest.raises(emission.EmissionError, match="parsing error"):
        emission.spirv("nothing", TRIPLE)


def test_a_process_that_was_killed_is_started_again():
    plain = "define spir_kernel void @f(ptr addrspace(1) %p) { ret void }"
    emission.spirv(plain, TRIPLE)
    emission._process.kill()
    emission._process.wait()
    assert emission.spirv(plain, TRIPLE)


def test_aspects():
    @cuda.jit
    def halves(x):
        x[0] = x[0] + x[1]

    assert compiled(halves, FLOATS).aspects == {"fp64"}
    assert compiled(halves, types.Array(types.float32, 1, "C")).aspects == set()
    assert "fp16" in compiled(halves, types.Array(types.float16, 1, "C")).aspects


@cuda.jit
def uniform_barriers(x, n):
    shared = cuda.shared.array(64, types.float64)
    t = cuda.threadIdx.x
    for k in range(n):
        if t < n:
            shared[t] = x[t] + k
        cuda.syncthreads()
        if cuda.blockIdx.x == 0 and n > 3:
            cuda.syncthreads()
    x[t] = shared[63 - t]


@cuda.jit
def barrier_in_a_branch(x, n):
    if cuda.threadIdx.x < n:
        cuda.syncthreads()
    x[0] = 1


@cuda.jit
def barrier_after_a_return(x, n):
    if cuda.grid(1) >= n:
        return
    cuda.syncthreads()
    x[0] = 1


@cuda.jit
def barrier_in_a_loop_of_some(x, n):
    for _ in range(cuda.threadIdx.x):
        cuda.syncthreads()
    x[0] = 1


@cuda.jit
def barrier_by_an_atomic(x, n):
    if cuda.atomic.add(x, 0, 1.0) < 3:
        cuda.syncthreads()


@cuda.jit
def barrier_by_a_count(x, n):
    count = 0
    while x[count] < cuda.threadIdx.x:
        count += 1
    if count > 3:
        cuda.syncthreads()
    x[0] = count


def test_barriers_that_all_threads_reach_are_taken():
    assert compiled(uniform_barriers, FLOATS, types.int64).code


@pytest.mark.parametrize(
    "kernel",
    [
        barrier_in_a_branch,
        barrier_after_a_return,
        barrier_in_a_loop_of_some,
        barrier_by_an_atomic,
        barrier_by_a_count,
    ],
)
def test_barriers_that_some_threads_do_not_reach_are_refused(kernel):
    with pytest.raises(gj.UnsupportedKernelError, match="that some threads of a block may not"):
        compiled(kernel, FLOATS, types.int64)


def test_the_backend_is_named_when_lowering():
    @cuda.jit
    def loud(x):
        print(x[0])

    @gj.graphed
    def f(x):
        loud[1, 1](x)
        return x

    with gj.use_backend("sycl"):
        x = gj.ones(3)
        with pytest.raises(gj.UnsupportedKernelError, match="uses print, which the sycl backend"):
            f.lower(x)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"max_work_group_size": 31}, "launched with 32 threads a block; small takes 31"),
        ({"local_mem_size": 15}, "launched with 16 bytes of shared memory; small has 15"),
        ({"has_aspect_fp64": False}, r"computes in float64, which the device small doesn't have"),
    ],
)
def test_what_the_device_has_no_room_for(changes, match, monkeypatch):
    @cuda.jit
    def kernel(x):
        x[0] = x[0] + 1

    room = {"max_work_group_size": 32, "local_mem_size": 16, "has_aspect_fp64": True}
    device = SimpleNamespace(name="small", **{**room, **changes})
    monkeypatch.setattr(runtime, "devices", lambda: (device,))
    ir = frontend.kernel_ir(kernel, (FLOATS,))
    launch = GeneratedLaunch(ir, (), (1, 1, 1), (32, 1, 1), 16)
    with pytest.raises(gj.UnsupportedKernelError, match=match):
        loaded_kernel(compile_kernel(ir), 0, launch)


NO_COMPILER = """
    import graphjit as gj
    try:
        with gj.use_backend("sycl"):
            gj.zeros(1)
    except gj.DeviceError as error:
        print(error)
"""


def test_without_a_compiler_the_error_says_what_to_install(tmp_path):
    environment = {"PATH": "", "GRAPHJIT_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(NO_COMPILER)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "install one (g++ or clang++), or name one in the variable CXX" in result.stdout


FORKED = """
    import os
    import numpy as np
    import graphjit as gj
    from graphjit.backends.sycl import emission

    text = "define spir_kernel void @f(ptr addrspace(1) %p) { ret void }"
    first = emission.spirv(text, "spirv64-unknown-unknown")
    pid = os.fork()
    if pid == 0:
        os._exit(emission.spirv(text, "spirv64-unknown-unknown") != first)
    assert os.waitpid(pid, 0)[1] == 0
    assert emission.spirv(text, "spirv64-unknown-unknown") == first
"""


def test_a_forked_child_has_an_emitter_of_its_own():
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED)], capture_output=True, timeout=120
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_exact_integers_and_rounding():
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i, 0] = cuda.brev(x[i])
            out[i, 1] = cuda.clz(x[i])
            out[i, 2] = cuda.ffs(x[i])
            out[i, 3] = cuda.popc(x[i])
            out[i, 4] = math.floor(x[i] / 7.0)

    x = np.array([0, 1, 2, 3, 2**31 - 1, 2**32 - 1, 0xDEADBEEF], np.uint32)
    with gj.use_backend("sycl"):
        out = gj.zeros((x.size, 5), np.int64)
        kernel[1, 32](gj.array(x), out)
        got = out.copy_to_host()
    for value, row in zip(x.tolist(), got.tolist(), strict=True):
        bits = f"{value:032b}"
        reverse = int(bits[::-1], 2)
        assert row[0] % 2**32 == reverse
        assert row[1] == len(bits) - len(bits.lstrip("0"))
        assert row[2] == (bits[::-1].find("1") + 1)
        assert row[3] == bits.count("1")
        assert row[4] == value // 7


def test_modules_are_kept_on_disk(tmp_path, monkeypatch):
    @cuda.jit
    def kernel(x):
        x[0] = x[1] * 3

    ir = frontend.kernel_ir(kernel, (FLOATS,))
    monkeypatch.setenv("GRAPHJIT_CACHE_DIR", str(tmp_path))
    first = compile_kernel(type(ir)(**vars(ir))).code
    (kept,) = tmp_path.iterdir()
    assert kept.read_bytes().startswith(first)
    monkeypatch.setattr("graphjit.backends.sycl.codegen.spirv", None)  # would raise TypeError
    assert compile_kernel(type(ir)(**vars(ir))).code == first

    @cuda.jit
    def other(x):
        x[0] = x[1] * 4

    with pytest.raises(TypeError):
        compiled(other, FLOATS)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    @cuda.jit
    def kernel(x):
        x[0] = x[1] * 5

    (tmp_path / "file").touch()
    monkeypatch.setenv("GRAPHJIT_CACHE_DIR", str(tmp_path / "file" / "folder"))
    assert compiled(kernel, FLOATS).code


@pytest.mark.parametrize("left", [0, 5, 100])
def test_damaged_files_are_made_again(left, tmp_path, monkeypatch):
    @cuda.jit
    def kernel(x):
        x[0] = x[1] * 7

    ir = frontend.kernel_ir(kernel, (FLOATS,))
    monkeypatch.setenv("GRAPHJIT_CACHE_DIR", str(tmp_path))
    first = compile_kernel(type(ir)(**vars(ir))).code
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:left])
    assert compile_kernel(type(ir)(**vars(ir))).code == first
    assert kept.read_bytes() == whole


def test_a_damaged_library_is_made_again(tmp_path, monkeypatch):
    from graphjit.backends.sycl.build import library_path

    monkeypatch.setenv("GRAPHJIT_CACHE_DIR", str(tmp_path))
    path = library_path()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert library_path() == path
    assert len(path.read_bytes()) == len(whole)


def test_the_compiler_is_named_as_make_takes_it(tmp_path, monkeypatch):
    from graphjit.backends.sycl.build import library_path

    monkeypatch.setenv("GRAPHJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "false -m64")
    with pytest.raises(gj.DeviceError, match=r"(?s)false can't compile .*\(status 1\)"):
        library_path()


SEEDS = """
    import sys
    import numpy as np
    import graphjit as gj
    from graphjit import kernels

    with gj.use_backend(sys.argv[1]):
        x = gj.array(np.arange(1000, dtype="f2"))
        print(gj.graphed(lambda x: kernels.reduce_max(x))(x).copy_to_host())
"""


def test_modules_do_not_depend_on_the_order_of_sets(tmp_path):
    kept = []
    for seed in ("1", "2", "3"):
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SEEDS), "sycl"],
            env={**os.environ, "PYTHONHASHSEED": seed, "GRAPHJIT_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (result.returncode, result.stdout) == (0, "999.0\n"), result.stderr
        kept.append(len(list(tmp_path.glob("*.spv"))))
    assert kept == kept[:1] * 3


def test_tanh_with_fast_maths():
    @cuda.jit(fastmath=True)
    def kernel(x, out):
        out[0] = math.tanh(x[0])

    with gj.use_backend("sycl"):
        out = gj.zeros(1, np.float32)
        kernel[1, 1](gj.ones(1, np.float32), out)
        assert out.item() == pytest.approx(math.tanh(1), rel=1e-5)


def test_more_static_shared_memory_than_there_is():
    @cuda.jit
    def kernel(x):
        shared = cuda.shared.array(10_000_000, float64)
        shared[0] = x[0]
        cuda.syncthreads()
        x[0] = shared[0]

    with gj.use_backend("sycl"):
        with pytest.raises(gj.UnsupportedKernelError, match="80000000 bytes of shared memory"):
            kernel[1, 1](gj.ones(1))
