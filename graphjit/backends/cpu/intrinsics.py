"""What CUDA's intrinsics mean on a host, as LLVM functions of the same signatures.

A kernel's calls are not rewritten: its declarations are renamed and these definitions inlined. What
differs from thread to thread is read through *markers*, functions without arguments that
`regions` later turns into parameters of the thread function. Threads wait for each other by
calling a *suspend point*; what they exchange lies in an array of fields, one lane a thread.
"""

from __future__ import annotations

import re

from graphjit.kernel.device_runtime import (
    AXES,
    PAIR,
    SHUFFLE,
    VOTE,
    defined,
    float_extremes,
    return_pair,
)

# Fields of the exchange array: a row of 4-byte lanes each, `gj.stride` lanes apart.
VALUE, VALUE_HIGH, MASK, SEEN, SEEN_HIGH, RESULT, MEMBERS = range(7)
EXCHANGE_FIELDS = 7

# Suspend points and the kind of each: who has to arrive before a thread goes on.
SUSPENDS = {"gj.suspend.block": "block", "gj.suspend.reduce": "reduce", "gj.suspend.warp": "warp"}

# The ranges are those of CUDA; they let 32-bit index arithmetic be widened.
_RANGES = {"tid": (0, 1024), "ntid": (1, 1025), "ctaid": (0, 2**31 - 1), "nctaid": (1, 2**31 - 1)}

# Marker -> LLVM type. A marker has the same value at every call of one thread.
MARKERS = {
    **{f"gj.{register}.{axis}": "i32" for register in _RANGES for axis in AXES},
    "gj.lin": "i32",  # linear index of the thread in its block
    "gj.stride": "i64",  # lanes of a field or slot: the block's threads, rounded up
    "gj.dynamic_size": "i32",
    "gj.shared": "ptr",
    "gj.exchange": "ptr",
}

# Those that differ from thread to thread of a block.
OF_ONE_THREAD = {*(f"gj.tid.{axis}" for axis in AXES), "gj.lin", "gj.global"}

_PURE = "nocallback nofree nosync nounwind speculatable willreturn memory(none)"
_WAITS = "convergent nounwind"


def _marker(name: str, type_: str) -> str:
    bounds = ""
    register = name.split(".")[1]
    if register in _RANGES:
        low, high = _RANGES[register]
        bounds = f"noundef range(i32 {low}, {high}) "
    return f"declare {bounds}{type_} @{name}() {_PURE}"


_LANE = "  %lin = call i32 @gj.lin()\n  %lane = and i32 %lin, 31\n"


def _atomics() -> dict[str, str]:
    table = {}
    for type_ in ("float", "double"):
        for operation in ("add", "sub"):
            table[f"___numba_atomic_{type_}_{operation}"] = (
                type_,
                f"  %r = atomicrmw f{operation} ptr %p, {type_} %v monotonic\n  ret {type_} %r",
            )
    for operation in ("inc", "dec"):
        table[f"___numba_atomic_u64_{operation}"] = (
            "i64",
            f"  %r = atomicrmw u{operation}_wrap ptr %p, i64 %v monotonic\n  ret i64 %r",
        )
    texts = {
        name: defined(name, type_, f"ptr %p, {type_} %v", body)
        for name, (type_, body) in table.items()
    }
    return texts | float_extremes()


def _definitions() -> dict[str, str]:
    table = {name: _marker(name, type_) for name, type_ in MARKERS.items()}
    read = "gj.nvvm.read.ptx.sreg"
    table[f"{read}.warpsize"] = defined(f"{read}.warpsize", "i32", "", "  ret i32 32")
    table[f"{read}.laneid"] = defined(f"{read}.laneid", "i32", "", _LANE + "  ret i32 %lane")
    for scope in ("cta", "gl", "sys"):
        name = f"gj.nvvm.membar.{scope}"
        table[name] = defined(name, "void", "", "  fence seq_cst\n  ret void")
    table["gj.lanemask.lt"] = defined(
        "gj.lanemask.lt",
        "i32",
        "",
        _LANE + "  %bit = shl i32 1, %lane\n  %r = sub i32 %bit, 1\n  ret i32 %r",
    )
    table["gj.nanosleep"] = defined("gj.nanosleep", "void", "i32 %ns", "  ret void")
    table["gj.tanh.f32"] = defined(
        "gj.tanh.f32", "float", "float %x", "  %r = call float @tanhf(float %x)\n  ret float %r"
    )
    table["gj.field"] = defined(
        "gj.field",
        "ptr",
        "i32 %field, i32 %lane",
        "  %base = call ptr @gj.exchange()\n"
        "  %stride = call i64 @gj.stride()\n"
        "  %f = zext i32 %field to i64\n"
        "  %l = zext i32 %lane to i64\n"
        "  %row = mul nuw nsw i64 %f, %stride\n"
        "  %i = add nuw nsw i64 %row, %l\n"
        "  %r = getelementptr i32, ptr %base, i64 %i\n"
        "  ret ptr %r",
    )
    return table | _atomics()


DEFINITIONS = _definitions()


def _put(field: int, value: str) -> str:
    return (
        f"  %put.{field} = call ptr @gj.field(i32 {field}, i32 %lin)\n"
        f"  store i32 {value}, ptr %put.{field}\n"
    )


def _get(field: int, name: str, lane: str = "%lin") -> str:
    return (
        f"  %{name}.p = call ptr @gj.field(i32 {field}, i32 {lane})\n"
        f"  %{name} = load i32, ptr %{name}.p\n"
    )


