"""Shuffles, votes and matches of a warp on a SYCL device, through local memory."""

from __future__ import annotations

from graphjit.kernel.device_runtime import AXES, PAIR, SHUFFLE, VOTE, defined, return_pair

EXCHANGE = "gj.exchange"
"""Gives the local memory in which the lanes of warps exchange: 8 bytes a thread."""

# The flags of a fence are local memory and global memory, both.
WAIT = "  call spir_func void @_Z7barrierj(i32 3)\n"
"""A barrier of the whole block."""

_LANE = "  %lin = call i32 @gj.lin()\n  %lane = and i32 %lin, 31\n  %base = and i32 %lin, -32\n"
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
        f"{WAIT}"
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
    body = f"entry:\n{_LANE}{_MEMBERS}{split}{_put('%mine.0', 0)}{WAIT}{_over_lanes(same)}"
    body += "  %found = and i32 %all.bits, %members\n"
    name = f"gj.nvvm.match.{kind}.sync.i{bits}"
    if kind == "any":
        return defined(name, "i32", f"i32 %mask, i{bits} %v", f"{body}  ret i32 %found")
    body += "  %all = icmp eq i32 %found, %members\n  %n = select i1 %all, i32 %found, i32 0\n"
    return defined(name, PAIR, f"i32 %mask, i{bits} %v", body + return_pair("%n", "%all"))


def warps() -> dict[str, str]:
    """What the lanes of a warp do together, through local memory, the whole block waiting.

    Sub-groups would be faster, but devices have them of other sizes, with lanes elsewhere, and
    Intel's compiler for CPUs gives up on some kernels and lets each thread be a sub-group.
    """
    shuffle = (
        f"{_LANE}{_put('%v', 0)}{WAIT}{SHUFFLE}"
        "  %from = call ptr @gj.lane(i32 %src, i32 0)\n  %got = load i32, ptr %from\n" + WAIT
    )
    vote = (
        f"entry:\n{_LANE}{_MEMBERS}  %p32 = zext i1 %p to i32\n{_put('%p32', 0)}{WAIT}"
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
            f"{_LANE}  %mask = or i32 0, -1\n{_MEMBERS}{WAIT}  ret i32 %members",
        ),
        "gj.nvvm.bar.warp.sync": defined(
            "gj.nvvm.bar.warp.sync", "void", "i32 %mask", f"{WAIT}  ret void"
        ),
        "gj.nvvm.shfl.sync.i32": defined(
            "gj.nvvm.shfl.sync.i32", PAIR, "i32 %mask, i32 %mode, i32 %v, i32 %b, i32 %c",
            shuffle + return_pair("%got", "%ok"),
        ),
        "gj.nvvm.vote.sync": defined(
            "gj.nvvm.vote.sync", PAIR, "i32 %mask, i32 %mode, i1 %p",
            vote + return_pair("%ballot", "%v"),
        ),
        EXCHANGE: f"declare ptr @{EXCHANGE}() nounwind willreturn memory(none)",
        **{
            f"gj.nvvm.match.{kind}.sync.i{bits}": _match(kind, bits)
            for kind in ("any", "all")
            for bits in (32, 64)
        },
    }  # fmt: skip
