"""float16 in LLVM's half: the C functions and the PTX conversions that Numba uses."""

from __future__ import annotations

import re
from collections.abc import Iterator

_Parts = tuple[str, str, str]


def _define(name: str, returns: str, arguments: str, body: str) -> str:
    return f"define internal {returns} @{name}({arguments}) alwaysinline nounwind {{\n{body}\n}}"


# x86 rounds float to half in hardware but double only in a library that isn't always there: round
# to odd in float first, which makes the second rounding exact.
_FROM_DOUBLE = """define internal half @gj.half.from.double(double %x) alwaysinline nounwind {
  %f = fptrunc double %x to float
  %back = fpext float %f to double
  %error = fsub double %x, %back
  %inexact = fcmp one double %error, 0.0
  %bits = bitcast float %f to i32
  %odd = and i32 %bits, 1
  %even = icmp eq i32 %odd, 0
  %adjust = and i1 %inexact, %even
  %above = fcmp ogt double %error, 0.0
  %negative = icmp slt i32 %bits, 0
  %away = xor i1 %above, %negative
  %step = select i1 %away, i32 1, i32 -1
  %moved = add i32 %bits, %step
  %result = select i1 %adjust, i32 %moved, i32 %bits
  %g = bitcast i32 %result to float
  %h = fptrunc float %g to half
  ret half %h
}"""

_INTEGERS = {"c": (8, "s"), "h": (8, "u"), "s": (16, "s"), "t": (16, "u"), "i": (32, "s"),
             "j": (32, "u"), "l": (64, "s"), "m": (64, "u"),
             "x": (64, "s"), "y": (64, "u")}  # fmt: skip
_NAMES = {"char": "c", "uchar": "h", "short": "s", "ushort": "t", "int": "i", "uint": "j",
          "ll": "x", "ull": "y"}  # fmt: skip
_TOWARD = {"rn": "rint", "rz": "trunc", "ru": "ceil", "rd": "floor"}
_UNARY = {"trunc": "trunc", "ceil": "ceil", "floor": "floor", "rint": "rint", "sqrt": "sqrt",
          "log": "log", "log2": "log2", "log10": "log10", "exp": "exp", "exp2": "exp2",
          "exp10": "exp10", "cos": "cos", "sin": "sin"}  # fmt: skip
_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_OPERATORS = {"pl": "fadd", "mi": "fsub", "ml": "fmul", "dv": "fdiv"}
_COMPARISONS = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def _saturate(body: str) -> str:
    return body + (
        "\n  %r.low = call float @llvm.maxnum.f32(float %r0, float 0.0)"
        "\n  %r = call float @llvm.minnum.f32(float %r.low, float 1.0)"
    )


def _kernel(base: str) -> tuple[int, str, str] | None:
    """(number of half operands, float code from %a, %b, %c to %r, type of %r) of a function."""
    name = base.lstrip("_")
    plain = name.removesuffix("_rn").removesuffix("_sat")
    if plain[1:] in _BINARY and plain[0] == "h":
        line = f"  %r{'0' if name.endswith('_sat') else ''} = {_BINARY[plain[1:]]} float %a, %b"
        return 2, _saturate(line) if name.endswith("_sat") else line, "half"
    if name[1:] in _UNARY:
        return 1, f"  %r = call float @llvm.{_UNARY[name[1:]]}.f32(float %a)", "half"
    if name in ("htanh", "htanh_approx"):
        return 1, "  %r = call float @tanhf(float %a)", "half"
    if name == "hrcp":
        return 1, "  %r = fdiv float 1.0, %a", "half"
    if name == "hrsqrt":
        root = "  %s = call float @llvm.sqrt.f32(float %a)\n  %r = fdiv float 1.0, %s"
        return 1, root, "half"
    if name == "habs":
        return 1, "  %r = call float @llvm.fabs.f32(float %a)", "half"
    if name == "hneg":
        return 1, "  %r = fneg float %a", "half"
    if name in ("hmax", "hmin"):
        return 2, f"  %r = call float @llvm.{name[1:]}num.f32(float %a, float %b)", "half"
    if name in ("hmax_nan", "hmin_nan"):
        return 2, f"  %r = call float @llvm.{name[1:4]}imum.f32(float %a, float %b)", "half"
    if plain == "hfma" or name == "hfma_relu":
        wide = "".join(f"  %{v}.d = fpext float %{v} to double\n" for v in "abc")
        wide += "  %d = call double @llvm.fma.f64(double %a.d, double %b.d, double %c.d)\n"
        if name == "hfma":
            return 3, wide + "  %r = fadd double %d, -0.0", "double"
        narrow = wide + "  %h.r = call half @gj.half.from.double(double %d)\n"
        narrow += "  %r0 = fpext half %h.r to float"
        if name == "hfma_sat":
            return 3, _saturate(narrow), "half"
        relu = narrow + "\n  %r = call float @llvm.maximum.f32(float %r0, float 0.0)"
        return 3, relu, "half"
    unordered = name.endswith("u") and name[1:-1] in _COMPARISONS
    compare = name[1:-1] if unordered else name[1:]
    if name[0] == "h" and compare in _COMPARISONS:
        order = ("u" if unordered else "o") + compare
        return 2, f"  %r = fcmp {order} float %a, %b", "i1"
    if name == "hisnan":
        return 1, "  %r = fcmp uno float %a, %a", "i1"
    if name == "hisinf":
        code = "  %m = call float @llvm.fabs.f32(float %a)\n"
        code += "  %i = fcmp oeq float %m, 0x7FF0000000000000\n  %neg = fcmp olt float %a, 0.0\n"
        code += "  %s = select i1 %neg, i32 -1, i32 1\n  %r = select i1 %i, i32 %s, i32 0"
        return 1, code, "i32"
    return None


