"""libdevice for LLVM: each `__nv_` function as an intrinsic, a call of libm or a short body."""

from __future__ import annotations

from collections.abc import Iterator

_PURE = "nounwind willreturn memory(none)"
_MODES = {
    "rn": ("round.tonearest", 1),
    "rz": ("round.towardzero", 0),
    "ru": ("round.upward", 2),
    "rd": ("round.downward", 3),
}
_Definition = tuple[str, str]


def _define(name: str, returns: str, arguments: str, body: str) -> _Definition:
    text = "".join(f"  {line.strip()}\n" for line in body.strip().splitlines())
    return name, (
        f"define internal {returns} @__nv_{name}({arguments}) alwaysinline nounwind {{\n{text}}}"
    )


def _parameters(types: str) -> str:
    return ", ".join(f"{t} %{v}" for t, v in zip(types.split(), "abcd", strict=False))


def _call(name: str, returns: str, types: str, callee: str, extra: str = "") -> _Definition:
    arguments = _parameters(types)
    body = f"%r = call {returns} @{callee}({arguments}{extra})\nret {returns} %r"
    return _define(name, returns, arguments, body)


def _expression(name: str, returns: str, types: str, lines: str) -> _Definition:
    return _define(name, returns, _parameters(types), f"{lines}\nret {returns} %r")


# name in libdevice -> name of the LLVM intrinsic; both float and double.
_INTRINSICS = {
    1: {
        "ceil": "ceil", "floor": "floor", "trunc": "trunc", "rint": "rint", "round": "round",
        "nearbyint": "nearbyint", "fabs": "fabs", "sqrt": "sqrt", "sin": "sin", "cos": "cos",
        "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log10": "log10",
    },
    2: {"pow": "pow", "fmax": "maxnum", "fmin": "minnum", "copysign": "copysign"},
    3: {"fma": "fma"},
}  # fmt: skip
_LIBM = {
    1: "acos acosh asin asinh atan atanh cbrt cosh erf erfc exp10 expm1 j0 j1 lgamma log1p logb "
    "sinh tan tanh tgamma y0 y1",
    2: "atan2 fdim fmod hypot nextafter remainder",
}
# Written in Python and compiled by Numba when a kernel needs them: see `special`.
SPECIAL = ("erfinv", "erfcinv", "erfcx", "normcdf", "normcdfinv")
_FAST = {
    "cosf": "cosf", "exp10f": "exp10f", "expf": "expf", "log10f": "log10f", "log2f": "log2f",
    "logf": "logf", "sinf": "sinf", "tanf": "tanf",
}  # fmt: skip


