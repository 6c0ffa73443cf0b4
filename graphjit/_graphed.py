"""graphed(): the decorator, its cache of compiled functions, and the call."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from graphjit._cache import Cache, CacheInfo
from graphjit._dispatch import Dispatcher, Known
from graphjit._memory import Handle
from graphjit._methods import BoundMethod
from graphjit._options import Options, passes
from graphjit._pytrees import is_pytree
from graphjit._signature import Arguments, Signature
from graphjit._stages import Compiled, Lowered, Traced
from graphjit._tracing import trace
from graphjit.backends.binding_stats import BindingStats
from graphjit.schedule.schedule import REUSE_FROM

_CACHE_SIZE = 128
_CACHE_BYTES = 8 * 2**30


class Graphed(Dispatcher):
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
    options : Options
        How calls treat memory.
    cache_size : int
        How many signatures are kept; the one unused for longest goes first.
    cache_bytes : int
        How much device memory their temporaries may hold, in bytes.
    explain_misses : bool
        Whether to tell of each trace, and why.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: Sequence[int] = (),
        static_argnames: Sequence[str] = (),
        options: Options | None = None,
        cache_size: int = _CACHE_SIZE,
        cache_bytes: int = _CACHE_BYTES,
        explain_misses: bool = False,
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
        self._options = options or Options()
        for name in self._options.donated:
            if name not in self._signature.names or name in self._signature.static:
                raise ValueError(f"{self._signature.name} has no parameter {name!r} to be donated")
        names = self._signature.names
        static = {key: name for name in self._signature.static for key in (name, names.index(name))}
        Dispatcher.__init__(self, static, self._signature.name)
        self._cache = Cache(self._signature.name, cache_size, cache_bytes, explain_misses)
        self._owner: type | None = None
        self._name = self._signature.name
        # Graphed methods of instances without a __dict__ to keep them in.
        self._slotted: dict[int, Graphed] = {}

    def _call_traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Inside another trace a graphed function is part of that graph.
        return self._function(*args, **kwargs)

    def _call_anew(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], kind: tuple[Any, ...]
    ) -> Any:
        if args and self._owner is not None and isinstance(args[0], self._owner):
            if not is_pytree(args[0]):
                return self.__get__(args[0])(*args[1:], **kwargs)
        arguments = self._signature.arguments(self._signature.bind(args, kwargs))
        compiled = self._cache.find(arguments.key) or self._compile(arguments)
        self._clock += 1
        compiled.replay.used = self._clock
        known = self._known_call(args, kwargs, kind, arguments, compiled)
        if known is not None:
            with self._cache.lock:
                # Not what another thread has evicted: nobody would forget it.
                if self._cache.holds(arguments.key, compiled):
                    self._known[kind] = known
        return compiled.run(arguments.leaves, arguments.given)

    def _known_call(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: tuple[Any, ...],
        arguments: Arguments,
        compiled: Compiled,
    ) -> Known | None:
        """The short way for calls like this one, if what `kind` holds is all of their key."""
        leaves, arrays = arguments.leaves, (Handle, np.ndarray)
        if compiled.binding.uploads_closures or not any(
            isinstance(leaf, arrays) for leaf in leaves
        ):
            return None
        dynamic = [value for place, value in enumerate(args) if place not in self._statics]
        dynamic += [value for name, value in kwargs.items() if name not in self._statics]
        self._meet(dynamic, arguments.given, leaves)
        # A key made before its classes were met doesn't say what is in them.
        if not self._foreign.isdisjoint(kind):
            return None
        if not all(map(self._signature.is_plain, arguments.given, leaves)):
            return None
        is_flat = any(type(value) in self._containers for value in (*args, *kwargs.values()))
        places = self._signature.places(args, kwargs, is_flat)
        if any(place < 0 and isinstance(default, arrays) for place, default in places):
            return None
        order, defaults = (tuple(items) for items in zip(*places, strict=True))
        given = None if order == tuple(range(len(order))) and not self._statics else order
        return Known(compiled, compiled.replay, compiled.traced.guards, given, defaults, kind)

    def trace(self, /, *args: Any, **kwargs: Any) -> Traced:
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

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
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
        with self._cache.lock:
            self._cache.clear()
            self._known.clear()
            self._last = None

    def cache_info(self) -> CacheInfo:
        """What is compiled, and how calls fared.

        Returns
        -------
        CacheInfo

        Examples
        --------
        >>> import graphjit as gj
        >>> copied = gj.graphed(lambda x: x.copy())
        >>> for n in (3, 3, 4):
        ...     _ = copied(gj.zeros(n))
        >>> info = copied.cache_info()
        >>> info.hits, info.misses, info.size
        (1, 2, 2)
        """
        return self._cache.info(self._hits)

    def binding_stats(self) -> BindingStats:
        """How the calls of all signatures were bound to their memory.

        Returns
        -------
        BindingStats
        """
        found = (compiled.binding_stats() for compiled in self._cache.values())
        return sum(found, BindingStats())

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
        if type(instance) in self._containers or is_pytree(instance):
            return BoundMethod(self, instance)
        attributes = getattr(instance, "__dict__", None)
        kept: Any = attributes if isinstance(attributes, dict) else self._slotted
        key: Any = id(instance) if kept is self._slotted else self._title_in(instance)
        found = kept.get(key)
        if self._is_of(found, instance):
            return found
        with self._cache.lock:
            found = kept.get(key)
            if not self._is_of(found, instance):
                found = kept[key] = self._bound(types.MethodType(self._function, instance))
                while len(self._slotted) > _CACHE_SIZE:
                    del self._slotted[next(iter(self._slotted))]
            return found

    def _title_in(self, instance: Any) -> str:
        """Where an instance keeps its own; a class and its base may both have the method."""
        owner = self._owner or type(instance)
        return f"_graphed_{owner.__qualname__}.{self._name}"

    def _is_of(self, found: Any, instance: Any) -> bool:
        """Whether that is this method of an instance; a copied instance has its original's."""
        function = found._function if isinstance(found, Graphed) else None
        return (
            isinstance(function, types.MethodType)
            and function.__self__ is instance
            and function.__func__ is self._function
        )

    def __reduce__(self) -> Any:
        if isinstance(self._function, types.MethodType):
            return type(None), ()  # what an instance keeps is made again where it is wanted
        return getattr(self, "__qualname__", self._name)

    def __repr__(self) -> str:
        return f"<graphed {self._signature.name}>"

    def _bound(self, method: types.MethodType) -> Graphed:
        """The same for one instance."""
        names = self._signature.static - {self._signature.names[0]}
        cache = self._cache
        return Graphed(
            method,
            (),
            sorted(names),
            self._options,
            cache.max_size,
            cache.max_bytes,
            cache.explains,
        )

    def _trace(self, arguments: Arguments) -> Traced:
        return trace(self._function, self._signature, arguments, self._options)

    def _compile(self, arguments: Arguments) -> Compiled:
        with self._cache.lock:
            found = self._cache.find(arguments.key)
            if found is not None:
                return found
            self._cache.miss(arguments.key)
            compiled = self._trace(arguments).lower().compile()
            compiled.replay.used = self._clock
            self._known.clear()
            self._last = None
            self._cache.add(arguments.key, compiled)
            return compiled


