"""CUDA's atomic operations on a SYCL device: compare and exchange, where SPIR-V has none."""

from __future__ import annotations

from graphjit.kernel.device_runtime import defined, float_extremes

# Compares and exchanges: pointer, scope, semantics if equal and if not, new value, comparator.
EXCHANGES = {
    "i32": "_Z29__spirv_AtomicCompareExchangePU3AS4iiiiii",
    "i64": "_Z29__spirv_AtomicCompareExchangePU3AS4liiill",
}


def exchange_declaration(type_: str) -> str:
    """The declaration of `gj.exchange`, which gets the name of SPIR-V's at last."""
    return (
        f"declare spir_func {type_} @gj.exchange.{type_}"
        f"(ptr, i32, i32, i32, {type_}, {type_}) nounwind"
    )


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


def atomics() -> dict[str, str]:
    """LLVM text of each function that does one, by name."""
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
