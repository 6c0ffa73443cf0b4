"""What a kernel's LLVM IR calls that only NVIDIA's compiler knows, under names that LLVM takes.

A backend with code generation of its own defines functions of these names and links them in.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm

from graphjit.kernel import half

AXES = ("x", "y", "z")
REGISTERS = ("tid", "ntid", "ctaid", "nctaid")

_SYMBOL = re.compile(r'@(?:"([^"]+)"|([\w.$]+))')
TEMPLATE = re.compile(r'asm (?:sideeffect )?(?:alignstack )?"((?:[^"\\]|\\.)*)"')
"""Inline assembly; its PTX is the first group."""

_CALL = re.compile(r'asm (?:sideeffect )?"(?:[^"\\]|\\.)*", "[^"]*"')
_MEMORY_OPERATION = re.compile(r"(ld|st)\.global\.(?:ca|cg|cs|lu|cv|wb|wt)\.b(8|16|32|64)\b")

# PTX that Numba writes as inline assembly -> the function that does the same.
_ASSEMBLY = {
    "mov.u32 $0, %dynamic_smem_size;": "gj.dynamic_size",
    "activemask.b32 $0;": "gj.activemask",
    "mov.u32 $0, %lanemask_lt;": "gj.lanemask.lt",
    "nanosleep.u32 $0;": "gj.nanosleep",
    "tanh.approx.f32 $0, $1;": "gj.tanh.f32",
    **half.ASSEMBLY,
}


def called(text: str) -> set[str]:
    """Every global name in LLVM text."""
    return {quoted or plain for quoted, plain in _SYMBOL.findall(text)}


def feature(name: str, linked: tuple[str, ...]) -> str:
    """What a kernel that calls an unknown function asks for, for messages."""
    if name.startswith("__nv_"):
        return f"libdevice function {name}"
    if name.startswith("llvm."):
        return f"intrinsic {name}"
    if linked:
        return f"{name}, for which it links CUDA C file {', '.join(linked)}"
    return f"external function {name}"


def renamed(name: str) -> str:
    """The ordinary name of a `llvm.nvvm` intrinsic: `gj.tid.x` for a special register."""
    register = name.removeprefix("llvm.nvvm.read.ptx.sreg.")
    if register.partition(".")[0] in REGISTERS:
        return f"gj.{register}"
    return "gj." + name.removeprefix("llvm.")


def assembly(template: str) -> str | None:
    """The function that stands for a piece of PTX; `{type}` in it is the type that it moves."""
    operation = _MEMORY_OPERATION.match(template)
    if operation:
        return f"gj.memory.{operation[1]}.{{type}}"
    return _ASSEMBLY.get(template)


def assembly_as_call(line: str) -> tuple[str, str] | None:
    """An instruction of inline assembly as a call, and the function; None if nothing stands for it.

    Parameters
    ----------
    line : str
        The printed instruction.
    """
    found = TEMPLATE.search(line)
    target = assembly(found[1]) if found else None
    if target is None:
        return None
    call = _CALL.sub("@GJ", line)
    if "{type}" in target:
        types = re.search(r"call (\w+) @GJ\(ptr [^,]*?(?:, (\w+) [^,]*)?\)", call)
        assert types is not None
        target = target.format(type=types[2] or types[1])
    return call.replace("@GJ", f"@{target}"), target


def memory_operation(name: str) -> str:
    """The definition of `gj.memory`, a load or store with a cache hint, as a plain one."""
    _, _, kind, type_ = name.split(".")
    if kind == "ld":
        returns, parameters = type_, "ptr %p"
        body = f"  %r = load {type_}, ptr %p\n  ret {type_} %r"
    else:
        returns, parameters = "void", f"ptr %p, {type_} %v"
        body = f"  store {type_} %v, ptr %p\n  ret void"
    return defined(name, returns, parameters, body)


def defined(name: str, returns: str, parameters: str, body: str) -> str:
    """LLVM text of a function that is inlined wherever it is called."""
    return f"define internal {returns} @{name}({parameters}) alwaysinline nounwind {{\n{body}\n}}"


def _minmax(type_: str, early: str, compare: str) -> str:
    """Numba's float max and min: a NaN never replaces a number, `early` says which NaN ends it."""
    bits = "i32" if type_ == "float" else "i64"
    size = 4 if type_ == "float" else 8
    return f"""entry:
  %first = load atomic {bits}, ptr %p monotonic, align {size}
  %firstf = bitcast {bits} %first to {type_}
  %stop = fcmp uno {type_} %v, {early}
  %new = bitcast {type_} %v to {bits}
  br i1 %stop, label %done, label %check
check:
  %old = phi {bits} [ %first, %entry ], [ %seen, %attempt ]
  %oldf = bitcast {bits} %old to {type_}
  %go = fcmp {compare} {type_} %oldf, %v
  br i1 %go, label %attempt, label %done
attempt:
  %pair = cmpxchg ptr %p, {bits} %old, {bits} %new monotonic monotonic
  %seen = extractvalue {{ {bits}, i1 }} %pair, 0
  %won = extractvalue {{ {bits}, i1 }} %pair, 1
  br i1 %won, label %done, label %check
done:
  %r = phi {bits} [ %first, %entry ], [ %old, %check ], [ %old, %attempt ]
  %rf = bitcast {bits} %r to {type_}
  ret {type_} %rf"""


