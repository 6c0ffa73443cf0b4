"""Trace: records what a function does to tracers into a Graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphjit import _scalars
from graphjit._adoption import adopt
from graphjit._array import Array
from graphjit._collector import collector_held
from graphjit._configuration import check_configuration, three
from graphjit._context import current_trace, set_trace
from graphjit._control import Item, Recorded
from graphjit._errors import GraphjitError, LeakedTracerError, TraceError
from graphjit._graph import Graph
from graphjit._layout import Layout, contiguous, layout_of
from graphjit._location import at_line, user_location
from graphjit._nodes import (
    Access,
    Buffer,
    Constant,
    Copy,
    Fill,
    Launch,
    Operand,
    Scalar,
    ScalarRef,
    View,
    constant,
)
from graphjit._tracers import ArrayTracer, ScalarTracer, Tracer
from graphjit.kernel import frontend

SCALARS = (bool, int, float, complex, np.number, np.bool_)


def current() -> Trace | None:
    """The trace that runs on this thread, if one does."""
    found: Trace | None = current_trace()
    return found


class Trace:
    """The graph of one function, while it is being recorded.

    Parameters
    ----------
    name : str
        Name of the traced function.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.active = False
        # Arrays that are not the graph's own: what the function or its kernels close over.
        self.closures: dict[int, Any] = {}
        self.buffers: list[Buffer] = []
        self.versions: list[int] = []
        self.scalars: list[Scalar] = []
        # For each of them the inputs and carried scalars that it is computed from.
        self._leaves: list[tuple[ScalarRef, ...]] = []
        self._inputs: list[View | ScalarRef] = []
        self.nodes: list[Recorded] = []
        # Buffers that bodies made, and their scalars, once they have ended.
        self.ended: set[int | ScalarRef] = set()
        # What the body of a loop raised.
        self.failed = ""
        self._closure_views: dict[int, View] = {}
        self._keep: list[Any] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Make this the thread's trace; whatever happens inside, it ends with the block."""
        with collector_held():
            outer = set_trace(self)
            self.active = True
            try:
                yield
            finally:
                self.active = False
                set_trace(outer)

    def graph(self, outputs: tuple[Access | ScalarRef, ...]) -> Graph:
        """What was recorded, returning `outputs`."""
        if self.failed:
            raise TraceError(
                f"{self.name} went on after the body of a loop or branch raised {self.failed}; "
                "what the body did before is not recorded, so let the error pass, or don't raise it"
            )
        return Graph(
            self.name,
            tuple(self.buffers),
            tuple(self.scalars),
            tuple(self._inputs),
            tuple(self.nodes),
            outputs,
        )

    # -- values -----------------------------------------------------------------------------------

    def array_input(self, layout: Layout, name: str, readonly: bool, record: bool) -> ArrayTracer:
        """A tracer for an array argument."""
        view = self._new_view("input", layout, name)
        self._inputs.append(view)
        return ArrayTracer(self, view, name, readonly=readonly, record=record)

    def scalar_input(self, type_: type, name: str) -> ScalarTracer:
        """A tracer for a number argument."""
        ref = self._new_scalar(Scalar("input", None, (), type_, name))
        self._inputs.append(ref)
        return ScalarTracer(self, ref, type_, name)

    def empty(self, layout: Layout) -> ArrayTracer:
        """A temporary of that layout, uninitialised."""
        name = f"t{sum(b.storage == 'temporary' for b in self.buffers)}"
        return ArrayTracer(self, self._new_view("temporary", layout, name), name)

    def scalar_op(self, name: str, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
        """Record an operation on host scalars; one that gives a tuple gives tracers in a tuple."""
        where = user_location()
        refs = tuple(self._scalar(operand) for operand in operands)
        types = [_scalars.operand_type(ref, self.scalars) for ref in refs]
        with at_line(where):
            result = _scalars.sample(function, types)
        if isinstance(result, tuple):
            return tuple(
                self.scalar_op(f"{name}[{i}]", _scalars.Item(function, i), operands)
                for i in range(len(result))
            )
        type_ = type(result)
        if not issubclass(type_, SCALARS):
            raise TraceError(
                f"{name} of {', '.join(map(repr, operands))} is a {type_.__name__}, no number "
                f"(at {where})"
            )
        ref = self._new_scalar(Scalar(name, function, refs, type_, location=where))
        return ScalarTracer(self, ref, type_, f"%{ref.index}")

    def carried_array(self, like: ArrayTracer, name: str) -> ArrayTracer:
        """What stands for an array that a loop carries."""
        view = self._new_view("carried", like._layout, name)
        readonly, record = like._readonly, like._record
        return ArrayTracer(self, view, name, readonly=readonly, record=record)

    def carried_scalar(self, type_: type, name: str) -> ScalarTracer:
        """What stands for a number that a loop carries, or for its index."""
        ref = self._new_scalar(Scalar("carried", None, (), type_, name))
        return ScalarTracer(self, ref, type_, name)

    def item(self, array: ArrayTracer) -> ScalarTracer:
        """The only element of an array, as a number."""
        where = user_location()
        if array.size != 1:
            raise ValueError(
                f"only an array of one element is a number, not one of shape {array.shape} "
                f"(at {where})"
            )
        type_ = type(np.zeros((), array.dtype).item())
        if type_ not in (bool, int, float, complex) or array.dtype == np.uint64:
            raise TraceError(
                f"an element of {array.dtype} can't be read as a number by a graph (at {where}): "
                "those are bool, int64, float64 and complex128"
            )
        ref = self._new_scalar(Scalar("item", None, (), type_, f"{array._name}.item()"))
        source = self._read(array._view.part(Layout((), (), array.dtype), 0))
        self.output(array)  # refuses what belongs elsewhere
        self.nodes.append(Item(ref, source, where))
        return ScalarTracer(self, ref, type_, f"{array._name}.item()")

    def undecided(self, first: int) -> Iterator[ScalarRef]:
        """The numbers from the `first` on that the run decides."""
        for index in range(first, len(self.scalars)):
            if self.scalars[index].function is None:
                yield ScalarRef(index)

    def indexes(self, ref: ScalarRef) -> bool:
        """Whether a number may be an index: a loop's, or one that the run decides."""
        return any(self.scalars[leaf.index].op != "input" for leaf in self._leaves[ref.index])

    def roots(self, ref: ScalarRef) -> tuple[str, ...]:
        """Names of the arguments that a number is computed from."""
        leaves = (self.scalars[leaf.index] for leaf in self._leaves[ref.index])
        return tuple(dict.fromkeys(leaf.name for leaf in leaves if leaf.op == "input"))

    def lift(self, array: Array) -> ArrayTracer:
        """The tracer of an array that the function closes over."""
        traced: ArrayTracer = self.traced(array, "a closed-over array")
        return traced

    def output(self, value: Tracer) -> Access | ScalarRef:
        """What the graph returns for a tracer."""
        if value._trace is not self:
            value._live()
            raise TraceError(f"{value!r} belongs to another trace, that of {value._trace.name}")
        if isinstance(value, ScalarTracer):
            self._refuse_ended(value, self._leaves[value._ref.index])
            return value._ref
        assert isinstance(value, ArrayTracer)
        view = value._view
        self._refuse_ended(value, (view.buffer,))
        for step in view.moving:
            self._refuse_ended(value, self._leaves[step.index.index])
        return self._read(view)

    def _refuse_ended(self, value: Tracer, parts: tuple[int | ScalarRef, ...]) -> None:
        """Raise if a part of what makes a value is of the body of a loop that has ended."""
        if not self.ended.isdisjoint(parts):
            raise LeakedTracerError(
                f"{value!r} was used at {user_location()} after the body of the loop or branch "
                "that made it had ended; return it from the body, or let scan stack it"
            )

    # -- nodes ------------------------------------------------------------------------------------

    def launch(
        self,
        dispatcher: Any,
        args: tuple[Any, ...],
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
    ) -> None:
        """Record a kernel launch."""
        where = user_location()
        name = dispatcher.py_func.__name__
        check_configuration(name, grid, block, shared_bytes, where)
        traced = tuple(self.traced(arg, f"argument {i} of {name}") for i, arg in enumerate(args))
        try:
            argtypes = tuple(frontend.type_of(dispatcher, arg) for arg in traced)
            kernel = frontend.kernel_ir(dispatcher, frontend.select(dispatcher, argtypes))
        except GraphjitError as error:
            raise type(error)(f"launched at {where}: {error}") from error.__cause__
        except ValueError as error:
            raise TraceError(
                f"{name} was launched at {where} with a bad argument: {error}"
            ) from None
        operands = tuple(self._operands(traced))
        reads, writes = [], []
        touched: set[int] = set()
        for leaf, operand in zip(kernel.leaves, operands, strict=True):
            if isinstance(operand, View) and leaf.path in kernel.effects.reads:
                reads.append(self._read(operand))
            if isinstance(operand, View) and leaf.path in kernel.effects.writes:
                writes.append(operand)
        for captured in kernel.captured:
            view = self._closure(captured)
            reads.append(self._read(view))
            if kernel.effects.captured:
                writes.append(view)
        touched = {view.buffer for view in writes}
        for buffer in touched:
            self.versions[buffer] += 1
        self.nodes.append(
            Launch(
                kernel,
                operands,
                three(grid),
                three(block),
                shared_bytes,
                tuple(dict.fromkeys(reads)),
                tuple(dict.fromkeys(Access(v, self.versions[v.buffer]) for v in writes)),
                where,
            )
        )

    def assign(self, target: ArrayTracer, value: Any) -> None:
        """Record ``target[...] = value`` as a Copy or a Fill."""
        where = user_location()
        self.output(target)  # refuses what belongs elsewhere
        if isinstance(value, (*SCALARS, ScalarTracer)):
            if not isinstance(value, ScalarTracer):
                with at_line(where):
                    value = _scalars.element(value, target.dtype)[()]
            operand = self._scalar(value)
            self.nodes.append(Fill(operand, self._write(target._view), where))
            return
        if isinstance(value, (list, tuple)):
            value = np.asarray(value, target.dtype)
        source = self.traced(value, "the assigned value")
        if not isinstance(source, ArrayTracer):
            raise TraceError(f"cannot assign {type(value).__name__} to an array at {where}")
        if source.dtype != target.dtype:
            raise TraceError(
                f"cannot assign {source.dtype} elements to a {target.dtype} array at {where}; "
                "convert with a kernel, or outside @graphed with .astype()"
            )
        try:
            strides = np.broadcast_to(source._layout._model, target.shape).strides
        except ValueError:
            raise ValueError(
                f"cannot assign an array of shape {source.shape} to one of shape {target.shape}, "
                f"nor broadcast it (at {where})"
            ) from None
        view = source._view.part(Layout(target.shape, strides, source.dtype), 0)
        self.nodes.append(Copy(self._read(view), self._write(target._view), where))

    # -- parts ------------------------------------------------------------------------------------

    def traced(self, value: Any, what: str) -> Any:
        """An argument with every array in it replaced by a tracer of this trace."""
        if isinstance(value, Tracer):
            self.output(value)  # refuses tracers of other traces
            return value
        if isinstance(value, SCALARS):
            return value
        if isinstance(value, tuple):
            items = [self.traced(item, what) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if isinstance(value, np.void):
            host = np.array(value)
            view = self._closure(host)
            return ArrayTracer(self, view, "record", record=True)
        if isinstance(value, (Array, np.ndarray)) or hasattr(value, "__cuda_array_interface__"):
            view = self._closure(value)
            readonly = (
                value._readonly
                if isinstance(value, Array)
                else (isinstance(value, np.ndarray) and not value.flags.writeable)
            )
            return ArrayTracer(self, view, self.buffers[view.buffer].name, readonly=readonly)
        raise TraceError(
            f"{what} is a {type(value).__name__}, which a traced kernel can't take "
            f"(at {user_location()}); pass arrays, numbers and tuples of them"
        )

    def _operands(self, args: tuple[Any, ...]) -> Iterator[Operand]:
        for arg in args:
            if isinstance(arg, tuple):
                yield from self._operands(arg)
            else:
                yield self.operand(arg)

    def _closure(self, value: Any) -> View:
        """The view of an array that isn't the graph's own, by reference."""
        view = self._closure_views.get(id(value))
        if view is None:
            name = f"c{len(self.closures)}"
            layout = layout_of(value) if isinstance(value, np.ndarray) else _adopted(value)._layout
            view = self._new_view("closure", layout, name)
            self.closures[view.buffer] = value
            self._closure_views[id(value)] = view
        return view

    def operand(self, value: Any) -> Operand:
        """What a node calls an array or a number."""
        return value._view if isinstance(value, ArrayTracer) else self._scalar(value)

    def _scalar(self, value: Any) -> ScalarRef | Constant:
        if isinstance(value, ScalarTracer):
            self.output(value)
            return value._ref
        return constant(value)

    def _new_view(self, storage: Any, layout: Layout, name: str) -> View:
        low, high = layout.extent
        self.buffers.append(Buffer(len(self.buffers), storage, high - low, name))
        self.versions.append(0)
        return View(len(self.buffers) - 1, -low, layout)

    def _new_scalar(self, scalar: Scalar) -> ScalarRef:
        ref = ScalarRef(len(self.scalars))
        self.scalars.append(scalar)
        if scalar.function is None:
            self._leaves.append((ref,))
        else:
            operands = (o for o in scalar.operands if isinstance(o, ScalarRef))
            leaves = (leaf for operand in operands for leaf in self._leaves[operand.index])
            self._leaves.append(tuple(dict.fromkeys(leaves)))
        return ref

    def _read(self, view: View) -> Access:
        return Access(view, self.versions[view.buffer])

    def _write(self, view: View) -> Access:
        self.versions[view.buffer] += 1
        return Access(view, self.versions[view.buffer])


def _adopted(value: Any) -> Array:
    array = adopt(value)
    if array is None:
        raise TraceError(f"cannot use a {type(value).__name__} in a graph")
    return array


def to_device(trace: Trace, value: Any) -> ArrayTracer:
    """A fresh array with the elements of a host array, as they are at each call."""
    host: Any = value if isinstance(value, (np.ndarray, Tracer, Array)) else np.asarray(value)
    result = trace.empty(contiguous(tuple(host.shape), host.dtype))
    result[...] = host
    return result
