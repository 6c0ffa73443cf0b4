"""A KernelIR as SPIR-V, by LLVM's own target.

NVIDIA's generic pointers become OpenCL's, address space 4, and the kernel is wrapped in one that
takes its parameters as numbers: what changes from call to call is loaded from memory.
"""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from graphjit._errors import UnsupportedKernelError
from graphjit._locks import make_lock
from graphjit.backends.disk_cache import kept_bytes, key
from graphjit.backends.sycl import atomics, builtins, warps
from graphjit.backends.sycl.address_spaces import generic, name_all, without_hints
from graphjit.backends.sycl.emission import EmissionError, spirv
from graphjit.backends.sycl.entry_point import entry_point
from graphjit.backends.sycl.whitelist import refuse_unknown
from graphjit.kernel.device_runtime import (
    TEMPLATE,
    assembly,
    assembly_as_call,
    called,
    feature,
    renamed,
    simplify,
)
from graphjit.kernel.instructions import read_blocks
from graphjit.kernel.ir import KernelIR
from graphjit.kernel.uniformity import divergence

_TRIPLE = "spirv64-unknown-unknown"
_GRID_SYNC = ("cudaCGGetIntrinsicHandle", "cudaCGSynchronize")
_lock = make_lock()
_cache: weakref.WeakKeyDictionary[KernelIR, dict[frozenset[int], SPIRVKernel]]
_cache = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class SPIRVKernel:
    """A kernel compiled for SYCL devices.

    Parameters
    ----------
    name : str
        Its name in the module.
    code : bytes
        The SPIR-V module.
    sizes : tuple of int
        Bytes of each parameter: addresses and numbers, all by value.
    has_dynamic_shared : bool
        Whether local memory, and its size as a 4-byte number, are parameters after those.
    shared_bytes : int
        Static shared memory.
    exchanges : bool
        Whether local memory of 8 bytes a thread, of whole warps, is the last parameter.
    aspects : frozenset of str
        What a device must have: ``"fp16"``, ``"fp64"``.
    """

    name: str
    code: bytes
    sizes: tuple[int, ...]
    has_dynamic_shared: bool
    shared_bytes: int
    exchanges: bool
    aspects: frozenset[str]


def _target() -> Any:
    """A target machine, for one module: LLVM keeps what it emitted in it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(_TRIPLE).create_target_machine(opt=2)


def _unsupported(kernel: KernelIR, feature: str, others: str = "cpu and cuda") -> Any:
    plural = "backends can" if " and " in others else "backend can"
    return UnsupportedKernelError(
        f"kernel {kernel.name} uses {feature}, which the sycl backend can't run; "
        f"the {others} {plural}"
    )


def check_kernel(kernel: KernelIR) -> None:
    """Refuse what SPIR-V can't express, without compiling anything.

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
        raise _unsupported(kernel, "grid-wide synchronisation", "cuda")
    for text in sorted(set(TEMPLATE.findall(kernel.llvm))):
        target = assembly(text)
        if target is None:
            raise _unsupported(kernel, f"inline assembly '{text}'", "cuda")
        if "{type}" not in target and target != _DYNAMIC_SIZE and not builtins.exists(target):
            raise _unsupported(kernel, f"'{text}'")
    for name in sorted(kernel.externals):
        if not builtins.exists(renamed(name) if name.startswith("llvm.nvvm.") else name):
            raise _unsupported(
                kernel, "print" if name == "vprintf" else feature(name, kernel.linked)
            )


def compile_kernel(kernel: KernelIR, loaded: frozenset[int] = frozenset()) -> SPIRVKernel:
    """Compile a kernel to SPIR-V, once.

    Parameters
    ----------
    kernel : KernelIR
        The kernel.
    loaded : frozenset of int
        Parameters that it loads from memory (see `graphjit.kernel.packing.indirect_image`).

    Returns
    -------
    SPIRVKernel

    Raises
    ------
    UnsupportedKernelError
        If the kernel needs what SPIR-V doesn't have.
    """
    with _lock:  # LLVM's global context is not thread-safe
        known = _cache.setdefault(kernel, {})
        found = known.get(loaded)
        if found is None:
            check_kernel(kernel)
            found = known[loaded] = _compile(kernel, loaded)
        return found


