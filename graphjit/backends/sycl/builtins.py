"""What CUDA's intrinsics mean on a SYCL device, as LLVM functions that call OpenCL's builtins.

As on the CPU, a kernel's calls are not rewritten: its declarations are renamed and these
definitions inlined. LLVM's SPIR-V target knows the builtins by their mangled names.
"""

from __future__ import annotations

import re

from graphjit.backends.sycl.atomics import EXCHANGES, atomics
from graphjit.backends.sycl.warps import WAIT, warps
from graphjit.kernel import half, libdevice
from graphjit.kernel.device_runtime import (
    AXES,
    called,
    defined,
    memory_operation,
)
from graphjit.kernel.instructions import Instruction

_PURE = "nocallback nofree nosync nounwind willreturn memory(none)"
_WAITS = "convergent nounwind"
# CUDA's registers and OpenCL's builtins; x is 0 in both.
_REGISTERS = {
    "tid": "_Z12get_local_idj",
    "ntid": "_Z14get_local_sizej",
    "ctaid": "_Z12get_group_idj",
    "nctaid": "_Z14get_num_groupsj",
}
# The least and one past the greatest value: a loop with a step that can't be 0 has no error.
_RANGES = {"tid": (0, 2**20), "ntid": (1, 2**20), "ctaid": (0, 2**31 - 1), "nctaid": (1, 2**31 - 1)}

BUILTINS: dict[str, str] = {
    **{
        name: "declare spir_func range(i64 {}, {}) i64 @{}(i32) {}".format(
            *_RANGES[register], name, _PURE
        )
        for register, name in _REGISTERS.items()
    },
    "_Z7barrierj": f"declare spir_func void @_Z7barrierj(i32) {_WAITS}",
    **{
        f"_Z{len(name)}{name}i": f"declare spir_func i32 @_Z{len(name)}{name}i(i32) {_WAITS}"
        for name in ("work_group_reduce_add", "work_group_all", "work_group_any")
    },
}
"""Functions that SPIR-V has instructions for."""


def waits(name: str) -> bool:
    """Whether the threads of a block wait for each other in a function."""
    return BUILTINS.get(name, "").endswith(_WAITS)


def differs(line: Instruction) -> bool:
    """Whether an instruction makes a value that differs between threads by itself."""
    if line.opcode != "call":
        return line.opcode in ("alloca", "atomicrmw", "cmpxchg")
    if line.callee.startswith("llvm."):
        return False
    return line.callee in _DIFFERENT or not line.callee.startswith("_Z")


_DIFFERENT = frozenset((_REGISTERS["tid"], *EXCHANGES.values()))


# libm's name -> OpenCL's, where they differ.
_RENAMED = {"scalbn": "ldexp"}
_MISSING = {"j0", "j1", "y0", "y1", "jn", "yn"}
_TO_INTEGER = {"llrint": "rint", "llround": "round"}


def _registers() -> dict[str, str]:
    table = {}
    for register, builtin in _REGISTERS.items():
        for number, axis in enumerate(AXES):
            name = f"gj.{register}.{axis}"
            table[name] = defined(
                name,
                "i32",
                "",
                f"  %w = call spir_func i64 @{builtin}(i32 {number})\n"
                "  %r = trunc i64 %w to i32\n  ret i32 %r",
            )
    return table


def _linear() -> str:
    lines = []
    for register in ("tid", "ntid"):
        for axis in AXES[: 3 if register == "tid" else 2]:
            lines.append(f"  %{register}.{axis} = call i32 @gj.{register}.{axis}()")
    lines += [
        "  %a = mul i32 %tid.z, %ntid.y",
        "  %b = add i32 %a, %tid.y",
        "  %c = mul i32 %b, %ntid.x",
        "  %r = add i32 %c, %tid.x",
        "  ret i32 %r",
    ]
    return defined("gj.lin", "i32", "", "\n".join(lines))


def _barriers() -> dict[str, str]:
    base = "gj.nvvm.barrier.cta"

    def reduced(kind: str, returns: str, builtin: str, end: str) -> str:
        name = f"{base}.red.{kind}.aligned.all"
        return defined(
            name,
            returns,
            "i32 %id, i1 %p",
            f"{WAIT}  %p32 = zext i1 %p to i32\n"
            f"  %n = call spir_func i32 @{builtin}(i32 %p32)\n{end}",
        )

    flag = "  %r = icmp ne i32 %n, 0\n  ret i1 %r"
    return {
        f"{base}.sync.aligned.all": defined(
            f"{base}.sync.aligned.all", "void", "i32 %id", f"{WAIT}  ret void"
        ),
        f"{base}.red.popc.aligned.all": reduced(
            "popc", "i32", "_Z21work_group_reduce_addi", "  ret i32 %n"
        ),
        f"{base}.red.and.aligned.all": reduced("and", "i1", "_Z14work_group_alli", flag),
        f"{base}.red.or.aligned.all": reduced("or", "i1", "_Z14work_group_anyi", flag),
    }


