"""What LLVM's SPIR-V target can select: it ends the process on anything else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from graphjit.backends.sycl.builtins import is_known_intrinsic

_OPCODES = frozenset(
    "ret br switch unreachable add fadd sub fsub mul fmul udiv sdiv fdiv urem srem frem fneg shl "
    "lshr ashr and or xor alloca load store getelementptr trunc zext sext fptrunc fpext fptoui "
    "fptosi uitofp sitofp ptrtoint inttoptr bitcast addrspacecast icmp fcmp phi call select "
    "extractvalue insertvalue freeze fence cmpxchg atomicrmw".split()
)
_ATOMICS = frozenset("xchg add sub and or xor max min umax umin".split())
_WIDTH = re.compile(r"(?<![%@\w.$])i(\d+)\b")
_WIDTHS = frozenset((1, 8, 16, 32, 64))
_STRING = re.compile(r'c"[^"]*"')


def refuse_unknown(module: Any, refuse: Callable[[str], Exception]) -> frozenset[str]:
    """Raise for what can't be selected.

    Parameters
    ----------
    module : llvmlite.binding.ModuleRef
        The module, optimised.
    refuse : callable
        Makes the exception from the name of a feature.

    Returns
    -------
    frozenset of str
        The aspects that a device must have.
    """
    for function in module.functions:
        name = function.name
        if function.is_declaration:
            known = is_known_intrinsic(name) or re.match(r"_Z\d+[a-z_]", name)
            if not known and any(True for _ in _users(module, name)):
                raise refuse(
                    f"intrinsic {name}" if name.startswith("llvm.") else f"function {name}"
                )
            continue
        for block in function.blocks:
            for instruction in block.instructions:
                _check(instruction, refuse)
    text = _STRING.sub("", str(module))
    for width in sorted(set(map(int, _WIDTH.findall(text)))):
        if width not in _WIDTHS:
            raise refuse(f"integers of {width} bits")
    if re.search(r"<\d+ x ", text):
        raise refuse("vectors")
    aspects = set()
    if re.search(r"(?<![%@\w.$])double\b", text):
        aspects.add("fp64")
    if re.search(r"(?<![%@\w.$])half\b", text):
        aspects.add("fp16")
    return frozenset(aspects)


def _users(module: Any, name: str) -> Any:
    for function in module.functions:
        for block in function.blocks:
            for instruction in block.instructions:
                if instruction.opcode == "call":
                    *_, callee = instruction.operands
                    if callee.name == name:
                        yield instruction


def _check(instruction: Any, refuse: Callable[[str], Exception]) -> None:
    opcode = instruction.opcode
    if opcode not in _OPCODES:
        raise refuse(f"LLVM's instruction {opcode}")
    if opcode == "atomicrmw":
        found = re.search(r"atomicrmw (?:volatile )?(\w+) ptr[^,]*, (\w+)", str(instruction))
        if found is None or found[1] not in _ATOMICS or found[2] not in ("i32", "i64"):
            what = f"{found[1]} of {found[2]}" if found else "of this kind"
            raise refuse(f"an atomic {what}")
    elif opcode == "call":
        *_, callee = instruction.operands
        if not callee.name:
            raise refuse("inline assembly or a call through a pointer")