_DYNAMIC_SIZE = "gj.dynamic_size"
_DYNAMIC = "gj.dynamic"
_ERROR = "gj.error"


def _compile(kernel: KernelIR, loaded: frozenset[int]) -> SPIRVKernel:
    machine = _target()
    module, has_dynamic = _inlined(kernel, machine)
    function = module.get_function(kernel.entry)
    for other in module.functions:
        if not other.is_declaration and other.name != kernel.entry:
            raise _unsupported(kernel, "a recursive function")
    types = [str(argument.type) for argument in function.arguments]
    name_all(module, function)
    name = "gj_" + re.sub(r"\W", "_", kernel.name, flags=re.ASCII)
    extra = {}
    if has_dynamic:
        extra = {_DYNAMIC: "ptr", _DYNAMIC_SIZE: "i32"}
    exchanges = f"@{warps.EXCHANGE}()" in str(function)
    if exchanges:
        extra[warps.EXCHANGE] = "ptr"
    text = generic(without_hints(str(module)), types, extra)
    wrapper, sizes = entry_point(name, types, loaded, extra)
    final = llvm.parse_assembly(_header(machine) + text + wrapper)
    final.verify()
    _optimise(final, machine)
    _refuse_split_barriers(kernel, final.get_function(name))
    text = builtins.without_reversals(without_hints(str(final)))
    text = re.sub(rf"^.*@{_ERROR}\(\).*$", "", text, flags=re.MULTILINE)
    final = llvm.parse_assembly(text)
    aspects = refuse_unknown(final, lambda feature: _unsupported(kernel, feature))
    text = str(final)
    try:
        name_on_disk = f"{key(text, _TRIPLE, llvmlite.__version__)}.spv"
        code = kept_bytes(name_on_disk, lambda: spirv(text, _TRIPLE))
    except EmissionError as error:
        raise _unsupported(kernel, f"what LLVM can't express in SPIR-V ({error})") from None
    shared = sum(
        machine.target_data.get_abi_size(variable.global_value_type)
        for variable in final.global_variables
        if "addrspace(3) global" in str(variable)
    )
    return SPIRVKernel(name, code, sizes, has_dynamic, shared, exchanges, aspects)


def _refuse_split_barriers(kernel: KernelIR, function: Any) -> None:
    """OpenCL's barriers are for all threads of a block, also those that have returned."""
    for index, block in enumerate(function.blocks):
        block.name = block.name or f"gj.e{index}"
    blocks = read_blocks(function, str(function))
    waiting = [label for label, lines in blocks if any(builtins.waits(x.callee) for x in lines)]
    if not waiting:
        return
    failing = frozenset(label for label, lines in blocks if any(x.callee == _ERROR for x in lines))
    if not divergence(blocks, builtins.differs, failing).blocks.isdisjoint(waiting):
        raise _unsupported(
            kernel,
            "a barrier or an exchange between lanes that some threads of a block may not reach "
            "(they return before it, or branch around it)",
        )


def _header(machine: Any) -> str:
    return f'target datalayout = "{machine.target_data}"\ntarget triple = "{_TRIPLE}"\n'


