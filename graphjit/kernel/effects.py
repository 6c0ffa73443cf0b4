"""What a kernel reads and writes, and at which addresses, from its own LLVM IR.

Everything the kernel calls is inlined into it and optimised for the GPU; LLVM then infers
``readonly``, ``writeonly`` or ``readnone`` for each pointer parameter, which are exactly the facts
wanted. Where LLVM can't tell, both are assumed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from typing import Any

import llvmlite.binding as llvm

from graphjit.kernel.access import Expression, addresses
from graphjit.kernel.ir import Effects, Leaf

# Names by which a kernel prints, and by which it stops the device.
_PRINTS = ("vprintf", "printf")
_TRAPS = ("llvm.trap", "llvm.debugtrap", "__assertfail", "llvm.nvvm.exit")
_lock = threading.Lock()


@functools.cache
def _target() -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu="sm_90", opt=2)


def analyse(
    text: str, entry: str, leaves: Iterable[Leaf], externals: frozenset[str], captured: bool
) -> tuple[Effects, tuple[Expression, ...]]:
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
    Effects, tuple of Expression
        Never less than what a launch can do; and the addresses it loads from and stores to.
    """
    with _lock:  # LLVM target machines are not thread-safe
        module = llvm.parse_assembly(text)
        for function in module.functions:
            if not function.is_declaration and function.name != entry:
                function.linkage = "internal"
                function.add_function_attribute("alwaysinline")
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = False
        options.slp_vectorization = False
        options.loop_unrolling = False
        llvm.create_pass_builder(_target(), options).getModulePassManager().run(
            module, llvm.create_pass_builder(_target(), options)
        )
        function = module.get_function(entry)
        arguments = list(function.arguments)
        attributes = [
            " ".join(a.decode() if isinstance(a, bytes) else str(a) for a in argument.attributes)
            for argument in arguments
        ]
        used = _used_arguments(function)
        accesses = addresses(function)
    reads, writes = set(), set()
    for leaf in leaves:
        data = leaf.data
        if data is None or data not in used:
            continue
        facts = attributes[data]
        if "readnone" in facts:
            continue
        if "writeonly" not in facts:
            reads.add(leaf.path)
        if "readonly" not in facts:
            writes.add(leaf.path)
    effects = Effects(
        frozenset(reads),
        frozenset(writes),
        captured=captured,
        prints=any(name in _PRINTS for name in externals),
        traps=any(name in _TRAPS for name in externals),
    )
    return effects, accesses


def _used_arguments(function: Any) -> set[int]:
    """Indices of the parameters that some instruction names."""
    for index, argument in enumerate(function.arguments):
        argument.name = f"gj.arg{index}"
    names = {f"gj.arg{index}": index for index, _ in enumerate(function.arguments)}
    used = set()
    for block in function.blocks:
        for instruction in block.instructions:
            for operand in instruction.operands:
                if operand.name in names:
                    used.add(names[operand.name])
    return used