@overload
def graphed(function: Callable[..., Any], /) -> Graphed: ...
@overload
def graphed(
    *,
    static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Sequence[str] = ...,
    donate_argnames: str | Sequence[str] = ...,
    inputs: str = ...,
    outputs: str = ...,
    optimize: bool | str | Sequence[str] = ...,
    reuse_from: int = ...,
    cache_size: int = ...,
    cache_bytes: int = ...,
    explain_misses: bool = ...,
) -> Callable[[Callable[..., Any]], Graphed]: ...


def graphed(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnames: str | Sequence[str] = (),
    inputs: str = "auto",
    outputs: str = "fresh",
    optimize: bool | str | Sequence[str] = True,
    reuse_from: int = REUSE_FROM,
    cache_size: int = _CACHE_SIZE,
    cache_bytes: int = _CACHE_BYTES,
    explain_misses: bool = False,
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
    donate_argnames : str or sequence of str
        Arguments whose memory a call gives away: later results may have it, and using them or
        their views again raises ClosedError. One that is returned comes back as a new array over
        the same memory. Inside another graphed function nothing is given away.
    inputs : {"auto", "copy", "rebind"}
        How arguments reach the graph. "rebind": in place, by pointing the graph to them. "copy":
        through buffers of the graph's own. "auto": what is cheaper, which is copying only where
        very many nodes use an argument. It makes no difference to what a call does.
    outputs : {"fresh", "static"}
        "static": every call returns the same memory, overwritten by the next call. An argument
        that lies in it, as in `u = step(u)`, is copied first.
    optimize : bool, str or sequence of str
        What may be made of the recorded launches: everything (True), nothing (False), or some of
        "copies", by which readers of a copy read the original where that stays as it is,
        "dead_work", by which work that nobody sees is left out, "constants", by which what
        depends on nothing that changes is computed once (see `Lowered.removed` for all three),
        "fusion", by which launches over the same grid become one if each thread reads only what it
        wrote itself (see `Lowered.fusion_report`), and "programmatic_launch", by which GPUs of
        compute capability 9 and up launch a kernel while the one that it waits for still runs.
    reuse_from : int
        Temporaries of at least so many bytes, 16 MiB if not given, take over each other's memory
        even if what uses them could run at the same time, and then must not.
    cache_size : int
        How many signatures are kept.
    cache_bytes : int
        How much device memory the temporaries of the kept signatures may hold, in bytes.
    explain_misses : bool
        Tell of each call that is traced, and why; see `graphjit.explain_misses`.

    Returns
    -------
    Graphed
        Called like the function; its methods are `trace`, `lower`, `cache_info`, `cache_clear` and
        `binding_stats`.

    Raises
    ------
    TypeError
        If it isn't a function.
    ValueError
        If a static or donated argument isn't a parameter, or an option has no such value.

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
    options = Options(inputs, outputs, _names(donate_argnames), reuse_from, passes(optimize))
    make = functools.partial(
        Graphed,
        static_argnums=numbers,
        static_argnames=_names(static_argnames),
        options=options,
        cache_size=cache_size,
        cache_bytes=cache_bytes,
        explain_misses=explain_misses,
    )
    return make if function is None else make(function)


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