def float_extremes() -> dict[str, str]:
    """Definitions of Numba's atomic max and min of floating-point numbers."""
    table = {}
    for type_ in ("float", "double"):
        for nan in ("", "nan"):
            early = "%v" if nan else "%firstf"
            for operation, compare in (("max", "lt"), ("min", "gt")):
                order = ("u" if nan else "o") + compare
                name = f"___numba_atomic_{type_}_{nan}{operation}"
                body = _minmax(type_, early, order)
                table[name] = defined(name, type_, f"ptr %p, {type_} %v", body)
    return table


PAIR = "{ i32, i1 }"
"""What shuffles and votes return: a number and a flag."""


def return_pair(number: str, flag: str) -> str:
    """The end of a function that returns a pair."""
    return (
        f"  %pair.0 = insertvalue {PAIR} undef, i32 {number}, 0\n"
        f"  %pair.1 = insertvalue {PAIR} %pair.0, i1 {flag}, 1\n"
        f"  ret {PAIR} %pair.1"
    )


# PTX's shfl: which lane to read, and whether it lies in the caller's segment of the warp.
SHUFFLE = """  %bval = and i32 %b, 31
  %cval = and i32 %c, 31
  %c8 = lshr i32 %c, 8
  %segment = and i32 %c8, 31
  %inside = xor i32 %segment, 31
  %min = and i32 %lane, %segment
  %cin = and i32 %cval, %inside
  %max = or i32 %min, %cin
  %idx0 = and i32 %bval, %inside
  %j.idx = or i32 %min, %idx0
  %j.up = sub i32 %lane, %bval
  %j.down = add i32 %lane, %bval
  %j.bfly = xor i32 %lane, %bval
  %is.up = icmp eq i32 %mode, 1
  %is.down = icmp eq i32 %mode, 2
  %is.bfly = icmp eq i32 %mode, 3
  %j1 = select i1 %is.up, i32 %j.up, i32 %j.idx
  %j2 = select i1 %is.down, i32 %j.down, i32 %j1
  %j = select i1 %is.bfly, i32 %j.bfly, i32 %j2
  %ok.up = icmp sge i32 %j, %max
  %ok.else = icmp sle i32 %j, %max
  %ok = select i1 %is.up, i1 %ok.up, i1 %ok.else
  %src0 = select i1 %ok, i32 %j, i32 %lane
  %src = add i32 %base, %src0
"""

# PTX's vote: `%v`, from the lanes that said yes and those that were asked.
VOTE = """  %none = icmp eq i32 %ballot, 0
  %any = xor i1 %none, true
  %all = icmp eq i32 %ballot, %members
  %equal = or i1 %all, %none
  %is.all = icmp eq i32 %mode, 0
  %is.eq = icmp eq i32 %mode, 2
  %v0 = select i1 %is.all, i1 %all, i1 %any
  %v = select i1 %is.eq, i1 %equal, i1 %v0
"""


def simplify(module: Any, machine: Any, *passes: str) -> None:
    """Run the named passes of llvmlite's module pass manager, in order."""
    manager = llvm.create_new_module_pass_manager()
    for name in passes:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
