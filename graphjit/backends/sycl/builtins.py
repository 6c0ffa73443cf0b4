"""What CUDA's intrinsics mean on a SYCL device, as LLVM functions that call OpenCL's builtins.

As on the CPU, a kernel's calls are not rewritten: its declarations are renamed and these
definitions inlined. LLVM's SPIR-V target knows the builtins by their mangled names.
"""

from __future__ import annotations

import re

from graphjit.kernel import half, libdevice
from graphjit.kernel.device_runtime import (
    AXES,
    PAIR,
    SHUFFLE,
    VOTE,
    called,
    defined,
    float_extremes,
    memory_operation,
    return_pair,
)

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
# Local memory, global memory, both: OpenCL's flags of a fence.
_FENCED = 3

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


def differs(name: str) -> bool:
    """Whether what a function returns differs between threads that give it the same."""
    if name.startswith("llvm."):
        return False
    return name in _DIFFERENT or not name.startswith("_Z")


# Compares and exchanges: pointer, scope, semantics if equal and if not, new value, comparator.
EXCHANGES = {
    "i32": "_Z29__spirv_AtomicCompareExchangePU3AS4iiiiii",
    "i64": "_Z29__spirv_AtomicCompareExchangePU3AS4liiill",
}

_DIFFERENT = frozenset((_REGISTERS["tid"], *EXCHANGES.values()))


def exchange_declaration(type_: str) -> str:
    """The declaration of `gj.exchange`, which gets the name of SPIR-V's at last."""
    return (
        f"declare spir_func {type_} @gj.exchange.{type_}"
        f"(ptr, i32, i32, i32, {type_}, {type_}) nounwind"
    )


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
    wait = f"  call spir_func void @_Z7barrierj(i32 {_FENCED})\n"

    def reduced(kind: str, returns: str, builtin: str, end: str) -> str:
        name = f"{base}.red.{kind}.aligned.all"
        return defined(
            name,
            returns,
            "i32 %id, i1 %p",
            f"{wait}  %p32 = zext i1 %p to i32\n"
            f"  %n = call spir_func i32 @{builtin}(i32 %p32)\n{end}",
        )

    flag = "  %r = icmp ne i32 %n, 0\n  ret i1 %r"
    return {
        f"{base}.sync.aligned.all": defined(
            f"{base}.sync.aligned.all", "void", "i32 %id", f"{wait}  ret void"
        ),
        f"{base}.red.popc.aligned.all": reduced(
            "popc", "i32", "_Z21work_group_reduce_addi", "  ret i32 %n"
        ),
        f"{base}.red.and.aligned.all": reduced("and", "i1", "_Z14work_group_alli", flag),
        f"{base}.red.or.aligned.all": reduced("or", "i1", "_Z14work_group_anyi", flag),
    }


def _exchanging(name: str, type_: str, changed: str) -> str:
    """An atomic operation in a loop that compares and exchanges."""
    bits = {"float": "i32", "double": "i64"}.get(type_, type_)
    is_float = bits != type_
    seen = f"  %old = bitcast {bits} %was to {type_}\n" if is_float else ""
    made = f"  %next = bitcast {type_} %new to {bits}\n" if is_float else ""
    was = "%was" if not is_float else "%old"
    result = f"  %r = bitcast {bits} %was to {type_}\n  ret {type_} %r"
    if not is_float:
        result = f"  ret {type_} %was"
    return defined(
        name,
        type_,
        f"ptr %p, {type_} %v",
        f"entry:\n  %first = load {bits}, ptr %p\n  br label %try\n"
        f"try:\n  %was = phi {bits} [ %first, %entry ], [ %now, %try ]\n{seen}"
        + changed.replace("%old", was).replace("{type}", type_)
        + "\n"
        + made
        + f"  %pair = cmpxchg ptr %p, {bits} %was, {bits} {'%next' if is_float else '%new'} "
        "monotonic monotonic\n"
        f"  %now = extractvalue {{ {bits}, i1 }} %pair, 0\n"
        f"  %won = extractvalue {{ {bits}, i1 }} %pair, 1\n"
        f"  br i1 %won, label %done, label %try\ndone:\n{result}",
    )


