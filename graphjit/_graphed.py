"""graphed(): the decorator, its cache of compiled functions, and the call."""

from __future__ import annotations

import functools
import inspect
import itertools
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from graphjit._array import Array
from graphjit._context import current_stream
from graphjit._errors import IntegerRangeError
from graphjit._graph import Graph
from graphjit._guards import changed
from graphjit._locks import make_lock
from graphjit._signature import Arguments, Key, Signature, is_pytree
from graphjit._stages import Compiled, Lowered, Traced
from graphjit._trace import current
from graphjit._tracing import trace

_CACHE_SIZE = 128
# Traces of one signature, or evictions, after which a warning names the cause.
_MANY_MISSES = 16


class Graphed:
    """A function that is traced once for each signature and replayed from then on.

    Made by `graphed`; also works as a method.

    Parameters
    ----------
    function : callable
        The user's function.
    static_argnums : sequence of int
        Positions of static parameters.
    static_argnames : sequence of str
        Names of static parameters.
    cache_size : int
        How many signatures are kept; the one unused for longest goes first.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: Sequence[int] = (),
        static_argnames: Sequence[str] = (),
        cache_size: int = _CACHE_SIZE,
    ) -> None:
        if not callable(function):
            raise TypeError(f"graphed() takes a function, not a {type(function).__name__}")
        for test in (
            inspect.iscoroutinefunction,
            inspect.isgeneratorfunction,
            inspect.isasyncgenfunction,
        ):
            if test(function):
                raise TypeError(
                    "graphed() takes a function that launches its kernels when it is called; "
                    f"{getattr(function, '__name__', function)} is a coroutine or a generator"
                )
        functools.update_wrapper(self, function)
        self._function: Any = function
        self._signature = Signature(function, static_argnums, static_argnames)
        self._cache: dict[Key, Compiled] = {}
        # The same compiled functions, found by avals and classes alone.
        self._plain: dict[tuple[Any, ...], Compiled] = {}
        self._cache_size = max(1, cache_size)
        self._clock = itertools.count()
        self._evicted = self._rebound = 0
        self._warned = False
        self._lock = make_lock()
        self._owner: type | None = None
        self._name = self._signature.name
        # Graphed methods of instances without a __dict__ to keep them in.
        self._slotted: dict[int, Graphed] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            # Inside another trace a graphed function is part of that graph.
            return self._function(*args, **kwargs)
        if not kwargs:
            # Arrays and numbers by position: no signature to bind, no tree to flatten.
            plain = tuple([a._aval if type(a) is Array else type(a) for a in args])
            compiled = self._plain.get(plain)
            if compiled is not None and changed(compiled.traced.guards) is None:
                compiled.used = next(self._clock)
                direct = compiled.direct
                try:
                    if direct is not None:
                        return direct(args, current_stream())
                    return compiled.run(args, args)
                except IntegerRangeError:
                    pass  # an integer that Numba types as uint64: another signature
        if self._owner is not None and args and isinstance(args[0], self._owner):
            if not is_pytree(args[0]):
                return self.__get__(args[0])(*args[1:], **kwargs)
        arguments = self._signature.arguments(self._signature.bind(args, kwargs))
        compiled = self._cache.get(arguments.key)
        if compiled is None or changed(compiled.traced.guards) is not None:
            compiled = self._compile(arguments)
        if not kwargs and self._is_plain(args, arguments):
            self._plain[plain] = compiled
        compiled.used = next(self._clock)
        return compiled.run(arguments.leaves, arguments.given)

    def _is_plain(self, args: tuple[Any, ...], arguments: Arguments) -> bool:
        """Whether the classes and avals of the arguments alone make their key."""
        return (
            len(args) == len(arguments.leaves) == len(self._signature.names)
            and not arguments.key.statics
            and any(type(a) is Array for a in args)
            and all(a is b for a, b in zip(args, arguments.leaves, strict=True))
            and not any(isinstance(a, np.ndarray | np.void) for a in args)
        )

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments, without running anything.

        Parameters
        ----------
        *args, **kwargs
            What the function takes; arrays only for their shapes and dtypes.

        Returns
        -------
        Traced
            Its `graph` is what the function does.

        Raises
        ------
        GraphjitError
            If the function can't be traced for them; each kind has its own class.

        Examples
        --------
        >>> import graphjit as gj
        >>> print(gj.graphed(lambda x: x[1:]).trace(gj.zeros(3)).graph)
        graph <lambda>(x: float64[3])
            return x+8:float64[2]@0
        """
        return self._trace(self._signature.arguments(self._signature.bind(args, kwargs)))

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and schedule for these arguments, without running anything.

        Parameters
        ----------
        *args, **kwargs
            As for `trace`.

        Returns
        -------
        Lowered

        Raises
        ------
        UnsupportedKernelError
            If the device's backend can't run one of the kernels.
        """
        return self.trace(*args, **kwargs).lower()

    def cache_clear(self) -> None:
        """Forget all compiled signatures; each is freed when no call uses it any more."""
        with self._lock:
            self._cache.clear()
            self._plain.clear()

    def _warn_of_misses(self, found: Compiled | None) -> None:
        """Say once that calls keep being traced anew, and why."""
        reason = ""
        if found is not None:
            self._rebound += 1
            reason = f"{changed(found.traced.guards)} between calls; pass it as an argument"
        limit = self._evicted >= max(self._cache_size, _MANY_MISSES)
        if limit:
            reason = f"arguments of more than {self._cache_size} different shapes, dtypes or static"
            reason += " values come in turns; pad them, or raise cache_size"
        if not self._warned and (limit or self._rebound >= _MANY_MISSES):
            self._warned = True
            warnings.warn(
                f"{self._signature.name} keeps being traced anew: {reason}", RuntimeWarning, 4
            )

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The method of an instance.

        A pytree (a dataclass, say) is an argument like any other. Any other instance has a graphed
        function of its own, which lives as long as the instance.
        """
        if instance is None:
            return self
        if is_pytree(instance):
            return BoundMethod(self, instance)
        attributes = getattr(instance, "__dict__", None)
        kept: Any = attributes if isinstance(attributes, dict) else self._slotted
        key: Any = id(instance) if kept is self._slotted else f"_graphed_{self._name}"
        found = kept.get(key)
        # A copied instance has its original's.
        if not isinstance(found, Graphed) or found._function.__self__ is not instance:
            names = self._signature.static - {self._signature.names[0]}
            bound = types.MethodType(self._function, instance)
            found = kept[key] = Graphed(bound, (), sorted(names), self._cache_size)
            while len(self._slotted) > _CACHE_SIZE:
                del self._slotted[next(iter(self._slotted))]
        return found

    def __reduce__(self) -> Any:
        if isinstance(self._function, types.MethodType):
            return type(None), ()  # what an instance keeps is made again where it is wanted
        return getattr(self, "__qualname__", self._name)

    def __repr__(self) -> str:
        return f"<graphed {self._signature.name}>"

    def _trace(self, arguments: Arguments) -> Traced:
        return trace(self._function, self._signature, arguments)

    def _compile(self, arguments: Arguments) -> Compiled:
        with self._lock:
            found = self._cache.get(arguments.key)
            if found is not None and changed(found.traced.guards) is None:
                return found
            self._warn_of_misses(found)
            compiled = self._trace(arguments).lower().compile()
            # A replaced or evicted one may still be running on another thread: it is freed when
            # nothing refers to it.
            self._plain.clear()
            self._cache.pop(arguments.key, None)
            while len(self._cache) >= self._cache_size:
                self._evicted += 1
                del self._cache[min(self._cache, key=lambda key: self._cache[key].used)]
            self._cache[arguments.key] = compiled
            return compiled