def _real(type_: str) -> Iterator[_Definition]:
    f, bits = ("f", "f32") if type_ == "float" else ("", "f64")
    whole = "i32" if type_ == "float" else "i64"
    for count, table in _INTRINSICS.items():
        for name, intrinsic in table.items():
            types = " ".join([type_] * count)
            yield _call(name + f, type_, types, f"llvm.{intrinsic}.{bits}")
    for count, names in _LIBM.items():
        for name in names.split():
            yield _call(name + f, type_, " ".join([type_] * count), name + f)
    for name in ("ldexp", "scalbn"):
        yield _call(name + f, type_, f"{type_} i32", name + f)
    for name in ("jn", "yn"):
        yield _call(name + f, type_, f"i32 {type_}", name + f)
    yield _call("frexp" + f, type_, f"{type_} ptr", "frexp" + f)
    yield _call("modf" + f, type_, f"{type_} ptr", "modf" + f)
    yield _call("remquo" + f, type_, f"{type_} {type_} ptr", "remquo" + f)
    yield _call("ilogb" + f, "i32", type_, "ilogb" + f)
    yield _call("llrint" + f, "i64", type_, "llrint" + f)
    yield _call("llround" + f, "i64", type_, "llround" + f)
    for name in SPECIAL:
        if type_ == "double":
            yield _call(name, type_, type_, f"gj.special.{name}")
        else:
            yield _expression(
                name + "f", "float", "float",
                f"%x = fpext float %a to double\n%y = call double @gj.special.{name}(double %x)\n"
                "%r = fptrunc double %y to float",
            )  # fmt: skip
    yield _expression(
        "powi" + f, type_, f"{type_} i32",
        "%n = sitofp i32 %b to double\n"
        + ("%x = fpext float %a to double\n" if f else "%x = fadd double %a, -0.0\n")
        + "%y = call double @llvm.pow.f64(double %x, double %n)\n"
        + ("%r = fptrunc double %y to float" if f else "%r = fadd double %y, -0.0"),
    )  # fmt: skip
    yield _expression(
        "rsqrt" + f, type_, type_,
        f"%s = call {type_} @llvm.sqrt.{bits}({type_} %a)\n%r = fdiv {type_} 1.0, %s",
    )  # fmt: skip
    yield _expression(
        "rcbrt" + f, type_, type_,
        f"%s = call {type_} @cbrt{f}({type_} %a)\n%r = fdiv {type_} 1.0, %s",
    )  # fmt: skip
    # sin and cos of pi x: the argument reduced exactly, so that whole numbers give whole results.
    half = (
        f"%h = fmul {type_} %a, 0.5\n%n = call {type_} @llvm.rint.{bits}({type_} %h)\n"
        f"%n2 = fmul {type_} %n, 2.0\n%q = fsub {type_} %a, %n2\n"
        f"%m = call {type_} @llvm.fabs.{bits}({type_} %q)\n"
    )
    ext = "%e = fpext float %k to double\n" if f else "%e = fadd double %k, -0.0\n"
    end = ext + (
        "%p = fmul double %e, 0x400921FB54442D18\n%s = call double @llvm.sin.f64(double %p)\n"
    )
    end += "%r = fptrunc double %s to float" if f else "%r = fadd double %s, -0.0"
    sine = (
        f"%far = fcmp ogt {type_} %m, 0.5\n%over = fsub {type_} 1.0, %m\n"
        f"%j = select i1 %far, {type_} %over, {type_} %m\n"
        f"%k = call {type_} @llvm.copysign.{bits}({type_} %j, {type_} %q)\n" + end
    )
    cosine = f"%k = fsub {type_} 0.5, %m\n" + end
    yield _expression("sinpi" + f, type_, type_, half + sine)
    yield _expression("cospi" + f, type_, type_, half + cosine)
    store = f"store {type_} %s, ptr %b\nstore {type_} %c1, ptr %c\nret void"
    for name, sin, cos in (("sincos", "sin", "cos"), ("sincospi", "sinpi", "cospi")):
        yield _define(
            name + f, "void", f"{type_} %a, ptr %b, ptr %c",
            f"%s = call {type_} @__nv_{sin}{f}({type_} %a)\n"
            f"%c1 = call {type_} @__nv_{cos}{f}({type_} %a)\n" + store,
        )  # fmt: skip
    suffix = "f" if f else "d"
    tests = {
        "isnan": f"%t = fcmp uno {type_} %a, 0.0",
        "isinf": f"%m = call {type_} @llvm.fabs.{bits}({type_} %a)\n"
        f"%t = fcmp oeq {type_} %m, 0x7FF0000000000000",
        "signbit": f"%i = bitcast {type_} %a to {whole}\n%t = icmp slt {whole} %i, 0",
        "finite": f"%m = call {type_} @llvm.fabs.{bits}({type_} %a)\n"
        f"%t = fcmp olt {type_} %m, 0x7FF0000000000000",
    }
    for name, test in tests.items():
        full = "isfinited" if (name, suffix) == ("finite", "d") else name + suffix
        yield _expression(full, "i32", type_, f"{test}\n%r = zext i1 %t to i32")