def _inlined(kernel: KernelIR, machine: Any) -> tuple[Any, bool]:
    """The kernel with the runtime's definitions, all inlined into it and simplified.

    Also whether it uses dynamic shared memory.
    """
    module = llvm.parse_assembly(kernel.llvm)
    dropped, dynamic = set(), set()
    for variable in module.global_variables:
        text = str(variable)
        if variable.name.startswith(("llvm.used", "llvm.compiler.used", "_ZN08NumbaEnv")):
            dropped.add(text)
        elif "addrspace(3) global" in text and variable.is_declaration:
            dynamic.add(variable.name)
            dropped.add(text)
    replaced, needed = _replaced(module, dynamic)
    for function in module.functions:
        if function.is_declaration:
            if function.name.startswith("llvm.nvvm."):
                function.name = renamed(function.name)
            if not function.name.startswith("llvm."):
                needed.add(function.name)
        elif function.name != kernel.entry:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    own = {_DYNAMIC, _DYNAMIC_SIZE}
    has_dynamic = bool(own & needed)
    lines, block = [f"declare void @{_ERROR}() nounwind"], ""
    for line in str(module).splitlines():
        if line and not line[0].isspace():
            block = line
        if line == "  ret void" and block.startswith("switch.else"):
            # A tuple's index is out of bounds: no way that barriers need to care for.
            lines.append(f"  call void @{_ERROR}()")
        if line in dropped or line.startswith(("target ", "source_filename", "; ", "!nvvm")):
            continue
        if line.startswith("declare ") and called(line) & needed:
            continue
        lines.append(replaced.get(line, line).replace("define ptx_kernel", "define"))
    text = "\n".join([*lines, builtins.definitions(needed - own)])
    exchanged = set(re.findall(r" = cmpxchg .*?, (i\d+) ", text))
    if exchanged - {"i32", "i64"}:
        raise _unsupported(kernel, f"an atomic exchange of {min(exchanged)}")
    text = _EXCHANGE.sub(_EXCHANGED, text) + "\n"
    text += "\n".join(atomics.exchange_declaration(type_) for type_ in sorted(exchanged))
    if has_dynamic:
        text += f"\ndeclare ptr @{_DYNAMIC}() memory(none)"
        text += f"\ndeclare i32 @{_DYNAMIC_SIZE}() memory(none)\n"
    merged = llvm.parse_assembly(_header(machine) + text)
    merged.verify()
    # Twice: Numba declares some functions with other types than they have, which the first mends.
    _optimise(merged, machine)
    _optimise(merged, machine)
    return merged, has_dynamic


_ATOMIC = re.compile(r"atomicrmw (?:volatile )?(\w+) ptr ([^,]+), (\w+) (\S+) ")
_EXCHANGE = re.compile(
    r"(%\S+) = cmpxchg (?:weak )?(?:volatile )?ptr (\S+), (i\d+) ([^,\s]+), i\d+ ([^,\s]+) .*"
)
# LLVM's optimisations let pairs meet in a phi, which its SPIR-V target can't select.
_EXCHANGED = (
    r"\1.old = call spir_func \3 @gj.exchange.\3(ptr \2, i32 1, i32 0, i32 0, \3 \5, \3 \4)\n"
    r"  \1.won = icmp eq \3 \1.old, \4\n"
    r"  \1.half = insertvalue { \3, i1 } poison, \3 \1.old, 0\n"
    r"  \1 = insertvalue { \3, i1 } \1.half, i1 \1.won, 1"
)


def _replaced(module: Any, dynamic: set[str]) -> tuple[dict[str, str], set[str]]:
    """Lines of the printed module that say something else here, and what they call."""
    replaced: dict[str, str] = {}
    needed: set[str] = set()
    number = 0
    for function in module.functions:
        for block in function.blocks:
            for instruction in block.instructions:
                opcode = instruction.opcode
                if opcode not in ("addrspacecast", "call", "atomicrmw"):
                    continue
                operands = list(instruction.operands)
                if opcode == "call" and operands[-1].name:
                    continue
                if opcode == "addrspacecast" and operands[0].name not in dynamic:
                    continue
                if str(instruction.type) != "void":
                    instruction.name = f"gj.replaced.{number}"
                    number += 1
                line, name = str(instruction), instruction.name
                if opcode == "addrspacecast":
                    replaced[line] = f"  %{name} = call ptr @{_DYNAMIC}()"
                    needed.add(_DYNAMIC)
                elif opcode == "atomicrmw":
                    found = _ATOMIC.search(line)
                    if found and f"gj.atomic.{found[1]}.{found[3]}" in builtins.DEFINITIONS:
                        target = f"gj.atomic.{found[1]}.{found[3]}"
                        replaced[line] = (
                            f"  %{name} = call {found[3]} @{target}"
                            f"(ptr {found[2]}, {found[3]} {found[4]})"
                        )
                        needed.add(target)
                else:
                    call = assembly_as_call(line)
                    if call is not None:
                        replaced[line], target = call
                        needed.add(target)
    return replaced, needed


def _optimise(module: Any, machine: Any) -> None:
    """Inline all and simplify; what runs it vectorises and unrolls for itself.

    LLVM's usual pipeline also rewrites loops, with integers as wide as it takes.
    """
    simplify(
        module,
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
        "global_dead_code_eliminate",
    )
