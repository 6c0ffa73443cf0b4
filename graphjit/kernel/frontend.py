"""From a `@cuda.jit` kernel and argument types to KernelIR.

The only file that touches numba-cuda's private names; each is a name of numba-cuda 0.30.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.core import config

from graphjit._errors import (
    DeviceError,
    DTypeError,
    KernelCompileError,
    SimulatorError,
    UnsupportedKernelError,
)

if config.ENABLE_CUDASIM:
    raise SimulatorError(
        "NUMBA_ENABLE_CUDASIM=1 replaces Numba's compiler by a simulator, which graphjit can't "
        "trace; unset it (graphjit runs kernels on the CPU without a GPU and without the simulator)"
    )

import numba.cuda.dispatcher as numba_dispatcher
from numba.cuda.compiler import _compile_pyfunc_with_fixup
from numba.cuda.dispatcher import CUDADispatcher
from numba.cuda.errors import normalize_kernel_dimensions as normalize_dimensions
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.typing.typeof import typeof

from graphjit._layout import Layout
from graphjit._locks import make_lock
from graphjit.kernel.effects import analyse
from graphjit.kernel.ir import KernelIR, expand, leaves_of
from graphjit.kernel.linking import linked_module, with_memset

# A compute capability for IR where no device says otherwise: what is traced without a GPU.
_DEFAULT_CC = (9, 0)
_lock = make_lock()
_declared: weakref.WeakKeyDictionary[CUDADispatcher, dict[str, Any]] = weakref.WeakKeyDictionary()
_state = threading.local()

__all__ = [
    "LaunchHooks",
    "array_type",
    "declare_effects",
    "driver_available",
    "element_type",
    "is_no_element",
    "kernel_ir",
    "load",
    "lowering",
    "normalize_dimensions",
    "per_kernel",
    "require_driver",
    "select",
    "type_of",
    "value_type",
]


def lowering() -> bool:
    """Whether this thread is inside Numba's front end (arrays then show their address to it)."""
    return getattr(_state, "lowering", False)


@functools.lru_cache(maxsize=4096)
def array_type(layout: Layout, readonly: bool = False) -> Any:
    """Numba's type of an array.

    Parameters
    ----------
    layout : Layout
        Its shape, strides and dtype.
    readonly : bool
        Whether kernels may not store to it.

    Returns
    -------
    numba.cuda.types.Array

    Raises
    ------
    DTypeError
        If Numba has no such element type.
    """
    return types.Array(element_type(layout.dtype), layout.ndim, layout.order, readonly=readonly)


def is_no_element(dtype: np.dtype[Any]) -> bool:
    """Whether kernels have no use for such elements, even where Numba has a type for them."""
    return dtype.hasobject or dtype.subdtype is not None or dtype.kind in "SU"


def element_type(dtype: Any) -> Any:
    """Numba's type of an array's elements; raises DTypeError where Numba has none."""
    try:
        if is_no_element(dtype):
            raise TypeError("references, subarrays and strings are no elements here")
        return from_dtype(dtype)
    except Exception as error:
        raise DTypeError(
            f"Numba kernels have no element type {dtype}; convert the array first"
        ) from error


class LaunchHooks:
    """The numba-cuda classes whose methods every launch and every allocation goes through."""

    def __init__(self) -> None:
        from numba.cuda.cudadrv.devicearray import DeviceNDArrayBase
        from numba.cuda.deviceufunc import GeneralizedUFunc
        from numba.cuda.dispatcher import ForAll
        from numba.cuda.vectorizers import CUDAUFuncDispatcher

        self.dispatcher: Any = CUDADispatcher
        self.forall: Any = ForAll
        self.ufunc: Any = CUDAUFuncDispatcher
        self.gufunc: Any = GeneralizedUFunc
        self.device_array: Any = DeviceNDArrayBase


