"""The runtime that stands for CUDA's: which functions there are, and the text of those needed."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from graphjit.backends.cpu import callbacks, half, intrinsics, libdevice
from graphjit.backends.cpu.host import has_half, has_symbol

_SYMBOL = re.compile(r'@(?:"([^"]+)"|([\w.$]+))')
ASSEMBLY = re.compile(r'asm (?:sideeffect )?(?:alignstack )?"((?:[^"\\]|\\.)*)"')
_MEMORY_OPERATION = re.compile(r"(ld|st)\.global\.(?:ca|cg|cs|lu|cv|wb|wt)\.b(8|16|32|64)\b")
# Intrinsics that are NVIDIA's or need something that a host thread doesn't have.
_FOREIGN = ("llvm.nvvm.", "llvm.amdgcn.", "llvm.coro.")


def is_host_intrinsic(name: str) -> bool:
    """Whether LLVM itself has the intrinsic on a host."""
    return name.startswith("llvm.") and not name.startswith(_FOREIGN)


def definition(name: str) -> str | None:
    """LLVM text that defines, or declares, a function of the runtime."""
    for table in (
        intrinsics.DEFINITIONS,
        intrinsics.COLLECTIVES,
        libdevice.DEFINITIONS,
        libdevice.LIBRARY,
        half.DEFINITIONS,
    ):
        if name in table:
            return table[name]
    if name.startswith("gj.memory."):
        return _memory_operation(name)
    return half.definition(name) if has_half() else None


def _memory_operation(name: str) -> str:
    """A load or store with a cache hint, as a plain one."""
    _, _, kind, type_ = name.split(".")
    if kind == "ld":
        returns, parameters = type_, "ptr %p"
        body = f"  %r = load {type_}, ptr %p\n  ret {type_} %r"
    else:
        returns, parameters = "void", f"ptr %p, {type_} %v"
        body = f"  store {type_} %v, ptr %p\n  ret void"
    return f"define internal {returns} @{name}({parameters}) alwaysinline nounwind {{\n{body}\n}}"


def assembly(template: str) -> str | None:
    """Function that stands for a piece of PTX; `{type}` in it is the type that it moves."""
    operation = _MEMORY_OPERATION.match(template)
    if operation:
        return f"gj.memory.{operation[1]}.{{type}}"
    if template in half.ASSEMBLY and has_half():
        return half.ASSEMBLY[template]
    return intrinsics.ASSEMBLY.get(template)


def called(text: str) -> set[str]:
    """Every global name in LLVM text."""
    return {quoted or plain for quoted, plain in _SYMBOL.findall(text)}


@functools.cache
def exists(symbol: str) -> bool:
    """Whether the runtime or the process has a function."""
    if symbol.startswith("llvm.") or symbol in callbacks.SYMBOLS:
        return True
    if symbol in libdevice.LIBRARY:
        return has_symbol(symbol)
    text = definition(symbol)
    if text is None:
        return symbol in intrinsics.SUSPENDS
    return all(exists(other) for other in called(text) - {symbol})


def definitions(needed: Iterable[str]) -> str:
    """Definitions of functions and all that they call; collectives are only declared."""
    texts, todo = {}, set(needed)
    while todo:
        name = todo.pop()
        if name in texts or name.startswith("llvm."):
            continue
        if name in intrinsics.COLLECTIVES:
            texts[name] = intrinsics.collective_declaration(name)
            continue
        text = definition(name)
        if text is None:
            raise NotImplementedError(f"the cpu backend has no definition of {name}")
        texts[name] = text
        todo |= called(text)
    return "\n".join(texts.values())
