"""A KernelIR as a native function of the host.

The kernel's intrinsics are declarations that get definitions (`intrinsics`, `libdevice`, `half`),
its threads become functions (`independent`, `regions`) and a block a loop over them (`driver`).
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as llvm

from graphjit._errors import UnsupportedKernelError
from graphjit._locks import make_lock
from graphjit.backends.cpu import callbacks, intrinsics, scheduler
from graphjit.backends.cpu.driver import driver
from graphjit.backends.cpu.frame import Layout
from graphjit.backends.cpu.host import compile_module, has_symbol, parse, target_machine
from graphjit.backends.cpu.independent import whole
from graphjit.backends.cpu.lockstep import uniform_values
from graphjit.backends.cpu.regions import cut
from graphjit.backends.cpu.runtime import (
    assembly,
    definition,
    definitions,
    exists,
    is_host_intrinsic,
)
from graphjit.backends.cpu.work import thread_work
from graphjit.kernel.device_runtime import (
    TEMPLATE,
    assembly_as_call,
    called,
    feature,
    renamed,
    simplify,
)
from graphjit.kernel.instructions import name_values, read_blocks
from graphjit.kernel.ir import KernelIR

_GRID_SYNC = ("cudaCGGetIntrinsicHandle", "cudaCGSynchronize")
# Suspend points up to which loops are unrolled: it makes a tiled matmul 1.6 times faster, and
# doubles the time to compile a kernel of many regions.
_UNROLLED = 4
_lock = make_lock()
_cache: weakref.WeakKeyDictionary[KernelIR, dict[str, NativeKernel]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class NativeKernel:
    """A kernel compiled for the host.

    Parameters
    ----------
    name : str
        Name of the Python function.
    address : int
        A C function ``void f(void **params, const int32_t *dims, int64_t begin, int64_t end,
        void *scratch, int32_t dynamic_shared)`` that runs the blocks [begin, end), x fastest;
        `dims` is the block's and the grid's x, y, z. Several threads may run it at once, each with
        a `scratch` of its own, aligned to 64 bytes.
    has_barriers : bool
        Whether its threads wait for each other.
    lockstep : bool
        Whether all threads of a block are known to come to each wait together.
    static_shared : int
        Bytes of static shared memory.
    work : int
        A guess at the nanoseconds that one thread takes.
    """

    name: str
    address: int
    has_barriers: bool
    lockstep: bool
    static_shared: int
    work: int
    _layout: Layout = field(repr=False)
    _engine: Any = field(repr=False)

    def scratch_bytes(self, threads_per_block: int, dynamic_shared: int) -> int:
        """Bytes of scratch memory that one worker needs.

        Parameters
        ----------
        threads_per_block : int
            Threads of a block.
        dynamic_shared : int
            Bytes of dynamic shared memory of a launch.
        """
        return self._layout.size(threads_per_block, dynamic_shared)


def check_kernel(kernel: KernelIR) -> None:
    """Refuse what a host can't run, without compiling anything.

    Parameters
    ----------
    kernel : KernelIR
        The kernel.

    Raises
    ------
    UnsupportedKernelError
        Naming the feature.
    """
    if kernel.cooperative or any(name in kernel.externals for name in _GRID_SYNC):
        raise _unsupported(kernel, "grid-wide synchronisation")
    for text in sorted(set(TEMPLATE.findall(kernel.llvm))):
        if assembly(text) is None:
            raise _unsupported(kernel, f"inline assembly '{text}'")
    for name in sorted(kernel.externals):
        if is_host_intrinsic(name) or name in callbacks.SYMBOLS:
            continue
        text = definition(renamed(name) if name.startswith("llvm.") else name)
        if text is None or not all(exists(symbol) for symbol in called(text)):
            raise _unsupported(kernel, feature(name, kernel.linked))


def compile_kernel(kernel: KernelIR, fast_axis: str = "x") -> NativeKernel:
    """Compile a kernel for the host, once.

    Parameters
    ----------
    kernel : KernelIR
        The kernel.
    fast_axis : {"x", "y"}
        Innermost axis of the thread loops; it matters only where no thread waits for another.

    Returns
    -------
    NativeKernel

    Raises
    ------
    UnsupportedKernelError
        If the kernel needs what a host doesn't have.
    """
    with _lock:  # LLVM's global context is not thread-safe
        known = _cache.setdefault(kernel, {})
        found = known.get(fast_axis)
        if found is None:
            found = _compile(kernel, fast_axis)
            # The thread loops of a kernel that waits don't depend on it.
            for axis in ("x", "y") if found.has_barriers else (fast_axis,):
                known[axis] = found
        return found


def _unsupported(kernel: KernelIR, feature: str) -> UnsupportedKernelError:
    return UnsupportedKernelError(
        f"kernel {kernel.name} uses {feature}, which the cpu backend can't run; "
        "the cuda backend can"
    )


def _compile(kernel: KernelIR, fast_axis: str) -> NativeKernel:
    check_kernel(kernel)
    machine = target_machine()
    module, shared = _host_module(kernel, machine)
    function = module.get_function(kernel.entry)
    _refuse_recursion(kernel, module)
    waits = [f for f in module.functions if f.name in intrinsics.COLLECTIVES]
    if waits:
        _define_collectives(module, waits, machine)
        function = module.get_function(kernel.entry)
    name_values(function)
    uniform, original = None, str(function)
    if waits:
        uniform = uniform_values(read_blocks(function, original))
        simplify(module, machine, "register_to_memory")
    text = str(module)
    before, body, after = _split(text, kernel.entry)
    parameters = [(str(a.type), a.name) for a in function.arguments]
    if waits:
        types = "\n".join(re.findall(r"^%.* = type .*$", text, re.MULTILINE))
        sizes = functools.partial(_sizes, machine.target_data, types)
        parts = cut(function, body, parameters, sizes, uniform)
    else:
        parts = whole(function, body, parameters, fast_axis)
    layout = Layout(shared, parts.frame, parts.local, bool(parts.kinds))
    # A lambda's name, and one with other letters than LLVM's, would have to be quoted.
    symbol = "gj.run." + re.sub(r"\W", "_", kernel.name, flags=re.ASCII)
    source = driver(symbol, parameters, parts, layout, fast_axis)
    final = llvm.parse_assembly(
        "\n".join([_without_markers(before + after), *(r.text for r in parts.regions), source])
    )
    final.verify()
    engine = _generate(kernel, final, machine, len(parts.kinds) <= _UNROLLED)
    return NativeKernel(
        kernel.name,
        engine.get_function_address(symbol),
        bool(parts.kinds),
        parts.lockstep,
        shared,
        thread_work(original),
        layout,
        engine,
    )


def _refuse_recursion(kernel: KernelIR, module: Any) -> None:
    """A function that stayed a call because it calls itself runs, unless it needs its thread."""
    gone = {*intrinsics.MARKERS, *intrinsics.COLLECTIVES}
    for function in module.functions:
        if not function.is_declaration and function.name != kernel.entry:
            if called(str(function)) & gone:
                raise _unsupported(
                    kernel, "thread indices, shared memory or barriers in a recursive function"
                )


def _host_module(kernel: KernelIR, machine: Any) -> tuple[Any, int]:
    """The kernel with the runtime's definitions, all inlined and simplified; its shared memory."""
    module = llvm.parse_assembly(kernel.llvm)
    data = machine.target_data
    offsets: dict[str, int | None] = {}
    shared = 0
    dropped = set()
    for variable in module.global_variables:
        text = str(variable)
        if variable.name in ("llvm.used", "llvm.compiler.used"):
            dropped.add(text)
        elif "addrspace(3) global" in text:
            dropped.add(text)
            alignment = max(16, int(re.findall(r"align (\d+)", text)[-1]))
            if variable.is_declaration:
                offsets[variable.name] = None
            else:
                shared = -(-shared // alignment) * alignment
                offsets[variable.name] = shared
                shared += data.get_abi_size(variable.global_value_type)
    shared = -(-shared // 16) * 16
    replaced, needed = _replace_instructions(module, offsets, shared)
    for function in module.functions:
        if function.is_declaration:
            if not is_host_intrinsic(function.name):
                if function.name.startswith("llvm."):
                    function.name = renamed(function.name)
                if function.name not in callbacks.SYMBOLS:
                    needed.add(function.name)
        elif function.name != kernel.entry:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    return _simplified(module, replaced, dropped, needed, machine), shared


def _replace_instructions(
    module: Any, offsets: dict[str, int | None], shared: int
) -> tuple[dict[str, str], set[str]]:
    """Lines of the printed module that say something else on a host, and what they call."""
    replaced, needed = {}, {"gj.shared"}
    if not offsets and " asm " not in str(module):
        return {}, set()
    number = 0
    for function in module.functions:
        for block in function.blocks:
            for instruction in block.instructions:
                opcode = instruction.opcode
                if opcode not in ("addrspacecast", "call"):
                    continue
                operand = list(instruction.operands)[-1]
                if opcode == "call" and operand.name:
                    continue
                if opcode == "addrspacecast" and operand.name not in offsets:
                    continue
                if str(instruction.type) != "void":
                    instruction.name = f"gj.replaced.{number}"
                    number += 1
                line = str(instruction)
                if opcode == "addrspacecast":
                    offset = offsets[operand.name]
                    name = instruction.name
                    replaced[line] = (
                        f"  %{name}.base = call ptr @gj.shared()\n"
                        f"  %{name} = getelementptr i8, ptr %{name}.base, "
                        f"i64 {shared if offset is None else offset}"
                    )
                    continue
                found = assembly_as_call(line)
                if found is not None:
                    replaced[line], target = found
                    needed.add(target)
    return replaced, needed


def _simplified(
    module: Any, replaced: dict[str, str], dropped: set[str], needed: set[str], machine: Any
) -> Any:
    lines = []
    for line in str(module).splitlines():
        if line in dropped or line.startswith(("target ", "source_filename", "; ")):
            continue
        if line.startswith("declare ") and called(line) & needed:
            continue
        lines.append(replaced.get(line, line).replace("define ptx_kernel", "define"))
    text = "\n".join([*lines, definitions(needed)])
    host = parse(text, machine)
    simplify(
        host,
        machine,
        "always_inliner",
        "global_dead_code_eliminate",
        "sroa",
        "instruction_combine",
        "simplify_cfg",
        "new_gvn",
        "instruction_combine",
        "simplify_cfg",
        "aggressive_dce",
        "simplify_cfg",
    )
    return host


def _define_collectives(module: Any, functions: Iterable[Any], machine: Any) -> None:
    """Inline the collectives, of which only the suspend points stay calls."""
    names = [function.name for function in functions]
    # An internal function would not be linked to the declaration that waits for it.
    texts = [intrinsics.COLLECTIVES[n].replace("define internal", "define") for n in names]
    needed = set().union(*(called(text) for text in texts))
    needed -= {*names, *intrinsics.SUSPENDS}
    module.link_in(
        parse("\n".join([*texts, definitions(needed), intrinsics.SUSPEND_DECLARATIONS]), machine)
    )
    for name in names:
        module.get_function(name).linkage = "internal"
    simplify(module, machine, "always_inliner", "global_dead_code_eliminate", "sroa")


def _split(text: str, entry: str) -> tuple[str, str, str]:
    """The printed module before a function, the function, and the module after it."""
    start = text.index("define ")
    while called(text[start : text.index("{\n", start)]) != {entry}:
        start = text.index("\ndefine ", start) + 1
    end = text.index("\n}\n", start) + 3
    return text[:start], text[start:end], text[end:]


def _without_markers(text: str) -> str:
    gone = {*intrinsics.MARKERS, *intrinsics.SUSPENDS}
    return "\n".join(
        line
        for line in text.splitlines()
        if not (line.startswith("declare ") and called(line) & gone)
    )


def _sizes(data: Any, definitions: str, types: list[str]) -> list[int]:
    if not types:
        return []
    unique = list(dict.fromkeys(types))
    lines = [f"@size.{i} = external global {type_}" for i, type_ in enumerate(unique)]
    module = llvm.parse_assembly("\n".join([definitions, *lines]))
    sizes = {
        type_: data.get_abi_size(variable.global_value_type)
        for type_, variable in zip(unique, module.global_variables, strict=True)
    }
    return [sizes[type_] for type_ in types]


def _generate(kernel: KernelIR, module: Any, machine: Any, unroll: bool) -> Any:
    for function in module.functions:
        name = function.name
        if function.is_declaration and not name.startswith("llvm."):
            # An unresolved symbol would end the process inside LLVM.
            if not (scheduler.provide(name) or callbacks.provide(name)) and not has_symbol(name):
                raise _unsupported(kernel, feature(name, kernel.linked))
        elif not function.is_declaration and name == kernel.entry:
            raise AssertionError(f"{name} is still there")
    return compile_module(module, machine, unroll)