def _rounded(type_: str) -> Iterator[_Definition]:
    """Arithmetic with a rounding mode of its own."""
    short, bits = ("f", "f32") if type_ == "float" else ("d", "f64")
    for mode in _MODES:
        # libdevice has no dsub.
        names = ("add", "sub", "mul", "div") if short == "f" else ("add", "mul", "div")
        operations = {f"{short}{name}_{mode}": (f"f{name}", 2) for name in names}
        operations[f"{short}sqrt_{mode}"] = ("sqrt", 1)
        operations["fmaf_" + mode if short == "f" else "fma_" + mode] = ("fma", 3)
        for name, (operation, count) in operations.items():
            types = " ".join([type_] * count)
            yield _in_mode(name, type_, types, f"{operation}.{bits}", mode, _parameters(types))
        one = f"{type_} 1.0, {type_} %a"
        yield _in_mode(f"{short}rcp_{mode}", type_, type_, f"fdiv.{bits}", mode, one)
    if short == "f":
        root = "%s = call float @llvm.sqrt.f32(float %a)\n%r = fdiv float 1.0, %s"
        yield _expression("frsqrt_rn", "float", "float", root)


def _in_mode(
    name: str, returns: str, types: str, operation: str, mode: str, arguments: str
) -> _Definition:
    """An operation under a rounding mode; its function is kept out of its callers."""
    metadata, number = _MODES[mode]
    call = (
        f"%r = call {returns} @llvm.experimental.constrained.{operation}({arguments}, "
        f'metadata !"{metadata}", metadata !"fpexcept.ignore") strictfp\n'
    )
    set_, reset = (
        f"call void @llvm.set.rounding(i32 {k}) strictfp\n" for k in (number, _MODES["rn"][1])
    )
    body = f"{set_}{call}{reset}ret {returns} %r"
    key, text = _define(name, returns, _parameters(types), body)
    return key, text.replace("alwaysinline nounwind", "noinline strictfp nounwind")


def _conversions() -> Iterator[_Definition]:
    toward = {"rn": "rint", "rz": "trunc", "ru": "ceil", "rd": "floor"}
    for mode, function in toward.items():
        for prefix, type_, bits in (("float", "float", "f32"), ("double", "double", "f64")):
            for target, whole, sign in (
                ("int", "i32", "s"), ("uint", "i32", "u"), ("ll", "i64", "s"), ("ull", "i64", "u"),
            ):  # fmt: skip
                yield _expression(
                    f"{prefix}2{target}_{mode}", whole, type_,
                    f"%w = call {type_} @llvm.{function}.{bits}({type_} %a)\n"
                    f"%r = call {whole} @llvm.fpto{sign}i.sat.{whole}.{bits}({type_} %w)",
                )  # fmt: skip
        for source, whole, sign in (
            ("int", "i32", "s"), ("uint", "i32", "u"), ("ll", "i64", "s"), ("ull", "i64", "u"),
        ):  # fmt: skip
            for target, bits in (("float", "f32"), ("double", "f64")):
                name = f"{source}2{target}_{mode}"
                if target == "double" and whole == "i32":
                    if mode == "rn":
                        yield _expression(name, target, whole, f"%r = {sign}itofp i32 %a to double")
                    continue
                operation = f"{sign}itofp.{bits}.{whole}"
                yield _in_mode(name, target, whole, operation, mode, f"{whole} %a")
        yield _in_mode(
            f"double2float_{mode}", "float", "double", "fptrunc.f32.f64", mode, "double %a"
        )
    yield _expression("int_as_float", "float", "i32", "%r = bitcast i32 %a to float")
    yield _expression("float_as_int", "i32", "float", "%r = bitcast float %a to i32")
    yield _expression("longlong_as_double", "double", "i64", "%r = bitcast i64 %a to double")
    yield _expression("double_as_longlong", "i64", "double", "%r = bitcast double %a to i64")
    yield _expression(
        "hiloint2double", "double", "i32 i32",
        "%h = zext i32 %a to i64\n%l = zext i32 %b to i64\n%s = shl i64 %h, 32\n"
        "%i = or i64 %s, %l\n%r = bitcast i64 %i to double",
    )  # fmt: skip
    yield _expression(
        "double2loint", "i32", "double", "%i = bitcast double %a to i64\n%r = trunc i64 %i to i32"
    )
    yield _expression(
        "double2hiint", "i32", "double",
        "%i = bitcast double %a to i64\n%s = lshr i64 %i, 32\n%r = trunc i64 %s to i32",
    )  # fmt: skip
    yield _expression(
        "half2float", "float", "i16", "%h = bitcast i16 %a to half\n%r = fpext half %h to float"
    )
    yield _expression(
        "float2half_rn", "i16", "float",
        "%h = fptrunc float %a to half\n%r = bitcast half %h to i16",
    )  # fmt: skip
    yield _expression(
        "saturatef", "float", "float",
        "%l = call float @llvm.maxnum.f32(float %a, float 0.0)\n"
        "%r = call float @llvm.minnum.f32(float %l, float 1.0)",
    )  # fmt: skip