def _collective(
    name: str, returns: str, parameters: str, before: str, suspend: str, after: str
) -> str:
    """A function whose caller's block is cut in two where threads wait.

    The suspend point looks like a loop, which keeps LLVM from joining the two parts again.
    """
    return defined(
        name,
        returns,
        parameters,
        f"entry:\n  %lin = call i32 @gj.lin()\n{before}  br label %wait\n"
        f"wait:\n  %again = call i1 @{suspend}()\n"
        f"  br i1 %again, label %wait, label %resume\nresume:\n{after}",
    )


_WARP_BASE = "  %lane = and i32 %lin, 31\n  %base = and i32 %lin, -32\n"


def _match_loop(wide: bool) -> str:
    """Collect in `%found` the members of the group that showed the same value."""
    high = _get(SEEN_HIGH, "high", "%other") + "  %eq.high = icmp eq i32 %high, %mine.high\n"
    return (
        "  br label %next\nnext:\n"
        "  %i = phi i32 [ 0, %resume ], [ %i.next, %next ]\n"
        "  %acc = phi i32 [ 0, %resume ], [ %found, %next ]\n"
        "  %other = add i32 %base, %i\n"
        + _get(SEEN, "low", "%other")
        + "  %eq.low = icmp eq i32 %low, %mine\n"
        + (high if wide else "  %eq.high = icmp eq i32 0, 0\n")
        + "  %eq = and i1 %eq.low, %eq.high\n"
        "  %eq32 = zext i1 %eq to i32\n"
        "  %bit = shl i32 %eq32, %i\n"
        "  %member = and i32 %bit, %members\n"
        "  %found = or i32 %acc, %member\n"
        "  %i.next = add nuw nsw i32 %i, 1\n"
        "  %more = icmp ult i32 %i.next, 32\n"
        "  br i1 %more, label %next, label %end\nend:\n"
    )


def _match(kind: str, bits: int) -> str:
    wide = bits == 64
    if wide:
        split = "  %mine = trunc i64 %v to i32\n  %top = lshr i64 %v, 32\n"
        split += "  %mine.high = trunc i64 %top to i32\n" + _put(VALUE_HIGH, "%mine.high")
    else:
        split = "  %mine = or i32 %v, 0\n"
    before = split + _put(VALUE, "%mine") + _put(MASK, "%mask")
    after = _WARP_BASE + _get(MEMBERS, "members") + _match_loop(wide)
    if kind == "any":
        returns, end = "i32", "  ret i32 %found"
    else:
        returns = PAIR
        end = "  %all = icmp eq i32 %found, %members\n  %n = select i1 %all, i32 %found, i32 0\n"
        end += return_pair("%n", "%all")
    name = f"gj.nvvm.match.{kind}.sync.i{bits}"
    return _collective(
        name, returns, f"i32 %mask, i{bits} %v", before, "gj.suspend.warp", after + end
    )


def _collectives() -> dict[str, str]:
    barrier = "gj.nvvm.barrier.cta"
    result = _get(RESULT, "count") + _get(MEMBERS, "arrived")
    predicate = "  %p32 = zext i1 %p to i32\n" + _put(VALUE, "%p32")
    table = {
        f"{barrier}.sync.aligned.all": (
            "void", "i32 %id", "", "gj.suspend.block", "  ret void"),
        f"{barrier}.red.popc.aligned.all": (
            "i32", "i32 %id, i1 %p", predicate, "gj.suspend.reduce", result + "  ret i32 %count"),
        f"{barrier}.red.and.aligned.all": (
            "i1", "i32 %id, i1 %p", predicate, "gj.suspend.reduce",
            result + "  %r = icmp eq i32 %count, %arrived\n  ret i1 %r"),
        f"{barrier}.red.or.aligned.all": (
            "i1", "i32 %id, i1 %p", predicate, "gj.suspend.reduce",
            result + "  %r = icmp ne i32 %count, 0\n  ret i1 %r"),
        "gj.nvvm.bar.warp.sync": (
            "void", "i32 %mask", _put(MASK, "%mask"), "gj.suspend.warp", "  ret void"),
        # The lanes that stand at the same place together; mask 0 is no real mask.
        "gj.activemask": (
            "i32", "", _put(MASK, "0"), "gj.suspend.warp",
            _get(MEMBERS, "members") + "  ret i32 %members"),
        "gj.nvvm.shfl.sync.i32": (
            PAIR, "i32 %mask, i32 %mode, i32 %v, i32 %b, i32 %c",
            _put(VALUE, "%v") + _put(MASK, "%mask"), "gj.suspend.warp",
            _WARP_BASE + SHUFFLE + _get(SEEN, "got", "%src") + return_pair("%got", "%ok")),
        "gj.nvvm.vote.sync": (
            PAIR, "i32 %mask, i32 %mode, i1 %p",
            predicate + _put(MASK, "%mask"), "gj.suspend.warp",
            _get(RESULT, "ballot") + _get(MEMBERS, "members") + VOTE
            + return_pair("%ballot", "%v")),
    }  # fmt: skip
    texts = {name: _collective(name, *parts) for name, parts in table.items()}
    for kind in ("any", "all"):
        for bits in (32, 64):
            texts[f"gj.nvvm.match.{kind}.sync.i{bits}"] = _match(kind, bits)
    return texts


# Functions in which a thread waits for others. They are declared only while the kernel is
# simplified and defined afterwards, so that the blocks they cut stay cut.
COLLECTIVES = _collectives()
SUSPEND_DECLARATIONS = "\n".join(f"declare i1 @{name}() {_WAITS}" for name in SUSPENDS)


def collective_declaration(name: str) -> str:
    """Declaration of a collective that optimisation passes may not move or copy."""
    head = COLLECTIVES[name].split(") alwaysinline", 1)[0].replace("define internal", "declare")
    return re.sub(r" %\w+", "", head) + f") {_WAITS}"
