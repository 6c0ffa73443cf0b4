"""What a kernel reads and writes, and at which addresses, from its own LLVM IR.

Everything the kernel calls is inlined into it and optimised for the GPU; LLVM then infers
``readonly``, ``writeonly`` or ``readnone`` for each pointer parameter, which are exactly the facts
wanted. Where LLVM can't tell, every access is followed back to its parameter (`provenance`); where
that fails too, both are assumed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import llvmlite.binding as llvm

from graphjit._locks import make_lock
from graphjit.kernel.access import Expression, addresses
from graphjit.kernel.ir import Effects, Leaf
from graphjit.kernel.pointwise import Pointwise, pointwise
from graphjit.kernel.provenance import touched

# Names by which a kernel prints, and by which it stops the device.
_PRINTS = ("vprintf", "printf")
_TRAPS = ("llvm.trap", "llvm.debugtrap", "__assertfail", "llvm.nvvm.exit")
_lock = make_lock()


@functools.cache
def _target() -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu="sm_90", opt=2)


def analyse(
    text: str, entry: str, leaves: Iterable[Leaf], externals: frozenset[str], captured: bool
) -> tuple[Effects, tuple[Expression, ...], Pointwise]:
    """Infer the effects of the kernel `entry` in the linked module `text`.

    Parameters
    ----------
    text : str
        Linked LLVM IR for nvptx64.
    entry : str
        The kernel's symbol.
    leaves : iterable of Leaf
        The kernel's flattened arguments.
    externals : frozenset of str
        The functions that `text` declares only.
    captured : bool
        Whether the kernel embeds arrays it closes over.

    Returns
    -------
    Effects, tuple of Expression, Pointwise
        Never less than what a launch can do; the addresses it loads from and stores to; and which
        elements each thread touches, where that can be proved.
    """
    with _lock:  # LLVM target machines are not thread-safe
        function = optimised(text, entry).get_function(entry)
        _name_values(function)
        attributes = [
            " ".join(a.decode() if isinstance(a, bytes) else str(a) for a in argument.attributes)
            for argument in function.arguments
        ]
        used = _used_arguments(function)
        followed = touched(function)
        accesses = addresses(function)
        elements = pointwise(function)
    reads, writes = set(), set()
    for leaf in leaves:
        data = leaf.data
        if data is None or data not in used or "readnone" in attributes[data]:
            continue
        # Both ways of knowing err on the side of more, so what both say is true.
        if "writeonly" not in attributes[data] and (followed is None or data in followed.reads):
            reads.add(leaf.path)
        if "readonly" not in attributes[data] and (followed is None or data in followed.writes):
            writes.add(leaf.path)
    effects = Effects(
        frozenset(reads),
        frozenset(writes),
        captured=captured,
        prints=any(name in _PRINTS for name in externals),
        traps=any(name in _TRAPS for name in externals),
    )
    return effects, accesses, elements


def optimised(text: str, entry: str) -> Any:
    """A kernel with everything inlined that it calls, as LLVM's optimiser leaves it.

    Parameters
    ----------
    text : str
        Linked LLVM IR for nvptx64.
    entry : str
        The kernel's symbol.

    Returns
    -------
    llvmlite.binding.ModuleRef
    """
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if not function.is_declaration and function.name != entry:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    # Twice, since what a kernel's own memory became registers for is only then seen to be the same.
    for _ in range(2):
        builder = llvm.create_pass_builder(_target(), options)
        builder.getModulePassManager().run(module, builder)
    return module


def _name_values(function: Any) -> None:
    """Give every argument and instruction a name to be known by."""
    for index, argument in enumerate(function.arguments):
        argument.name = f"gj.arg{index}"
    count = 0
    for block in function.blocks:
        for instruction in block.instructions:
            if not instruction.name and str(instruction.type) != "void":
                instruction.name = f"gj.value{count}"
                count += 1


def _used_arguments(function: Any) -> set[int]:
    """Indices of the parameters that some instruction names."""
    names = {argument.name: index for index, argument in enumerate(function.arguments)}
    return {
        names[operand.name]
        for block in function.blocks
        for instruction in block.instructions
        for operand in instruction.operands
        if operand.name in names
    }