class BoundMethod:
    """A graphed method bound to an instance that is a pytree."""

    def __init__(self, graphed: Graphed, instance: Any) -> None:
        self._graphed = graphed
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._graphed(self.__self__, *args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """As `Graphed.trace`."""
        return self._graphed.trace(self.__self__, *args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """As `Graphed.lower`."""
        return self._graphed.lower(self.__self__, *args, **kwargs)


@overload
def graphed(function: Callable[..., Any], /) -> Graphed: ...
@overload
def graphed(
    *,
    static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Sequence[str] = ...,
    cache_size: int = ...,
) -> Callable[[Callable[..., Any]], Graphed]: ...


def graphed(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    cache_size: int = _CACHE_SIZE,
) -> Any:
    """Record a function of Numba kernels into a graph at its first call, and replay it after.

    The function is run on tracers once for each signature: shapes, dtypes and strides of its array
    arguments, classes of its numbers, values of its static arguments, and the device. Arrays are
    taken by reference, numbers may change from call to call, and results are fresh arrays.

    Parameters
    ----------
    function : callable
        Launches `@cuda.jit` kernels on its arguments and on arrays it makes.
    static_argnums : int or sequence of int
        Positions of arguments that are part of the signature by value: sizes, flags, choices.
    static_argnames : str or sequence of str
        The same, by name.
    cache_size : int
        How many signatures are kept.

    Returns
    -------
    Graphed
        Called like the function; `trace`, `lower` and `cache_clear` are its methods.

    Raises
    ------
    TypeError
        If it isn't a function.
    ValueError
        If a static argument isn't a parameter.

    Examples
    --------
    >>> import graphjit as gj
    >>> from numba import cuda
    >>> @cuda.jit
    ... def scale(x, out, k):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         out[i] = k * x[i]
    >>> @gj.graphed
    ... def twice_scaled(x, k):
    ...     out = gj.empty_like(x)
    ...     scale[1, 32](x, out, k)
    ...     scale[1, 32](out, out, k)
    ...     return out
    >>> twice_scaled(gj.array([1.0, 2.0]), 3.0).copy_to_host()
    array([ 9., 18.])
    """
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    if function is None:
        return lambda f: Graphed(f, numbers, names, cache_size)
    return Graphed(function, numbers, names, cache_size)


def make_graph(function: Callable[..., Any]) -> Callable[..., Graph]:
    """Make a function that traces another and returns its Graph.

    Parameters
    ----------
    function : callable
        As for `graphed`; a graphed function is taken as it is.

    Returns
    -------
    callable
        Takes the function's arguments; runs nothing and needs no device.

    Examples
    --------
    >>> import graphjit as gj
    >>> graph = gj.make_graph(lambda x: x[::2])(gj.zeros(4))
    >>> graph.outputs[0].view.layout.shape
    (2,)
    """
    wrapped = function if isinstance(function, Graphed) else Graphed(function)

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Graph:
        return wrapped.trace(*args, **kwargs).graph

    return traced