def _integers() -> Iterator[_Definition]:
    for name, bits in (("abs", 32), ("llabs", 64)):
        yield _call(name, f"i{bits}", f"i{bits}", f"llvm.abs.i{bits}", ", i1 false")
    for suffix, bits in (("", 32), ("ll", 64)):
        narrow = "" if bits == 32 else "%r = trunc i64 %w to i32"
        yield _call("brev" + suffix, f"i{bits}", f"i{bits}", f"llvm.bitreverse.i{bits}")
        for name, intrinsic, extra in (("clz", "ctlz", ", i1 false"), ("popc", "ctpop", "")):
            result = "%w" if narrow else "%r"
            yield _expression(
                name + suffix, "i32", f"i{bits}",
                f"{result} = call i{bits} @llvm.{intrinsic}.i{bits}(i{bits} %a{extra})\n{narrow}",
            )  # fmt: skip
        yield _expression(
            "ffs" + suffix, "i32", f"i{bits}",
            f"%z = call i{bits} @llvm.cttz.i{bits}(i{bits} %a, i1 false)\n"
            f"%one = add i{bits} %z, 1\n%none = icmp eq i{bits} %a, 0\n"
            f"{'%w' if narrow else '%r'} = select i1 %none, i{bits} 0, i{bits} %one\n{narrow}",
        )  # fmt: skip
    for name, bits, intrinsic in (
        ("max", 32, "smax"), ("min", 32, "smin"), ("umax", 32, "umax"), ("umin", 32, "umin"),
        ("llmax", 64, "smax"), ("llmin", 64, "smin"), ("ullmax", 64, "umax"),
        ("ullmin", 64, "umin"),
    ):  # fmt: skip
        yield _call(name, f"i{bits}", f"i{bits} i{bits}", f"llvm.{intrinsic}.i{bits}")
    for name, bits, extend in (
        ("mulhi", 32, "sext"), ("umulhi", 32, "zext"), ("mul64hi", 64, "sext"),
        ("umul64hi", 64, "zext"),
    ):  # fmt: skip
        wide = 2 * bits
        yield _expression(
            name, f"i{bits}", f"i{bits} i{bits}",
            f"%x = {extend} i{bits} %a to i{wide}\n%y = {extend} i{bits} %b to i{wide}\n"
            f"%p = mul i{wide} %x, %y\n%s = lshr i{wide} %p, {bits}\n"
            f"%r = trunc i{wide} %s to i{bits}",
        )  # fmt: skip
    for name, shift in (("mul24", "ashr"), ("umul24", "lshr")):
        yield _expression(
            name, "i32", "i32 i32",
            f"%x = shl i32 %a, 8\n%x24 = {shift} i32 %x, 8\n%y = shl i32 %b, 8\n"
            f"%y24 = {shift} i32 %y, 8\n%r = mul i32 %x24, %y24",
        )  # fmt: skip
    for name, extend, shift, carry in (
        ("hadd", "sext", "ashr", 0), ("rhadd", "sext", "ashr", 1),
        ("uhadd", "zext", "lshr", 0), ("urhadd", "zext", "lshr", 1),
    ):  # fmt: skip
        yield _expression(
            name, "i32", "i32 i32",
            f"%x = {extend} i32 %a to i64\n%y = {extend} i32 %b to i64\n%s0 = add i64 %x, %y\n"
            f"%s = add i64 %s0, {carry}\n%h = {shift} i64 %s, 1\n%r = trunc i64 %h to i32",
        )  # fmt: skip
    for name, sign in (("sad", "s"), ("usad", "u")):
        yield _expression(
            name, "i32", "i32 i32 i32",
            f"%x = call i32 @llvm.{sign}max.i32(i32 %a, i32 %b)\n"
            f"%y = call i32 @llvm.{sign}min.i32(i32 %a, i32 %b)\n"
            "%d = sub i32 %x, %y\n%r = add i32 %d, %c",
        )  # fmt: skip
    picks = "".join(
        f"%n{k} = lshr i32 %c, {4 * k}\n%i{k} = and i32 %n{k}, 7\n%b{k} = shl i32 %i{k}, 3\n"
        f"%w{k} = zext i32 %b{k} to i64\n%s{k} = lshr i64 %all, %w{k}\n"
        f"%t{k} = trunc i64 %s{k} to i32\n"
        f"%m{k} = and i32 %t{k}, 255\n%g{k} = and i32 %n{k}, 8\n%neg{k} = icmp ne i32 %g{k}, 0\n"
        f"%x{k} = shl i32 %m{k}, 24\n%y{k} = ashr i32 %x{k}, 31\n%z{k} = and i32 %y{k}, 255\n"
        f"%v{k} = select i1 %neg{k}, i32 %z{k}, i32 %m{k}\n%p{k} = shl i32 %v{k}, {8 * k}\n"
        for k in range(4)
    )
    yield _expression(
        "byte_perm", "i32", "i32 i32 i32",
        "%low = zext i32 %a to i64\n%high0 = zext i32 %b to i64\n%high = shl i64 %high0, 32\n"
        f"%all = or i64 %high, %low\n{picks}%q0 = or i32 %p0, %p1\n%q1 = or i32 %p2, %p3\n"
        "%r = or i32 %q0, %q1",
    )  # fmt: skip