def _store(type_: str, target: str = "%out") -> str:
    lines = {
        "half": f"  %h = fptrunc float %r to half\n  store half %h, ptr {target}",
        "double": "  %h = call half @gj.half.from.double(double %r)\n"
        f"  store half %h, ptr {target}",
        "i1": f"  %byte = zext i1 %r to i8\n  store i8 %byte, ptr {target}",
    }
    return lines.get(type_, f"  store {type_} %r, ptr {target}") + "\n  ret i32 0"


def _arithmetic(symbol: str, count: int, code: str, type_: str) -> str:
    loads = "".join(
        f"  %{v}.h = load half, ptr %{v}.p\n  %{v} = fpext half %{v}.h to float\n"
        for v in "abc"[:count]
    )
    arguments = ", ".join(["ptr %out", *(f"ptr %{v}.p" for v in "abc"[:count])])
    return _define(symbol, "i32", arguments, f"{loads}{code}\n{_store(type_)}")


def _from_integer(symbol: str, bits: int, sign: str, mode: str = "rn") -> str | None:
    if mode != "rn":
        return None
    code = f"  %i = load i{bits}, ptr %p\n  %r = {sign}itofp i{bits} %i to double\n"
    return _define(symbol, "i32", "ptr %out, ptr %p", code + _store("double"))


def _to_integer(symbol: str, bits: int, sign: str, mode: str) -> str:
    code = (
        "  %h.in = load half, ptr %p\n  %f = fpext half %h.in to float\n"
        f"  %w = call float @llvm.{_TOWARD[mode]}.f32(float %f)\n"
        f"  %r = call i{bits} @llvm.fpto{sign}i.sat.i{bits}.f32(float %w)\n"
    )
    return _define(symbol, "i32", "ptr %out, ptr %p", code + _store(f"i{bits}"))


def _copy(symbol: str) -> str:
    code = "  %v = load i16, ptr %p\n  store i16 %v, ptr %out\n  ret i32 0"
    return _define(symbol, "i32", "ptr %out, ptr %p", code)


