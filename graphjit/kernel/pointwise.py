"""Which element of which argument each thread of a kernel touches, as far as that can be proved.

An address is a polynomial over the kernel's parameters and the coordinates of the thread. Unlike
`access`, which guesses what is near in memory, nothing here is assumed: what isn't certain is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from graphjit.kernel.contraction import Contraction

# A product of atoms, sorted: ("param", index), or (register, axis) with one of the registers below.
Monomial = tuple[tuple[str, int], ...]
Polynomial = dict[Monomial, int]

_REGISTER = re.compile(r"llvm\.nvvm\.read\.ptx\.sreg\.(tid|ntid|ctaid|nctaid)\.([xyz])")
_ELEMENT = re.compile(
    r"getelementptr (?:(?:inbounds|nuw|nusw|nsw) )*"
    r"(?:\[(?P<count>\d+) x (?P<item>\w+)\]|\{ (?P<number>float|double), (?P=number) \}|"
    r"(?P<plain>\S+)), ptr"
)
_SIZES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
_WIDE = ("i64", "ptr")
# Functions that touch no memory and wait for nobody.
_PURE = re.compile(
    r"__nv_\w+|llvm\.(?!nvvm)[\w.]+|llvm\.nvvm\.(read\.ptx\.sreg\.(n?tid|n?ctaid)\.[xyz]|"
    r"(fma|sqrt|rcp|div|add|mul|fmin|fmax|fabs|ex2|lg2|sin|cos|d2i|i2d|f2i|bitcast|mulhi|"
    r"sad|floor|ceil|trunc|round)[\w.]*)"
)
_TOUCHES = re.compile(r"llvm\.(mem|masked|trap|debugtrap|stack|va_)")
# The definition of a table, which tuples and arrays that a kernel indexes become.
_CONSTANT = re.compile(r"@\S+ = (?:[\w()]+ )*constant ")
_MEMORY = re.compile(r"llvm\.mem(set|cpy|move)\.")


@dataclass(frozen=True)
class Guard:
    """A comparison that holds wherever an access is made: ``left < right``.

    Parameters
    ----------
    left, right : Polynomial
        Integers.
    signed : bool
        Whether they are compared as signed ones.
    """

    left: Polynomial
    right: Polynomial
    signed: bool


@dataclass(frozen=True)
class Touch:
    """A load or store of a kernel.

    Parameters
    ----------
    data : int
        The data pointer that it goes through, as a parameter's index.
    offset : Polynomial or None
        Bytes from there; None where that can't be told.
    size : int
        Bytes.
    reads, writes : bool
        What it does.
    guards : tuple of Guard
        What holds where it is made.
    always : bool
        Whether it is made by every thread for which that holds.
    product : bool
        Whether what it stores may come straight from a product.
    added : bool
        Whether something may be added to what it loads.
    """

    data: int
    offset: Polynomial | None
    size: int
    reads: bool
    writes: bool
    guards: tuple[Guard, ...]
    always: bool
    product: bool = False
    added: bool = False


@dataclass(frozen=True)
class Pointwise:
    """What the threads of a kernel touch.

    Parameters
    ----------
    touches : tuple of Touch
        All loads and stores of arguments.
    obstacle : str
        Why threads can't be told apart, or "": that they wait for each other, say.
    contractions : int
        How many sums a compiler may contract with products.
    """

    touches: tuple[Touch, ...] = ()
    obstacle: str = ""
    contractions: int = 0


def pointwise(function: Any) -> Pointwise:
    """Work out what the threads of a kernel touch.

    Parameters
    ----------
    function : llvmlite.binding.ValueRef
        The kernel, optimised, with everything it calls inlined and every value named.

    Returns
    -------
    Pointwise
    """
    reader = _Reader(function)
    contraction = Contraction(function, reader.is_private)
    touches = _touches(function, reader, contraction)
    if isinstance(touches, str):
        return Pointwise(obstacle=touches, contractions=contraction.count)
    return Pointwise(tuple(touches), contractions=contraction.count)


def _touches(function: Any, reader: _Reader, contraction: Contraction) -> list[Touch] | str:
    """All loads and stores of arguments, or why threads can't be told apart."""
    guards = _guards(function, reader)
    touches = []
    for block in function.blocks:
        held, always = guards[block.name]
        for instruction in block.instructions:
            opcode = instruction.opcode
            operands = list(instruction.operands)
            if opcode == "call":
                name = operands[-1].name
                if not name:
                    return "it has inline assembly"
                if not _PURE.fullmatch(name) or _TOUCHES.match(name):
                    if _MEMORY.match(name) and reader.all_private(operands[:-1]):
                        continue
                    if "atomic" in name:
                        return "it has atomic operations"
                    return f"it calls {name}"
                continue
            if opcode in ("atomicrmw", "cmpxchg", "fence"):
                return "it has atomic operations"
            if opcode not in ("load", "store"):
                continue
            value = instruction if opcode == "load" else operands[0]
            place = reader.address(operands[-1])
            if place is None:
                return "an address in it can't be followed to an argument"
            if place == "private" or (place == "constant" and opcode == "load"):
                continue
            if place == "constant":
                return "it stores to what is constant"
            data, offset = place
            size = _SIZES.get(str(value.type), 0)
            if not size:
                return f"it moves values of the type {value.type}"
            is_load = opcode == "load"
            touches.append(
                Touch(
                    data,
                    offset,
                    size,
                    reads=is_load,
                    writes=not is_load,
                    guards=held,
                    always=always,
                    product=not is_load and contraction.may_be_product(value),
                    added=is_load and contraction.may_be_added(value),
                )
            )
    return touches