# What numba-cuda's own atomicrmw instructions do that SPIR-V has none for.
_EXCHANGED = {
    "fadd": "  %new = fadd {type} %old, %v",
    "fsub": "  %new = fsub {type} %old, %v",
    "uinc_wrap": "  %over = icmp uge {type} %old, %v\n  %one = add {type} %old, 1\n"
    "  %new = select i1 %over, {type} 0, {type} %one",
    "udec_wrap": "  %zero = icmp eq {type} %old, 0\n  %over = icmp ugt {type} %old, %v\n"
    "  %reset = or i1 %zero, %over\n  %one = sub {type} %old, 1\n"
    "  %new = select i1 %reset, {type} %v, {type} %one",
    "nand": "  %and = and {type} %old, %v\n  %new = xor {type} %and, -1",
}


def _atomics() -> dict[str, str]:
    table = {}
    for type_ in ("float", "double"):
        for operation in ("add", "sub"):
            name = f"___numba_atomic_{type_}_{operation}"
            table[name] = _exchanging(name, type_, _EXCHANGED[f"f{operation}"])
    for operation in ("inc", "dec"):
        name = f"___numba_atomic_u64_{operation}"
        table[name] = _exchanging(name, "i64", _EXCHANGED[f"u{operation}_wrap"])
    for operation, changed in _EXCHANGED.items():
        for type_ in ("float", "double") if operation[0] == "f" else ("i32", "i64"):
            name = f"gj.atomic.{operation}.{type_}"
            table[name] = _exchanging(name, type_, changed)
    return table | float_extremes()


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
    return "\n".join([text, *(DEFINITIONS[f"gj.{name}"] for name in found)])


_LANE = "  %lin = call i32 @gj.lin()\n  %lane = and i32 %lin, 31\n  %base = and i32 %lin, -32\n"
_WAIT = f"  call spir_func void @_Z7barrierj(i32 {_FENCED})\n"
# The lanes that a block's last warp has.
_MEMBERS = (
    "  %threads = call i32 @gj.threads()\n  %left = sub i32 %threads, %base\n"
    "  %is.full = icmp sge i32 %left, 32\n  %bits = shl i32 1, %left\n"
    "  %some = sub i32 %bits, 1\n  %there = select i1 %is.full, i32 -1, i32 %some\n"
    "  %members = and i32 %there, %mask\n"
)


def _put(value: str, half: int) -> str:
    return (
        f"  %put.{half} = call ptr @gj.lane(i32 %lin, i32 {half})\n"
        f"  store i32 {value}, ptr %put.{half}\n"
    )


def _over_lanes(bits: str) -> str:
    """A loop that collects in `%all.bits` a bit of each lane of a warp."""
    return (
        "  br label %next\nnext:\n"
        "  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]\n"
        "  %so.far = phi i32 [ 0, %entry ], [ %all.bits, %next ]\n"
        f"  %other = add i32 %base, %i\n{bits}"
        "  %one = zext i1 %is.so to i32\n  %bit = shl i32 %one, %i\n"
        "  %all.bits = or i32 %so.far, %bit\n  %i.next = add nuw nsw i32 %i, 1\n"
        "  %more = icmp ult i32 %i.next, 32\n  br i1 %more, label %next, label %end\nend:\n"
        f"{_WAIT}"
    )


def _get(half: int) -> str:
    return (
        f"  %get.{half} = call ptr @gj.lane(i32 %other, i32 {half})\n"
        f"  %theirs.{half} = load i32, ptr %get.{half}\n"
    )


