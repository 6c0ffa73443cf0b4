"""Hand-written LLVM IR as native functions of this process, with the few outside calls they need.

Locks are CPython's own (`PyThread_*`), which need no GIL and exist on every platform.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import time
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

_LOCKS = """
declare i32 @graphjit_lock_acquire(ptr, i32)
declare i32 @graphjit_lock_acquire_timed(ptr, i64, i32)
declare void @graphjit_lock_release(ptr)
declare i32 @graphjit_yield()
"""

_POSIX_NOW = """
declare i32 @graphjit_clock(i32, ptr)
define internal i64 @now() {{
  %t = alloca [2 x i64]
  %r = call i32 @graphjit_clock(i32 {clock}, ptr %t)
  %s = load i64, ptr %t
  %np = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %np
  %sn = mul i64 %s, 1000000000
  %ns = add i64 %sn, %n
  ret i64 %ns
}}
"""

_WINDOWS_NOW = """
declare i32 @graphjit_clock(ptr)
define internal i64 @now() {{
  %t = alloca i64
  %r = call i32 @graphjit_clock(ptr %t)
  %n = load i64, ptr %t
  %ns = mul i64 %n, {tick_ns}
  ret i64 %ns
}}
"""

_RELAX = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "amd64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "arm64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

# The code stays callable for the life of the process: a parked thread may be inside it.
_engines: list[Any] = []


@functools.cache
def prelude() -> str:
    """Return IR that defines `@now` (monotonic ns) and `@relax` (a spin-wait hint).

    It also declares `@graphjit_yield`, which lets another thread have the CPU, and the locks.
    """
    api = ctypes.pythonapi
    symbols: dict[str, Any] = {
        "graphjit_lock_acquire": api.PyThread_acquire_lock,
        "graphjit_lock_acquire_timed": api.PyThread_acquire_lock_timed,
        "graphjit_lock_release": api.PyThread_release_lock,
    }
    if sys.platform == "win32":
        kernel32 = ctypes.windll.kernel32
        frequency = ctypes.c_int64()
        kernel32.QueryPerformanceFrequency(ctypes.byref(frequency))
        symbols["graphjit_clock"] = kernel32.QueryPerformanceCounter
        symbols["graphjit_yield"] = kernel32.SwitchToThread
        now = _WINDOWS_NOW.format(tick_ns=max(1, 1_000_000_000 // frequency.value))
    else:
        library = ctypes.CDLL(None)
        symbols["graphjit_clock"] = library.clock_gettime
        symbols["graphjit_yield"] = library.sched_yield
        now = _POSIX_NOW.format(clock=time.CLOCK_MONOTONIC)
    for name, function in symbols.items():
        llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    declare, call = _RELAX.get(platform.machine().lower(), ("", ""))
    relax = f"{declare}\ndefine internal void @relax() alwaysinline {{\n  {call}\n  ret void\n}}\n"
    return _LOCKS + now + relax


def compile_ir(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """Compile LLVM IR for this machine and keep it loaded for the life of the process.

    Parameters
    ----------
    text : str
        A module; whatever it calls must be defined in it, in `prelude` or in the C library.
    names : sequence of str
        Functions whose addresses are wanted.

    Returns
    -------
    tuple of int
        The address of each function.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )
    head = f'target triple = "{machine.triple}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm.parse_assembly(head + text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    # MCJIT owns its target machine: one for each engine.
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)
    return tuple(int(engine.get_function_address(name)) for name in names)
