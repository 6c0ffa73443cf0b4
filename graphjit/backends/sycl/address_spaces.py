"""A kernel's LLVM text with NVIDIA's address spaces as OpenCL's: generic is 4, global is 1."""

from __future__ import annotations

import re
from typing import Any

from graphjit.backends.sycl.atomics import EXCHANGES

BODY = "gj.body"
"""The kernel, as the function that its entry point calls."""


def name_all(module: Any, function: Any) -> None:
    """Names without quotes, so that text can be told from types."""
    for index, argument in enumerate(function.arguments):
        argument.name = f"gj.a{index}"
    number = 0
    for index, block in enumerate(function.blocks):
        block.name = f"gj.b{index}"
        for instruction in block.instructions:
            if str(instruction.type) != "void":
                instruction.name = f"gj.v{number}"
                number += 1
    for index, variable in enumerate(module.global_variables):
        variable.name = f"gj.g{index}"


_POINTER = re.compile(r'(?<![%@\w.$"-])ptr(?! addrspace\()\b')
_GLOBAL = re.compile(r"^(@gj\.g\d+) = (.*?)(addrspace\((\d)\) )?(global|constant) (.*)$")


def generic(text: str, types: list[str], extra: dict[str, str]) -> str:
    """The module with NVIDIA's address spaces as OpenCL's, its kernel as an internal function.

    The functions without arguments in `extra` become parameters of it.
    """
    lines, spaces = [], {}
    for line in text.splitlines():
        found = _GLOBAL.match(line)
        if found:
            # Local memory has one number in both; all other variables lie in global memory.
            space = "3" if found[4] == "3" else "1"
            spaces[found[1]] = space
            kind = "constant" if found[5] == "constant" and space == "1" else "global"
            line = f"{found[1]} = internal addrspace({space}) {kind} {found[6]}"
        lines.append(line)
    body: list[str] = []
    for line in lines:
        if line.startswith(("target ", "source_filename", "; ModuleID")):
            continue
        if "@llvm.lifetime." in line:
            continue
        if not _GLOBAL.match(line) and "@gj.g" in line:
            line = _uses(line, spaces)
        line = line.replace("ptr addrspace(4)", "ptr addrspace(1)")
        if line.startswith("define "):
            parameters = [
                f"{'ptr' if t.startswith('ptr') else t} %gj.a{i}" for i, t in enumerate(types)
            ]
            parameters += [f"{type_} %{name}" for name, type_ in extra.items()]
            line = f"define internal void @{BODY}({', '.join(parameters)}) alwaysinline {{"
        asked = next((name for name in extra if f"@{name}()" in line), None)
        if asked is not None:
            if line.startswith("declare"):
                continue
            name = line.split(" = ")[0].strip()
            if extra[asked] == "ptr":
                line = f"  {name} = getelementptr i8, ptr %{asked}, i64 0"
            else:
                line = f"  {name} = add i32 %{asked}, 0"
        alloca = re.match(r"\s+(%\S+) = alloca (.*)$", line)
        if alloca:
            type_ = _POINTER.sub("ptr addrspace(4)", alloca[2])
            body.append(f"  {alloca[1]}.private = alloca {type_}")
            line = f"  {alloca[1]} = addrspacecast ptr@PRIVATE {alloca[1]}.private to ptr"
        for type_, symbol in EXCHANGES.items():
            line = line.replace(f"@gj.exchange.{type_}(", f"@{symbol}(")
        line = re.sub(r"@llvm\.(memset|memcpy|memmove)\.p0(?:\.p0)?\.", _memory_name, line)
        line = _POINTER.sub("ptr addrspace(4)", line).replace("addrspace(4)@PRIVATE", "")
        body.append(line)
    return "\n".join(body) + "\n"


def _memory_name(match: re.Match[str]) -> str:
    return f"@llvm.{match[1]}.p4." + ("" if match[1] == "memset" else "p4.")


def _uses(line: str, spaces: dict[str, str]) -> str:
    """A line that uses variables, with their address spaces."""
    for name, space in spaces.items():
        # Already cast, from the space that it had in NVIDIA's IR.
        line = re.sub(
            rf"addrspacecast \(ptr addrspace\(\d\) {re.escape(name)} to ptr\)",
            f"addrspacecast (ptr addrspace({space}) {name} to ptr)",
            line,
        )
        line = re.sub(
            rf"addrspacecast ptr addrspace\(\d\) {re.escape(name)} to",
            f"addrspacecast ptr addrspace({space}) {name} to",
            line,
        )
        line = re.sub(
            rf"(?<!\w)ptr {re.escape(name)}(?![\w.])",
            f"ptr addrspacecast (ptr addrspace({space}) {name} to ptr)",
            line,
        )
        line = re.sub(
            rf"ptr addrspace\(\d\) {re.escape(name)}(?![\w.])",
            f"ptr addrspace({space}) {name}",
            line,
        )
    return line


_HINTS = re.compile(r", ![\w.]+ ![0-9]+")


def without_hints(text: str) -> str:
    """The text without metadata: all of it is for other targets, or for debuggers."""
    return "\n".join(_HINTS.sub("", line) for line in text.splitlines() if not line.startswith("!"))