def _match(kind: str, bits: int) -> str:
    """The lanes of a warp that have the same value."""
    if bits == 64:
        split = (
            "  %mine.0 = trunc i64 %v to i32\n  %top = lshr i64 %v, 32\n"
            "  %mine.1 = trunc i64 %top to i32\n" + _put("%mine.1", 1)
        )
        same = _get(0) + _get(1) + (
            "  %low.so = icmp eq i32 %theirs.0, %mine.0\n"
            "  %high.so = icmp eq i32 %theirs.1, %mine.1\n  %is.so = and i1 %low.so, %high.so\n"
        )  # fmt: skip
    else:
        split = "  %mine.0 = or i32 %v, 0\n"
        same = _get(0) + "  %is.so = icmp eq i32 %theirs.0, %mine.0\n"
    body = f"entry:\n{_LANE}{_MEMBERS}{split}{_put('%mine.0', 0)}{_WAIT}{_over_lanes(same)}"
    body += "  %found = and i32 %all.bits, %members\n"
    name = f"gj.nvvm.match.{kind}.sync.i{bits}"
    if kind == "any":
        return defined(name, "i32", f"i32 %mask, i{bits} %v", f"{body}  ret i32 %found")
    body += "  %all = icmp eq i32 %found, %members\n  %n = select i1 %all, i32 %found, i32 0\n"
    return defined(name, PAIR, f"i32 %mask, i{bits} %v", body + return_pair("%n", "%all"))


def _warps() -> dict[str, str]:
    """What the lanes of a warp do together, through local memory, the whole block waiting.

    Sub-groups would be faster, but devices have them of other sizes, with lanes elsewhere, and
    Intel's compiler for CPUs gives up on some kernels and lets each thread be a sub-group.
    """
    shuffle = (
        f"{_LANE}{_put('%v', 0)}{_WAIT}{SHUFFLE}"
        "  %from = call ptr @gj.lane(i32 %src, i32 0)\n  %got = load i32, ptr %from\n" + _WAIT
    )
    vote = (
        f"entry:\n{_LANE}{_MEMBERS}  %p32 = zext i1 %p to i32\n{_put('%p32', 0)}{_WAIT}"
        + _over_lanes(_get(0) + "  %is.so = icmp ne i32 %theirs.0, 0\n")
        + "  %ballot = and i32 %all.bits, %members\n"
        + VOTE
    )
    threads = "".join(f"  %n{axis} = call i32 @gj.ntid.{axis}()\n" for axis in AXES)
    return {
        "gj.threads": defined(
            "gj.threads", "i32", "",
            f"{threads}  %a = mul i32 %nx, %ny\n  %r = mul i32 %a, %nz\n  ret i32 %r",
        ),
        "gj.lane": defined(
            "gj.lane", "ptr", "i32 %lane, i32 %half",
            f"  %base = call ptr @{EXCHANGE}()\n  %a = mul i32 %lane, 2\n"
            "  %b = add i32 %a, %half\n  %c = zext i32 %b to i64\n"
            "  %r = getelementptr i32, ptr %base, i64 %c\n  ret ptr %r",
        ),
        "gj.activemask": defined(
            "gj.activemask", "i32", "",
            f"{_LANE}  %mask = or i32 0, -1\n{_MEMBERS}{_WAIT}  ret i32 %members",
        ),
        "gj.nvvm.bar.warp.sync": defined(
            "gj.nvvm.bar.warp.sync", "void", "i32 %mask", f"{_WAIT}  ret void"
        ),
        "gj.nvvm.shfl.sync.i32": defined(
            "gj.nvvm.shfl.sync.i32", PAIR, "i32 %mask, i32 %mode, i32 %v, i32 %b, i32 %c",
            shuffle + return_pair("%got", "%ok"),
        ),
        "gj.nvvm.vote.sync": defined(
            "gj.nvvm.vote.sync", PAIR, "i32 %mask, i32 %mode, i1 %p",
            vote + return_pair("%ballot", "%v"),
        ),
        EXCHANGE: f"declare ptr @{EXCHANGE}() {_PURE}",
        **{
            f"gj.nvvm.match.{kind}.sync.i{bits}": _match(kind, bits)
            for kind in ("any", "all")
            for bits in (32, 64)
        },
    }  # fmt: skip


EXCHANGE = "gj.exchange"
"""Gives the local memory in which the lanes of warps exchange: 8 bytes a thread."""


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
        **_warps(),
        **_registers(),
        **_barriers(),
        **_atomics(),
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
        "  %r = call spir_func float @_Z4tanhf(float %x)\n  ret float %r",
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
    return "\n".join(texts.values())