def definition(symbol: str) -> str | None:
    """LLVM text of one of Numba's C functions for float16, or None if there is none.

    Parameters
    ----------
    symbol : str
        A name such as ``_ZplRK6__halfS1__nbst``: what it mangles says what it does.
    """
    if not symbol.endswith("_nbst"):
        return None
    mangled = symbol.removesuffix("_nbst")
    operator = re.match(r"_Z([a-z][a-zA-Z])R", mangled)
    if operator:
        return _operator(symbol, operator[1], "S1_" in mangled)
    constructor = re.match(r"_ZN6__halfC1E([a-z])$", mangled)
    if constructor:
        return _constructor(symbol, constructor[1])
    length = re.match(r"_ZL(\d+)", mangled)
    if not length:
        return None
    start = length.end()
    base = mangled[start : start + int(length[1])]
    conversion = re.match(r"__half2([a-z]+)_(rn|rz|ru|rd)$", base)
    if conversion and conversion[1] in _NAMES:
        return _to_integer(symbol, *_INTEGERS[_NAMES[conversion[1]]], conversion[2])
    conversion = re.match(r"__([a-z]+)2half_(rn|rz|ru|rd)$", base)
    if conversion and conversion[1] in _NAMES:
        return _from_integer(symbol, *_INTEGERS[_NAMES[conversion[1]]], conversion[2])
    if base in ("__float2half", "__float2half_rn"):
        return _constructor(symbol, "f")
    if base == "__double2half":
        return _constructor(symbol, "d")
    if base == "__half2float":
        return _arithmetic(symbol, 1, "  %r = fadd float %a, -0.0", "float")
    if "_as_" in base:
        return _copy(symbol)
    if re.match(r"__ld(g|cg|ca|cs|lu|cv)$", base):
        code = "  %q = load ptr, ptr %p\n  %v = load i16, ptr %q\n  store i16 %v, ptr %out\n"
        return _define(symbol, "i32", "ptr %out, ptr %p", code + "  ret i32 0")
    known = _kernel(base)
    return None if known is None else _arithmetic(symbol, *known)


def _operator(symbol: str, operator: str, binary: bool) -> str | None:
    if operator in _OPERATORS and binary:
        return _arithmetic(symbol, 2, f"  %r = {_OPERATORS[operator]} float %a, %b", "half")
    if operator in _COMPARISONS:
        order = "une" if operator == "ne" else _COMPARISONS[operator]
        return _arithmetic(symbol, 2, f"  %r = fcmp {order} float %a, %b", "i1")
    if operator == "ng":
        return _arithmetic(symbol, 1, "  %r = fneg float %a", "half")
    if operator == "ps":
        return _copy(symbol)
    return None


def _constructor(symbol: str, source: str) -> str | None:
    if source == "f":
        code = "  %r = load float, ptr %p\n" + _store("half")
    elif source == "d":
        code = "  %r = load double, ptr %p\n" + _store("double")
    elif source in _INTEGERS:
        return _from_integer(symbol, *_INTEGERS[source])
    else:
        return None
    return _define(symbol, "i32", "ptr %out, ptr %p", code)


def _conversions() -> Iterator[_Parts]:
    def both(name: str, returns: str, argument: str, body: str) -> _Parts:
        return name, f"gj.{name}", _define(f"gj.{name}", returns, f"{argument} %x", body)

    into = "  %h = bitcast i16 %x to half\n"
    out = "\n  %r = bitcast half %h to i16\n  ret i16 %r"
    yield both(
        "cvt.f32.f16", "float", "i16", into + "  %r = fpext half %h to float\n  ret float %r"
    )
    yield both(
        "cvt.f64.f16", "double", "i16", into + "  %r = fpext half %h to double\n  ret double %r"
    )
    yield both("cvt.rn.f16.f32", "i16", "float", "  %h = fptrunc float %x to half" + out)
    double = "  %h = call half @gj.half.from.double(double {0})" + out
    yield both("cvt.rn.f16.f64", "i16", "double", double.format("%x"))
    for bits in (8, 16, 32, 64):
        for sign in "su":
            yield both(
                f"cvt.rni.{sign}{bits}.f16", f"i{bits}", "i16",
                into + "  %f = fpext half %h to float\n"
                "  %w = call float @llvm.rint.f32(float %f)\n"
                f"  %r = call i{bits} @llvm.fpto{sign}i.sat.i{bits}.f32(float %w)\n"
                f"  ret i{bits} %r",
            )  # fmt: skip
            yield both(
                f"cvt.rn.f16.{sign}{bits}", "i16", f"i{bits}",
                f"  %d = {sign}itofp i{bits} %x to double\n" + double.format("%d"),
            )  # fmt: skip


# PTX template -> function, and the functions themselves.
ASSEMBLY = {f"{name} $0, $1;": symbol for name, symbol, _ in _conversions()}
DEFINITIONS = {symbol: text for _, symbol, text in _conversions()} | {
    "gj.half.from.double": _FROM_DOUBLE
}