def _bits() -> dict[str, str]:
    """Bits in reverse order: SPIR-V's instruction is for shaders."""
    lines: list[str] = []
    value = "%v"
    for step, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        n = len(lines)
        lines += [
            f"  %u{n} = lshr i32 {value}, {step}\n  %l{n} = and i32 %u{n}, {mask}\n"
            f"  %m{n} = and i32 {value}, {mask}\n  %h{n} = shl i32 %m{n}, {step}\n"
            f"  %v{n} = or i32 %l{n}, %h{n}\n"
        ]
        value = f"%v{n}"
    lines.append(f"  %hi = shl i32 {value}, 16\n  %lo = lshr i32 {value}, 16\n")
    lines.append("  %r = or i32 %hi, %lo\n  ret i32 %r")
    name = "gj.bitreverse.i32"
    wide = (
        "  %lo = trunc i64 %v to i32\n  %up = lshr i64 %v, 32\n  %hi = trunc i64 %up to i32\n"
        f"  %a = call i32 @{name}(i32 %lo)\n  %b = call i32 @{name}(i32 %hi)\n"
        "  %c = zext i32 %a to i64\n  %d = shl i64 %c, 32\n  %e = zext i32 %b to i64\n"
        "  %r = or i64 %d, %e\n  ret i64 %r"
    )
    return {
        name: defined(name, "i32", "i32 %v", "".join(lines)),
        "gj.bitreverse.i64": defined("gj.bitreverse.i64", "i64", "i64 %v", wide),
    }


def without_reversals(text: str) -> str:
    """The module with `llvm.bitreverse`, which LLVM makes of shifts and masks, as calls."""
    found = set(re.findall(r"@llvm\.(bitreverse\.i(?:32|64))\(", text))
    if "bitreverse.i64" in found:
        found.add("bitreverse.i32")
    text = re.sub(r"^declare .*@llvm\.bitreverse\..*$", "", text, flags=re.MULTILINE)
    text = text.replace("@llvm.bitreverse.", "@gj.bitreverse.")
    return "\n".join([text, *(DEFINITIONS[f"gj.{name}"] for name in sorted(found))])


def _normal() -> str:
    """The normal distribution function, by the error function."""
    root = "0x3FE6A09E667F3BCD"  # of a half
    return defined(
        "gj.special.normcdf", "double", "double %x",
        f"  %n = fneg double %x\n  %s = fmul double %n, {root}\n"
        "  %e = call double @erfc(double %s)\n  %r = fmul double %e, 0.5\n  ret double %r",
    )  # fmt: skip


def _definitions() -> dict[str, str]:
    table = {
        **warps(),
        **_registers(),
        **_barriers(),
        **atomics(),
        **_bits(),
        "gj.lin": _linear(),
    }
    read = "gj.nvvm.read.ptx.sreg"
    table[f"{read}.warpsize"] = defined(f"{read}.warpsize", "i32", "", "  ret i32 32")
    lane = "  %lin = call i32 @gj.lin()\n  %lane = and i32 %lin, 31\n"
    table[f"{read}.laneid"] = defined(f"{read}.laneid", "i32", "", lane + "  ret i32 %lane")
    table["gj.lanemask.lt"] = defined(
        "gj.lanemask.lt", "i32", "",
        lane + "  %bit = shl i32 1, %lane\n  %r = sub i32 %bit, 1\n  ret i32 %r",
    )  # fmt: skip
    table["gj.special.normcdf"] = _normal()
    for scope in ("cta", "gl", "sys"):
        name = f"gj.nvvm.membar.{scope}"
        table[name] = defined(name, "void", "", "  fence seq_cst\n  ret void")
    table["gj.nanosleep"] = defined("gj.nanosleep", "void", "i32 %ns", "  ret void")
    table["gj.tanh.f32"] = defined(
        "gj.tanh.f32", "float", "float %x",
        "  %r = call float @tanhf(float %x)\n  ret float %r",
    )  # fmt: skip
    return table


DEFINITIONS = _definitions()