class _Reader:
    """Values as polynomials."""

    def __init__(self, function: Any) -> None:
        self._known: dict[str, Polynomial | None] = {
            # Narrower integers would be known by their bits only.
            argument.name: {(("param", index),): 1} if str(argument.type) in _WIDE else None
            for index, argument in enumerate(function.arguments)
        }
        self._pointers = {
            index for index, a in enumerate(function.arguments) if str(a.type).startswith("ptr")
        }
        self._private = set()
        self._instructions = {}
        for block in function.blocks:
            for instruction in block.instructions:
                self._instructions[instruction.name] = instruction
                if instruction.opcode == "alloca":
                    self._private.add(instruction.name)

    def instruction(self, value: Any) -> Any:
        """The instruction that makes a value, or None."""
        return self._instructions.get(value.name)

    def address(self, pointer: Any) -> Any:
        """Parameter and offset of an address, or None.

        "private" for a thread's own memory; "constant" for what the kernel's code brings along.
        """
        root = self._root(pointer)
        if root in ("private", "constant"):
            return root
        if not isinstance(root, int):
            return None
        value = self.read(pointer)
        if value is None:
            return root, None
        rest = dict(value)
        if rest.pop((("param", root),), 0) != 1:
            return None
        if any(atom[0] == "param" and atom[1] in self._pointers for m in rest for atom in m):
            return None
        return root, rest

    def is_private(self, pointer: Any) -> bool:
        """Whether a pointer is to a thread's own memory."""
        return self._root(pointer) == "private"

    def all_private(self, values: list[Any]) -> bool:
        """Whether all pointers among values are to a thread's own memory."""
        return all(map(self.is_private, (v for v in values if str(v.type).startswith("ptr"))))

    def _root(self, value: Any, depth: int = 0) -> int | str | None:
        """The one pointer that an address is made of."""
        if value.is_global or value.is_constant:
            return "constant" if _CONSTANT.match(str(value)) else None
        if depth > 64:
            return None
        found = self._known.get(value.name)
        if found is not None and len(found) == 1:
            ((monomial, _),) = found.items()
            if len(monomial) == 1 and monomial[0][0] == "param":
                return monomial[0][1] if monomial[0][1] in self._pointers else None
        if value.name in self._private:
            return "private"
        instruction = self._instructions.get(value.name)
        if instruction is None:
            return None
        operands = list(instruction.operands)
        if instruction.opcode in ("getelementptr", "inttoptr", "ptrtoint", "addrspacecast"):
            return self._root(operands[0], depth + 1)
        if instruction.opcode == "add":
            roots = {self._root(operand, depth + 1) for operand in operands} - {None}
            return roots.pop() if len(roots) == 1 else None
        return None

    def read(self, value: Any) -> Polynomial | None:
        """A value's polynomial, or None."""
        if value.is_constant and not value.is_global:
            try:
                constant = value.get_constant_value(signed_int=True)
            except Exception:  # a constant expression
                return None
            return _constant(constant) if isinstance(constant, int) else None
        name = value.name
        if name not in self._known:
            instruction = self._instructions.get(name)
            self._known[name] = None  # while in progress: a loop's own value
            if instruction is not None:
                self._known[name] = self._instruction(instruction)
        return self._known[name]

    def _instruction(self, instruction: Any) -> Polynomial | None:
        opcode, operands = instruction.opcode, list(instruction.operands)
        text = str(instruction)
        if opcode == "call":
            register = _REGISTER.fullmatch(operands[-1].name)
            return {((register[1], "xyz".index(register[2])),): 1} if register else None
        if opcode == "getelementptr":
            return self._element(text, operands)
        if opcode in ("ptrtoint", "inttoptr", "addrspacecast"):
            return self.read(operands[0])
        if opcode in ("zext", "sext"):
            # Registers are positive; what else is narrow may have wrapped around.
            inner = self.read(operands[0])
            exact = " nneg " in text or self._is_exact(operands[0], opcode)
            return inner if exact else None
        wide = str(instruction.type) in _WIDE or _never_wraps(text)
        if opcode in ("add", "sub", "mul", "or", "shl") and wide:
            if opcode == "or" and " disjoint " not in text:
                return None
            left, right = self.read(operands[0]), self.read(operands[1])
            if left is None or right is None:
                return None
            if opcode == "shl":
                by = right.get((), 0)
                return _times(left, _constant(1 << by)) if set(right) <= {()} else None
            if opcode == "mul":
                return _times(left, right)
            return _plus(left, right, -1 if opcode == "sub" else 1)
        return None

    def _is_exact(self, value: Any, cast: str) -> bool:
        instruction = self._instructions.get(value.name)
        if instruction is None:
            return False
        if instruction.opcode == "call":
            return True  # a register
        text = str(instruction)
        return (" nuw " in text) if cast == "zext" else (" nsw " in text)

    def _element(self, text: str, operands: list[Any]) -> Polynomial | None:
        match = _ELEMENT.search(text)
        size = None
        if match and len(operands) == 2:
            size = _SIZES.get(match["item"] or match["number"] or match["plain"])
            if size is not None:
                size *= int(match["count"] or (2 if match["number"] else 1))
        base, index = self.read(operands[0]), self.read(operands[1])
        if size is None or base is None or index is None:
            return None
        return _plus(base, _times(index, _constant(size)), 1)