def select(dispatcher: CUDADispatcher, argtypes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The signature that Numba would run for arguments of these types.

    A kernel with an explicit signature converts its scalars; any other is compiled for the types.
    """
    if dispatcher._can_compile or argtypes in dispatcher.overloads:
        return argtypes
    for signature in dispatcher.overloads:
        if len(signature) == len(argtypes) and all(
            dispatcher.typingctx.can_convert(given, wanted) is not None
            if not isinstance(wanted, types.Array)
            else given == wanted
            for given, wanted in zip(argtypes, signature, strict=True)
        ):
            return tuple(signature)
    known = ", ".join(str(s) for s in dispatcher.overloads)
    raise KernelCompileError(
        f"kernel {dispatcher.py_func.__name__} has no signature for "
        f"({', '.join(map(str, argtypes))}); it has {known}"
    )


def value_type(value: Any) -> Any:
    """Numba's type of a number."""
    return typeof(value)


def type_of(dispatcher: CUDADispatcher, value: Any) -> Any:
    """Numba's type of a kernel argument."""
    return dispatcher.typeof_pyval(value)


def kernel_ir(dispatcher: CUDADispatcher, argtypes: tuple[Any, ...]) -> KernelIR:
    """Compile a kernel for argument types, as far as LLVM IR, once.

    Parameters
    ----------
    dispatcher : numba.cuda.dispatcher.CUDADispatcher
        The user's kernel.
    argtypes : tuple of numba.cuda.types.Type
        One type an argument.

    Returns
    -------
    KernelIR

    Raises
    ------
    KernelCompileError
        If Numba can't compile the kernel for these types; its own error is the cause.
    """
    with _lock:
        known = _kept_for(dispatcher, "ir")
        found: KernelIR | None = known.get(argtypes)
        if found is None:
            found = known[argtypes] = _compile(dispatcher, argtypes)
        return found


def per_kernel(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make one object a kernel, kept as long as the kernel lives."""

    def get(dispatcher: CUDADispatcher) -> Any:
        made = _kept_for(dispatcher, make.__qualname__)
        found = made.get(None)
        if found is None:
            with _lock:
                found = made.setdefault(None, make(dispatcher))
        return found

    return get


def _kept_for(dispatcher: CUDADispatcher, what: str) -> dict[Any, Any]:
    """What is kept for a kernel: on it, since all of it refers to it, so that both go together."""
    kept: dict[str, dict[Any, Any]] = vars(dispatcher).setdefault("_graphjit", {})
    return kept.setdefault(what, {})


def declare_effects(
    kernel: CUDADispatcher,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    captured: bool | None = None,
    prints: bool | None = None,
    traps: bool | None = None,
) -> None:
    """Say what a kernel reads and writes, in place of what graphjit infers from its IR.

    Parameters
    ----------
    kernel : numba.cuda.dispatcher.CUDADispatcher
        A `@cuda.jit` kernel; its earlier traces are not touched.
    reads, writes : tuple of str
        Names of the array arguments whose contents a launch uses, and may change. An argument
        that is only partly overwritten needs only `writes`: what isn't overwritten survives.
    captured : bool, optional
        Whether it may write the device arrays it closes over; if not given, any that there are.
    prints, traps : bool, optional
        Whether it prints, and whether it can stop with an error; as inferred if not given.

    Raises
    ------
    ValueError
        If a name isn't a parameter of the kernel.

    Examples
    --------
    >>> import graphjit as gj
    >>> from numba import cuda
    >>> @cuda.jit
    ... def copy(x, out):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = x[i]
    >>> gj.declare_effects(copy, reads=("x",), writes=("out",))
    """
    names = list(inspect.signature(kernel.py_func).parameters)
    for name in (*reads, *writes):
        if name.split("[")[0] not in names:
            raise ValueError(
                f"{kernel.py_func.__name__} has no argument {name!r}; it has {', '.join(names)}"
            )
    with _lock:
        _declared[kernel] = {"reads": frozenset(reads), "writes": frozenset(writes)} | {
            name: value
            for name, value in (("captured", captured), ("prints", prints), ("traps", traps))
            if value is not None
        }
        _kept_for(kernel, "ir").clear()


def _compile(dispatcher: CUDADispatcher, argtypes: tuple[Any, ...]) -> KernelIR:
    function = dispatcher.py_func
    options = dispatcher.targetoptions
    if options.get("debug"):
        raise UnsupportedKernelError(
            f"kernel {function.__name__} is compiled with debug=True, which a graph can't report "
            "errors for yet; compile it without debug, or launch it outside @graphed"
        )
    names = list(inspect.signature(function).parameters)
    if len(names) != len(argtypes):
        raise KernelCompileError(
            f"kernel {function.__name__} takes {len(names)} arguments "
            f"({', '.join(names)}), {len(argtypes)} given"
        )
    try:
        library, entry = _lower(dispatcher, argtypes)
        module = linked_module([with_memset(text) for text in library.llvm_strs])
    except Exception as error:
        # Numba raises many classes; the text is what the user needs.
        raise KernelCompileError(
            f"Numba can't compile kernel {function.__name__} for "
            f"({', '.join(str(t) for t in argtypes)}):\n{error}"
        ) from error
    externals = frozenset(f.name for f in module.functions if f.is_declaration)
    leaves = tuple(leaves_of(names, argtypes))
    captured = tuple(library.referenced_objects.values())
    text = str(module)
    effects, accesses = analyse(text, entry, leaves, externals, bool(captured))
    if dispatcher in _declared:
        declared = dict(_declared[dispatcher])
        for name in ("reads", "writes"):
            declared[name] = expand(declared[name], leaves)
        effects = dataclasses.replace(effects, **declared)
    linked = [*library._linking_files, *(options.get("link") or ())]
    return KernelIR(
        name=function.__name__,
        entry=entry,
        argtypes=argtypes,
        leaves=leaves,
        llvm=text,
        externals=externals,
        effects=effects,
        accesses=accesses,
        linked=tuple(_describe(item) for item in linked),
        captured=captured,
        fastmath=bool(options.get("fastmath")),
        cooperative=library.use_cooperative,
        dispatcher=dispatcher,
    )


def _lower(dispatcher: CUDADispatcher, argtypes: tuple[Any, ...]) -> tuple[Any, str]:
    if driver_available():
        # Eager launches and replays then share one compilation.
        with _front_end():
            kernel = dispatcher.compile(argtypes)
        return kernel._codelibrary, kernel.entry_name
    with _front_end(), _compute_capability(_DEFAULT_CC):
        library, _ = _compile_pyfunc_with_fixup(
            dispatcher.py_func,
            types.void(*argtypes),
            device=False,
            abi="numba",
            cc=_DEFAULT_CC,
            fastmath=bool(dispatcher.targetoptions.get("fastmath")),
            launch_bounds=dispatcher.targetoptions.get("launch_bounds"),
        )
    return library, library._entry_name


@contextlib.contextmanager
def _front_end() -> Iterator[None]:
    outer = lowering()
    _state.lowering = True
    try:
        yield
    finally:
        _state.lowering = outer


class _PlainDevice:
    """Stands in for the current device: lowering asks it only for its compute capability."""

    def __init__(self, cc: tuple[int, int]) -> None:
        self.compute_capability = cc


@contextlib.contextmanager
def _compute_capability(cc: tuple[int, int]) -> Iterator[None]:
    """A kernel that calls a device function asks Numba for the current device; answer for it."""
    original = numba_dispatcher.get_current_device
    numba_dispatcher.get_current_device = lambda: _PlainDevice(cc)
    try:
        yield
    finally:
        numba_dispatcher.get_current_device = original


def driver_available() -> bool:
    """Whether a CUDA driver and a device are there."""
    found = getattr(_state, "driver", None)
    if found is None:
        from numba import cuda

        found = _state.driver = bool(cuda.is_available())
    return found


def require_driver(name: str) -> None:
    """Raise DeviceError if there is no CUDA driver to launch a kernel eagerly on."""
    if not driver_available():
        raise DeviceError(
            f"kernel {name} was launched without graphjit Arrays, and there is no CUDA device; "
            "pass arrays made by graphjit to run it on the CPU"
        )


def load(kernel: KernelIR) -> Any:
    """The kernel as a `cuda.core.Kernel` in the current context, through Numba's own compile."""
    compiled = kernel.dispatcher.compile(kernel.argtypes)
    return compiled._codelibrary.get_cufunc().kernel


def _describe(item: Any) -> str:
    name = getattr(item, "name", None) or (item if isinstance(item, str) else type(item).__name__)
    return os.path.basename(str(name))
