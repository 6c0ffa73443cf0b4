"""The values a traced function sees in place of arrays and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

from graphjit._context import current_trace
from graphjit._errors import LeakedTracerError, TraceError
from graphjit._layout import Layout, contiguous
from graphjit._location import user_location
from graphjit._nodes import Moving, ScalarRef, View
from graphjit._refusals import concretization_error, foreign_error, source_line
from graphjit._scalars import FUNCTIONS, NUMBERS
from graphjit._shaped import Shaped
from graphjit.kernel import numba_types


class Recorder(Protocol):
    """The trace that a tracer belongs to, as far as tracers know it."""

    name: str
    active: bool

    def empty(self, layout: Layout) -> ArrayTracer:
        """A temporary of that layout, uninitialised."""

    def roots(self, ref: ScalarRef) -> tuple[str, ...]:
        """Names of the arguments that a number is computed from."""

    def indexes(self, ref: ScalarRef) -> bool:
        """Whether a number may be an index: a loop's, or one that the run decides."""

    def item(self, array: ArrayTracer) -> ScalarTracer:
        """The only element of an array, as a number."""

    def assign(self, target: ArrayTracer, value: Any) -> None:
        """Record ``target[...] = value``."""

    def scalar_op(self, name: str, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
        """Record an operation on host scalars; one that gives a tuple gives tracers in a tuple."""


class Tracer:
    """What stands for a value while a function is traced."""

    __slots__ = ("_made", "_name", "_trace")

    def __init__(self, trace: Recorder, name: str) -> None:
        self._trace = trace
        self._name = name
        self._made = user_location()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        self._concrete(f"numpy.{ufunc.__name__}", "write a kernel for it, or return the value")

    def _live(self) -> Recorder:
        """The trace, if it is still running."""
        if not self._trace.active:
            raise LeakedTracerError(
                f"{self!r} was used at {user_location()} after its trace had ended. It was made at "
                f"{self._made} while {self._trace.name} was traced; return it from the function "
                "instead of storing it elsewhere"
            )
        return self._trace

    def _elsewhere(self) -> TraceError:
        """The error for a use outside the trace that is running."""
        self._live()
        if current_trace() is not None:
            return TraceError(
                f"{self!r} belongs to the trace of {self._trace.name}, and was used at "
                f"{user_location()} in one inside it; pass it as an argument"
            )
        return TraceError(
            f"{self!r}, of the trace of {self._trace.name}, was used at {user_location()} on a "
            "thread that isn't tracing; launch kernels and call graphed functions on the thread "
            "that runs the traced function"
        )

    def _concrete(self, use: str, remedy: str) -> NoReturn:
        """Refuse a use that needs the value now."""
        self._live()
        raise concretization_error(use, self, remedy)

    def __int__(self) -> int:
        self._concrete("int()", self._remedy())

    def __index__(self) -> int:
        self._concrete("an integer index or size", self._remedy())

    def __float__(self) -> float:
        self._concrete("float()", self._remedy())

    def __complex__(self) -> complex:
        self._concrete("complex()", self._remedy())

    def __bool__(self) -> bool:
        self._concrete(
            "bool() (an if, while, and, or, not, min, max)",
            "a branch on it would freeze one side; use gj.cond, gj.while_loop or np.minimum, "
            "decide inside a kernel, or make the argument static (static_argnames)",
        )

    def __str__(self) -> str:
        if not self._trace.active:
            return repr(self)
        self._concrete("str()", "return the value and print it outside, or print inside a kernel")

    def __format__(self, spec: str) -> str:
        self._concrete(
            "format()", "return the value and print it outside, or print inside a kernel"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._concrete("a NumPy function", "write a kernel for it, or return the value")

    def __reduce__(self) -> Any:
        self._concrete("pickling or copying", "use .copy(), or return the value")

    def _remedy(self) -> str:
        return "return the value and convert it outside"


class ArrayTracer(Shaped, Tracer):
    """Stands for an array while a function is traced."""

    __slots__ = ("_readonly", "_record", "_view")

    def __init__(
        self,
        trace: Recorder,
        view: View,
        name: str,
        *,
        readonly: bool = False,
        record: bool = False,
    ) -> None:
        super().__init__(trace, name)
        self._view = view
        self._readonly = readonly
        self._record = record

    def _refuse(self, what: str) -> NoReturn:
        self._live()
        where = user_location()
        try:
            super()._refuse(what)
        except TypeError as error:
            raise TraceError(f"{error}\n  at {where}:\n    {source_line(where)}") from None

    @property
    def _layout(self) -> Layout:
        return self._view.layout

    def __getitem__(self, key: Any) -> ArrayTracer:
        first, *rest = key if isinstance(key, tuple) and key else (key,)
        if isinstance(first, ScalarTracer) and first.indexes:
            if not self.ndim:
                raise IndexError(f"a 0-d array has no index (at {user_location()})")
            step = Moving(first._ref, self.shape[0], self.strides[0], user_location())
            layout = Layout(self.shape[1:], self.strides[1:], self.dtype)
            found = self._derived(layout, 0, (step,))
            return found[tuple(rest)] if rest else found
        layout, offset = self._index(key)
        return self._derived(layout, offset)

    def __setitem__(self, key: Any, value: Any) -> None:
        trace = self._live()
        if self._readonly:
            raise ValueError("assignment destination is read-only")
        trace.assign(self[key], value)

    def _index(self, key: Any) -> tuple[Layout, int]:
        self._live()
        for item in key if isinstance(key, tuple) else (key,):
            if isinstance(item, ScalarTracer) and item.indexes:
                remedy = "a loop's index can be the first one only, as in xs[i, 1:]"
                raise concretization_error("an index that is not the first", item, remedy)
            if isinstance(item, Tracer):
                raise concretization_error(
                    "an index", item, "pass the index to a kernel, or make it static"
                )
        return self._layout.index(key)

    def copy(self) -> ArrayTracer:
        """A copy in fresh row-major memory."""
        result = self._live().empty(contiguous(self.shape, self.dtype))
        result[...] = self
        return result

    def copy_to_device(self, source: Any, stream: Any = 0) -> None:
        """Overwrite the elements with those of another array of the same shape."""
        self[...] = source

    def astype(self, dtype: Any) -> ArrayTracer:
        """A copy; refused for another element type, which takes a kernel."""
        if np.dtype(dtype) != self.dtype:
            raise TraceError(
                f"a traced {self.dtype} array can't become {np.dtype(dtype)} "
                f"(at {user_location()}); convert it with a kernel, or outside @graphed"
            )
        return self.copy()

    def block_until_ready(self) -> ArrayTracer:
        """Nothing to wait for while tracing."""
        return self

    def __copy__(self) -> ArrayTracer:
        return self._derived(self._layout, 0)

    def __deepcopy__(self, memo: Any) -> ArrayTracer:
        return self.copy()

    def copy_to_host(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: the elements exist only when the graph runs."""
        self._concrete("copy_to_host()", "return the array and copy it outside")

    def item(self) -> ScalarTracer:
        """The only element, as a number that the device knows when the graph runs.

        Kernels, arithmetic, `gj.cond`, loops and first indices take it.
        """
        return self._live().item(self)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    @property
    def _numba_type_(self) -> Any:
        self._live()
        if self._record:
            return numba_types.element_type(self.dtype)
        return numba_types.array_type(self._layout, self._readonly)

    def _foreign(self) -> NoReturn:
        self._live()
        raise foreign_error(f"asked for the memory of {self!r}", user_location())

    @property
    def __cuda_array_interface__(self) -> Any:
        self._foreign()

    @property
    def __sycl_usm_array_interface__(self) -> Any:
        self._foreign()

    def __dlpack__(self, **options: Any) -> Any:
        self._foreign()

    def _derived(self, layout: Layout, offset: int, moving: tuple[Moving, ...] = ()) -> ArrayTracer:
        self._live()
        view = self._view.part(layout, offset, moving)
        return ArrayTracer(self._trace, view, self._name, readonly=self._readonly)

    def __repr__(self) -> str:
        return f"<traced array {self._name}: {self._layout}>"


class ScalarTracer(Tracer):
    """Stands for a number while a function is traced; arithmetic on it is recorded."""

    __slots__ = ("_ref", "_type")

    def __init__(self, trace: Recorder, ref: ScalarRef, type_: type, name: str) -> None:
        super().__init__(trace, name)
        self._ref = ref
        self._type = type_

    @property
    def _numba_type_(self) -> Any:
        self._live()
        return numba_types.class_type(self._type)

    @property
    def indexes(self) -> bool:
        """Whether it may be an index: an integer that a loop counts, or that the run decides."""
        is_integer = issubclass(self._type, (int, np.integer)) and self._type is not bool
        return is_integer and self._live().indexes(self._ref)

    def _remedy(self) -> str:
        roots = " and ".join(self._trace.roots(self._ref))
        # What a loop carries, and its index, nobody can make static.
        static = f"make {roots} static (static_argnames), " if roots else ""
        return (
            f"{static}compute with it inside a kernel, or use operators, functions of math and "
            "NumPy ufuncs (math.sqrt, np.minimum), which are recorded"
        )

    def __hash__(self) -> int:
        self._concrete(
            "hash() (a dict key, a set, a cached call, a launch configuration)", self._remedy()
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = all(isinstance(i, (ScalarTracer, *NUMBERS)) for i in inputs)
        if method != "__call__" or kwargs or not plain:
            remedy = self._remedy() if plain else "arithmetic on arrays is a kernel's business"
            self._concrete(f"{ufunc.__name__} ({method})", remedy)
        return self._live().scalar_op(ufunc.__name__, ufunc, inputs)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._concrete("a NumPy class or a NumPy function that is no ufunc", self._remedy())

    def __round__(self, digits: int | None = None) -> Any:
        given = (self,) if digits is None else (self, digits)
        return self._live().scalar_op("round", round, given)

    def __repr__(self) -> str:
        return f"<traced {self._type.__name__} {self._name}>"


def _operator(op: str, reflected: bool) -> Any:
    def method(self: ScalarTracer, *others: Any) -> Any:
        for other in others:
            if not isinstance(other, (ScalarTracer, *NUMBERS)):
                return NotImplemented
        # From Python 3.14 on, pow(2, k, 5) comes here too.
        operands = (others[0], self, *others[1:]) if reflected else (self, *others)
        return self._live().scalar_op(op, FUNCTIONS[op], operands)

    return method


def _attribute(name: str) -> Any:
    def getter(self: ScalarTracer) -> Any:
        # A slot of the class, which gives the attribute of a value.
        get = getattr(self._type, name).__get__
        return self._live().scalar_op(name, get, (self,))

    return property(getter)


def _method(name: str) -> Any:
    def getter(self: ScalarTracer) -> Any:
        function = getattr(self._type, name)
        return lambda: self._live().scalar_op(name, function, (self,))

    return property(getter)


_BINARY = "add sub mul truediv floordiv mod divmod pow and or xor lshift rshift"
for _name in _BINARY.split():
    _op = f"{_name}_" if _name in ("and", "or") else _name
    setattr(ScalarTracer, f"__{_name}__", _operator(_op, False))
    setattr(ScalarTracer, f"__r{_name}__", _operator(_op, True))
for _name in "lt le gt ge eq ne neg pos invert".split():
    setattr(ScalarTracer, f"__{_name}__", _operator(_name, False))
for _name in "abs floor ceil trunc".split():
    setattr(ScalarTracer, f"__{_name}__", _operator(_name, False))
for _name in "real imag numerator denominator".split():
    setattr(ScalarTracer, _name, _attribute(_name))
for _name in "as_integer_ratio bit_count bit_length conjugate is_integer item".split():
    setattr(ScalarTracer, _name, _method(_name))