def _fast() -> Iterator[_Definition]:
    for name, full in _FAST.items():
        yield _call("fast_" + name, "float", "float", f"__nv_{full}")
    yield _call("fast_powf", "float", "float float", "llvm.pow.f32")
    yield _expression("fast_fdividef", "float", "float float", "%r = fdiv float %a, %b")
    yield _define(
        "fast_sincosf", "void", "float %a, ptr %b, ptr %c",
        "call void @__nv_sincosf(float %a, ptr %b, ptr %c)\nret void",
    )  # fmt: skip


DEFINITIONS: dict[str, str] = {
    f"__nv_{name}": text
    for part in (
        *(_real(t) for t in ("float", "double")),
        *(_rounded(t) for t in ("float", "double")),
        _conversions(), _integers(), _fast(),
    )
    for name, text in part
}  # fmt: skip


def _library() -> dict[str, str]:
    """Declarations of the libm functions that definitions call."""
    table = {}
    for type_, f in (("float", "f"), ("double", "")):
        for count, names in _LIBM.items():
            types = ", ".join([type_] * count)
            for name in names.split():
                table[name + f] = f"declare {type_} @{name}{f}({types}) {_PURE}"
        for name, types in (("ldexp", f"{type_}, i32"), ("scalbn", f"{type_}, i32"),
                            ("jn", f"i32, {type_}"), ("yn", f"i32, {type_}")):  # fmt: skip
            table[name + f] = f"declare {type_} @{name}{f}({types}) {_PURE}"
        table["ilogb" + f] = f"declare i32 @ilogb{f}({type_}) {_PURE}"
        for name in ("llrint", "llround"):
            table[name + f] = f"declare i64 @{name}{f}({type_}) {_PURE}"
        for name, types in (("frexp", f"{type_}, ptr"), ("modf", f"{type_}, ptr"),
                            ("remquo", f"{type_}, {type_}, ptr")):  # fmt: skip
            table[name + f] = f"declare {type_} @{name}{f}({types}) nounwind willreturn"
    for name in SPECIAL:
        table[f"gj.special.{name}"] = f"declare double @gj.special.{name}(double) {_PURE}"
    return table


# Symbols of the process that the definitions call.
LIBRARY = _library()