def _never_wraps(text: str) -> bool:
    return " nuw " in text or " nsw " in text


def _constant(value: int) -> Polynomial:
    return {(): value} if value else {}


def _plus(left: Polynomial, right: Polynomial, sign: int) -> Polynomial:
    result = dict(left)
    for monomial, factor in right.items():
        result[monomial] = result.get(monomial, 0) + sign * factor
    return {monomial: factor for monomial, factor in result.items() if factor}


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for a, x in left.items():
        for b, y in right.items():
            monomial = tuple(sorted((*a, *b)))
            result[monomial] = result.get(monomial, 0) + x * y
    return {monomial: factor for monomial, factor in result.items() if factor}


def _guards(function: Any, reader: _Reader) -> dict[str, tuple[tuple[Guard, ...], bool]]:
    """For each block, comparisons that hold whenever it runs, and whether it runs if they hold."""
    blocks = {block.name: block for block in function.blocks}
    ways: dict[str, list[tuple[str, Any, bool]]] = {name: [] for name in blocks}
    first = next(iter(blocks))
    for name, block in blocks.items():
        last = list(block.instructions)[-1]
        operands = list(last.operands)
        if last.opcode == "br" and len(operands) == 3:
            # A conditional branch's operands: condition, where to if false, where to if true.
            ways[operands[2].name].append((name, operands[0], True))
            ways[operands[1].name].append((name, operands[0], False))
        else:
            for operand in operands:
                if operand.name in blocks and str(operand.type) == "label":
                    ways[operand.name].append((name, None, last.opcode == "br"))
    found: dict[str, tuple[tuple[Guard, ...], bool]] = {first: ((), not ways[first])}

    def held(name: str, depth: int) -> tuple[tuple[Guard, ...], bool]:
        if name not in found:
            # Only one way in: what decided for it holds. A join of ways proves nothing here.
            if len(ways[name]) == 1 and depth < 256:
                before, condition, wanted = ways[name][0]
                guards, always = held(before, depth + 1)
                if condition is None:
                    found[name] = guards, always and wanted
                else:
                    own, whole = _facts(condition, wanted, reader)
                    found[name] = guards + own, always and whole
            else:
                found[name] = (), False
        return found[name]

    return {name: held(name, 0) for name in blocks}


def _facts(condition: Any, wanted: bool, reader: _Reader) -> tuple[tuple[Guard, ...], bool]:
    """Comparisons that follow from a condition, and whether it follows from them."""
    instruction = reader.instruction(condition)
    if instruction is None:
        return (), False
    operands, text = list(instruction.operands), str(instruction)
    if instruction.opcode in ("select", "and", "or"):
        joins, parts = instruction.opcode, operands
        if joins == "select":
            if text.rstrip().endswith("i1 false"):
                joins, parts = "and", operands[:2]
            elif ", i1 true, " in text:
                joins, parts = "or", [operands[0], operands[2]]
        if joins == "select" or wanted != (joins == "and"):
            return (), False
        found = [_facts(part, wanted, reader) for part in parts]
        guards = tuple(guard for own, _ in found for guard in own)
        return guards, all(whole for _, whole in found)
    match = re.search(r"= icmp (?:samesign )?([su])(lt|le|gt|ge) ", text)
    if instruction.opcode != "icmp" or match is None:
        return (), False
    left, right = reader.read(operands[0]), reader.read(operands[1])
    if left is None or right is None or str(operands[0].type) not in ("i64", "i32"):
        return (), False
    comparison = match[2]
    if not wanted:
        comparison = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}[comparison]
    if comparison in ("gt", "ge"):
        left, right = right, left
    if comparison in ("le", "ge"):
        right = _plus(right, _constant(1), 1)
    return (Guard(left, right, match[1] == "s"),), True
