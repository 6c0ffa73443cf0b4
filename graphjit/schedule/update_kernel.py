"""Updates of a graph's state as kernels of one thread."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.np.numpy_support import as_dtype

from graphjit._device_control import (
    Assignment,
    Choose,
    Compute,
    Load,
    Move,
    Point,
    Update,
)
from graphjit._errors import KernelCompileError, TraceError
from graphjit._layout import Layout, contiguous
from graphjit._location import Location
from graphjit._nodes import Constant, Number, Operand, StateRef, View, constant
from graphjit.kernel import frontend, numba_types
from graphjit.kernel.generated import GeneratedLaunch, generated
from graphjit.schedule.schedule import Schedule

SLOTS = -2
"""The buffer that views of the slots themselves have."""

_WORD = types.int64


@dataclass
class DecidingKernels:
    """How kernels tell a device what an update decides.

    Parameters
    ----------
    statement : str
        A line that tells it the value of `decided`.
    names : dict
        The globals that it uses.
    options : dict
        What `cuda.jit` must know.
    """

    statement: str
    names: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)


def update_launch(
    schedule: Schedule, update: Update, deciding: DecidingKernels | None = None, handle: int = 0
) -> GeneratedLaunch:
    """The launch of an update.

    Parameters
    ----------
    schedule : Schedule
        What it belongs to; views of the slots have the buffer `SLOTS`.
    update : Update
        The changes.
    deciding : DecidingKernels, optional
        How it tells what it decides, if the device must be told.
    handle : int
        What it decides, for the device.

    Returns
    -------
    GeneratedLaunch

    Raises
    ------
    TraceError
        If Numba can't compile a function of numbers.
    """
    source = _Source(schedule)
    lines = [*source.lines(update.assignments), *source.stores()]
    if update.decides is not None:
        lines.append(f"decided = {source.number(update.decides)}")
        if deciding is not None:
            lines.append(deciding.statement)
        then = [*source.lines(update.then), *source.stores()]
        if then:
            lines += ["if decided:", *(f"    {line}" for line in then)]
    # All that is read is read first, so that no read waits for a write or another read.
    lines = [*source.reads(), *lines]
    names, options = dict(source.names), {}
    parameters = list(source.arrays)
    operands: list[Operand] = [*source.arrays.values()]
    if deciding is not None and update.decides is not None:
        parameters.append("handle")
        operands.append(constant(np.uint64(handle)))
        names |= deciding.names
        options = deciding.options
    body = "".join(f"    {line}\n" for line in lines or ["pass"])
    text = f"def update({', '.join(parameters)}):\n{body}"
    types_ = tuple(
        numba_types.array_type(operand.layout) if isinstance(operand, View) else types.uint64
        for operand in operands
    )
    kernel = _kernel(text, _Names(names), _Names(options))
    try:
        ir = frontend.kernel_ir(kernel, types_)
    except KernelCompileError as error:
        raise TraceError(
            f"numbers that only the device knows can't be computed as the function says "
            f"(at {source.location or update.location}): {error}"
        ) from error
    return GeneratedLaunch(ir, tuple(operands), (1, 1, 1), (1, 1, 1))


class _Names:
    """Names and values, compared by identity: for a cache."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self._key = tuple(
            (name, type(value), repr(value))
            if isinstance(value, (int, float, complex, np.generic))
            else (name, type(value), id(value))
            for name, value in values.items()
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Names) and self._key == other._key


@functools.lru_cache(maxsize=256)
def _kernel(text: str, names: _Names, options: _Names) -> Any:
    return generated("update", text, names.values, **options.values)