def _maths(name: str) -> tuple[str, str] | None:
    """Definition of one of libm's functions by OpenCL's, and the declaration of that."""
    declaration = libdevice.LIBRARY.get(name)
    if declaration is None or name.startswith("gj."):
        return None
    found = re.match(r"declare (\w+) @\w+\(([^)]*)\)", declaration)
    assert found is not None
    returns, types = found[1], found[2].split(", ")
    base = name.removesuffix("f") if "float" in (returns, *types) else name
    if base in _MISSING:
        return None
    if base in _TO_INTEGER:
        suffix = "f32" if types[0] == "float" else "f64"
        body = f"  %w = call {types[0]} @llvm.{_TO_INTEGER[base]}.{suffix}({types[0]} %a)\n"
        body += f"  %r = fptosi {types[0]} %w to i64\n  ret i64 %r"
        return defined(name, returns, f"{types[0]} %a", body), ""
    base = _RENAMED.get(base, base)
    target = "d" if base == "modf" and types[0] == "double" else "f" if base == "modf" else "i"
    known = {"float": "f", "double": "d", "i32": "i", "ptr": f"PU3AS4{target}"}
    codes = "".join(known[t] for t in types)
    symbol = f"_Z{len(base)}{base}{codes}"
    parameters = ", ".join(f"{t} %{v}" for t, v in zip(types, "abc", strict=False))
    body = f"  %r = call spir_func {returns} @{symbol}({parameters})\n  ret {returns} %r"
    # Some write through a pointer.
    effects = "nounwind willreturn" if "ptr" in types else _PURE
    return (
        defined(name, returns, parameters, body),
        f"declare spir_func {returns} @{symbol}({', '.join(types)}) {effects}",
    )


def definition(name: str) -> str | None:
    """LLVM text that defines, or declares, a function of the runtime; None if there is none.

    Parameters
    ----------
    name : str
        The function.
    """
    for table in (DEFINITIONS, BUILTINS, half.DEFINITIONS):
        if name in table:
            return table[name]
    if name in libdevice.DEFINITIONS:
        text = libdevice.DEFINITIONS[name].replace("@llvm.bitreverse.", "@gj.bitreverse.")
        return _plain_rounding(text) if "constrained" in text else text
    if name.startswith("gj.memory."):
        return memory_operation(name)
    maths = _maths(name)
    if maths is not None:
        return "\n".join(maths)
    return half.definition(name)


def _plain_rounding(text: str) -> str | None:
    """A function that rounds to nearest, which is what SPIR-V's instructions do."""
    if '"round.tonearest"' not in text:
        return None
    found = re.search(
        r"%r = call (\w+) @llvm\.experimental\.constrained\.(\w+)\.([\w.]+)\((.*?), metadata", text
    )
    assert found is not None
    returns, operation, _, arguments = found.groups()
    head = text[: text.index("{\n")].replace("noinline strictfp", "alwaysinline")
    if operation in ("fadd", "fsub", "fmul", "fdiv"):
        first, second = (part.split() for part in arguments.split(", "))
        line = f"%r = {operation} {returns} {first[1]}, {second[1]}"
    elif operation in ("sqrt", "fma"):
        suffix = "f32" if returns == "float" else "f64"
        line = f"%r = call {returns} @llvm.{operation}.{suffix}({arguments})"
    else:
        line = f"%r = {operation} {arguments} to {returns}"
    return f"{head}{{\n  {line}\n  ret {returns} %r\n}}"


def exists(name: str) -> bool:
    """Whether the runtime, or SPIR-V, has a function."""
    if name in BUILTINS or re.match(r"_Z\d+[a-z0-9_]+", name):
        return True
    if name.startswith("llvm."):
        return is_known_intrinsic(name)
    text = definition(name)
    return text is not None and all(exists(other) for other in called(text) - {name})


# LLVM's intrinsics that its SPIR-V target takes.
_INTRINSICS = re.compile(
    r"llvm\.(?:"
    r"(?:ceil|floor|trunc|rint|round|nearbyint|fabs|sqrt|sin|cos|exp|exp2|log|log2|log10|pow|"
    r"maxnum|minnum|maximum|minimum|copysign|fma|fmuladd)\.f(?:16|32|64)"
    r"|(?:ctlz|cttz|ctpop|abs|bitreverse|smax|smin|umax|umin)\.i(?:8|16|32|64)"
    r"|(?:bswap|fshl|fshr)\.i(?:16|32|64)"
    r"|(?:uadd|usub|sadd|ssub)\.sat\.i(?:8|16|32|64)"
    r"|(?:uadd|usub|umul|smul|sadd|ssub)\.with\.overflow\.i(?:8|16|32|64)"
    r"|fpto[su]i\.sat\.i(?:8|16|32|64)\.f(?:16|32|64)"
    r"|mem(?:set|cpy|move)\.p\d(?:\.p\d)?\.i(?:32|64)"
    r"|lifetime\.(?:start|end)\.p\d"
    r"|assume|experimental\.noalias\.scope\.decl"
    r")$"
)


def is_known_intrinsic(name: str) -> bool:
    """Whether LLVM's SPIR-V target takes the intrinsic."""
    return _INTRINSICS.match(name) is not None


def definitions(needed: set[str]) -> str:
    """Definitions of functions and all that they call."""
    texts: dict[str, str] = {}
    todo = set(needed)
    while todo:
        name = todo.pop()
        if name in texts or name.startswith("llvm."):
            continue
        text = definition(name)
        if text is None:
            if re.match(r"_Z\d+", name):  # declared with what calls it
                continue
            raise NotImplementedError(f"the sycl backend has no definition of {name}")
        texts[name] = text
        todo |= called(text)
    return "\n".join(texts[name] for name in sorted(texts))