class _Source:
    """The lines of a kernel, and what they refer to: values are read, changed, and then stored."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.arrays: dict[str, View] = {}
        self.names: dict[str, Any] = {}
        self.location: Location | None = None
        self._values: dict[StateRef | int, str] = {}
        self._reads: dict[str, str] = {}
        self._stores: dict[str, str] = {}
        self._count = 0

    def lines(self, assignments: tuple[Assignment, ...]) -> list[str]:
        """What makes the assignments."""
        return [line for each in assignments for line in self._assignment(each)]

    def reads(self) -> list[str]:
        """What reads all that the lines so far need."""
        return [f"{name} = {place}" for place, name in self._reads.items()]

    def stores(self) -> list[str]:
        """What stores what the lines changed since this was asked for last."""
        lines = [f"{place} = {value}" for place, value in self._stores.items()]
        self._stores.clear()
        return lines

    def _read(self, place: str) -> str:
        return self._reads.setdefault(place, f"r{len(self._reads)}")

    def number(self, number: Number) -> str:
        """An expression for a number."""
        if isinstance(number, StateRef) and number in self._values:
            return self._values[number]
        if isinstance(number, Constant):
            return self._name(number.value)
        graph = self._schedule.graph
        class_ = (
            graph.state[number.index]
            if isinstance(number, StateRef)
            else graph.scalars[number.index].type
        )
        type_ = numba_types.class_type(class_)
        return self._slot(self._schedule.slot(number, type_), type_)

    def _assignment(self, each: Assignment) -> list[str]:
        if isinstance(each, Compute):
            self.location = self.location or each.location
            function = self._name(each.function)
            operands = ", ".join(map(self.number, each.operands))
            return self._stored(each.target, f"{function}({operands})")
        if isinstance(each, Load):
            return self._stored(each.target, self._element(each.source.view))
        if isinstance(each, Point):
            return self._pointed(each)
        if isinstance(each, Choose):
            return self._chosen(each)
        assert isinstance(each, Move)
        return self._moved(each)

    def _moved(self, move: Move) -> list[str]:
        names = [self._fresh() for _ in (*move.pointers, *move.numbers)]
        values = [
            *(self._first_byte(view) for _, view in move.pointers),
            *(self.number(value) for _, value in move.numbers),
        ]
        lines = [f"{name} = {value}" for name, value in zip(names, values, strict=True)]
        for (target, _), name in zip(move.pointers, names, strict=False):
            lines += self._placed(target, name)
        for (ref, _), name in zip(move.numbers, names[len(move.pointers) :], strict=True):
            lines += self._stored(ref, name)
        return lines

    def _pointed(self, point: Point) -> list[str]:
        lines = [f"at = {self._first_byte(point.view)}"]
        for step in point.view.moving:
            place = self._schedule.indices.index(step) + 1
            failure = self._schedule.failure
            word, length = self._word(), step.length
            lines += [
                f"given = {self._name(types.int64)}({self.number(step.index)})",
                "k = given",
                "if k < 0:",
                f"    k += {length}",
                f"if k < 0 or k >= {length}:",
                f"    if {word}[{failure}] == 0:",
                f"        {word}[{failure}] = {place}",
                f"        {word}[{failure + 1}] = given",
                f"    k = 0 if k < 0 else {length - 1}",
                f"at += k * {step.stride}",
            ]
        return [*lines, *self._placed(point.target, "at")]

    def _chosen(self, choose: Choose) -> list[str]:
        lines = [f"at = {self._address(choose.pool, 0)}"]
        held = [self._address(pointer, 0) for pointer in choose.held]
        if held:
            taken = " or ".join(f"(at <= {h} and {h} < at + {choose.stride})" for h in held)
            end = f"at < {self._address(choose.pool, choose.stride * (choose.count - 1))}"
            lines += [f"while ({taken}) and {end}:", f"    at += {choose.stride}"]
        return [*lines, *self._placed(choose.target, "at")]

    def _placed(self, pointer: int, value: str) -> list[str]:
        """Store a pointer."""
        slot = self._schedule.address(View(pointer, 0, _ANY)).slot
        name = self._values[pointer] = self._fresh()
        self._stores[f"{self._word()}[{slot}]"] = name
        return [f"{name} = {value}"]

    def _stored(self, ref: StateRef, value: str) -> list[str]:
        """Store a number as each type that it is used as."""
        type_ = numba_types.class_type(self._schedule.graph.state[ref.index])
        name = self._values[ref] = self._fresh()
        for slot in self._schedule.slots_of(ref):
            converted = name if slot.type == type_ else f"{self._name(slot.type)}({name})"
            if isinstance(slot.type, types.Complex):
                part = self._array(slot.type.underlying_float)
                self._stores[f"{part}[{slot.first}]"] = f"{converted}.real"
                self._stores[f"{part}[{slot.first + 1}]"] = f"{converted}.imag"
            else:
                self._stores[f"{self._array(slot.type)}[{slot.first}]"] = converted
        return [f"{name} = {self._name(type_)}({value})"]

    def _slot(self, slot: int, type_: Any) -> str:
        if isinstance(type_, types.Complex):
            part = self._array(type_.underlying_float)
            real, imaginary = (self._read(f"{part}[{at}]") for at in (slot, slot + 1))
            return f"{self._name(type_)}({real} + 1j * {imaginary})"
        return self._read(f"{self._array(type_)}[{slot}]")

    def _first_byte(self, view: View) -> str:
        return self._address(view.buffer, view.offset + view.layout.extent[0])

    def _address(self, buffer: int, offset: int) -> str:
        if buffer in self._values:
            return f"{self._values[buffer]} + {offset}" if offset else self._values[buffer]
        place = self._schedule.address(View(buffer, offset, _ANY))
        word = self._read(f"{self._word()}[{place.slot}]")
        return f"({word} + {place.offset})" if place.offset else word

    def _element(self, view: View) -> str:
        name = f"a{len(self.arrays)}"
        dtype = view.layout.dtype
        self.arrays[name] = View(view.buffer, view.offset, contiguous((1,), dtype))
        return self._read(f"{name}[0]")

    def _word(self) -> str:
        return self._array(_WORD)

    def _array(self, type_: Any) -> str:
        """The slots as an array of a type, which begins in each of them."""
        dtype = np.dtype(np.bool_) if isinstance(type_, types.Boolean) else as_dtype(type_)
        name = f"slots_{dtype.name}"
        self.arrays[name] = View(SLOTS, 0, Layout((self._schedule.words,), (8,), dtype))
        return name

    def _name(self, value: Any) -> str:
        """A global of that value."""
        for name, known in self.names.items():
            if type(known) is type(value) and (known is value or repr(known) == repr(value)):
                return name
        name = f"g{len(self.names)}"
        self.names[name] = value
        return name

    def _fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"


_ANY = contiguous((), np.dtype(np.uint8))
