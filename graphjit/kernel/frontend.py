"""From a `@cuda.jit` kernel and argument types to KernelIR.

The only file that touches numba-cuda's private names; each is a name of numba-cuda 0.30.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from numba.cuda import types
from numba.cuda.core import config

from graphjit._errors import (
    DeviceError,
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
from numba.cuda.dispatcher import CUDADispatcher, NullCache, _Kernel
from numba.cuda.errors import normalize_kernel_dimensions as normalize_dimensions

from graphjit._locks import make_lock
from graphjit.kernel.declarations import Declared, declared_for
from graphjit.kernel.effects import analyse
from graphjit.kernel.ir import KernelIR, leaves_of
from graphjit.kernel.linking import linked_module, with_memset, with_one_frame
from graphjit.kernel.parameters import indirect, moving_first, reordered, waiting, with_unaliased

# A compute capability for IR where no device says otherwise: what is traced without a GPU.
_DEFAULT_CC = (9, 0)
# What a code library keeps of the steps from LLVM IR to a kernel in a context.
_MADE_OF_IR = ("_ptx_cache", "_ltoir_cache", "_cubin_cache", "_linkerinfo_cache", "_cufunc_cache")
_lock = make_lock()
_state = threading.local()

__all__ = [
    "LaunchHooks",
    "LoadedKernel",
    "device_runtime_library",
    "driver_available",
    "is_plain",
    "kernel_ir",
    "load",
    "lowering",
    "normalize_dimensions",
    "per_kernel",
    "require_driver",
    "select",
    "type_of",
]


def lowering() -> bool:
    """Whether this thread is inside Numba's front end (arrays then show their address to it)."""
    return getattr(_state, "lowering", False)


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


def is_plain(dispatcher: CUDADispatcher) -> bool:
    """Whether a kernel is its function and no more: no explicit signatures, no special options.

    Whether fast maths are allowed is in its KernelIR.
    """
    options = dispatcher.targetoptions
    special = any(options.get(name) for name in ("launch_bounds", "max_registers", "link"))
    return bool(
        dispatcher._can_compile and not special and options.get("opt", True) in (True, None)
    )


def type_of(dispatcher: CUDADispatcher, value: Any) -> Any:
    """Numba's type of a kernel argument."""
    return dispatcher.typeof_pyval(value)


def kernel_ir(
    dispatcher: CUDADispatcher,
    argtypes: tuple[Any, ...],
    unaliased: frozenset[int] = frozenset(),
) -> KernelIR:
    """Compile a kernel for argument types, as far as LLVM IR, once.

    Parameters
    ----------
    dispatcher : numba.cuda.dispatcher.CUDADispatcher
        The user's kernel.
    argtypes : tuple of numba.cuda.types.Type
        One type an argument.
    unaliased : frozenset of int
        Those of the arguments, arrays all, whose memory is used through nothing else.

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
        declared = declared_for(dispatcher)
        key = (argtypes, declared, unaliased)
        found: KernelIR | None = known.get(key)
        if found is None:
            found = known[key] = _compile(dispatcher, argtypes, declared, unaliased)
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


def _compile(
    dispatcher: CUDADispatcher,
    argtypes: tuple[Any, ...],
    declared: Declared | None,
    unaliased: frozenset[int],
) -> KernelIR:
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
    alone = {names[n] for n in unaliased}
    pointers = frozenset(x.data for x in leaves if x.path in alone and x.data is not None)
    text = with_unaliased(with_one_frame(str(module)), entry, pointers)
    effects, accesses, elements = analyse(text, entry, leaves, externals, bool(captured))
    if declared is not None:
        effects = declared.applied(effects, leaves)
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
        elements=elements,
        unaliased=pointers,
        linked=tuple(_describe(item) for item in linked),
        captured=captured,
        fastmath=bool(options.get("fastmath")),
        cooperative=library.use_cooperative,
        dispatcher=dispatcher,
    )


def _lower(dispatcher: CUDADispatcher, argtypes: tuple[Any, ...]) -> tuple[Any, str]:
    if driver_available():
        # Eager launches and replays then share the front end; each links what it launches.
        with _front_end(), _unbound():
            kernel = dispatcher.compile(argtypes)
        if kernel.shared_memory_carveout is not None or not _can_be_copied(dispatcher, kernel):
            kernel.bind()
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


@contextlib.contextmanager
def _unbound() -> Iterator[None]:
    """Kernels that this thread compiles are linked by their first eager launch, if one comes."""
    original, mine = _Kernel.bind, threading.get_ident()

    def bind(kernel: Any) -> None:
        if threading.get_ident() != mine:
            original(kernel)

    _Kernel.bind = bind
    try:
        yield
    finally:
        _Kernel.bind = original


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


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel in a CUDA context.

    Parameters
    ----------
    kernel : cuda.core.Kernel
        The kernel.
    order : tuple of int
        For each of its parameters, which one of `KernelIR` it is.
    waits : bool
        Whether it may be launched while those that it depends on still run.
    """

    kernel: Any
    order: tuple[int, ...]
    waits: bool


def load(kernel: KernelIR, loaded: frozenset[int] = frozenset()) -> LoadedKernel:
    """The kernel in the current context.

    Parameters
    ----------
    kernel : KernelIR
        The kernel.
    loaded : frozenset of int
        Parameters that it loads from memory (see `parameters.indirect`).

    Returns
    -------
    LoadedKernel

    Raises
    ------
    KernelCompileError
        If it can't be linked.
    UnsupportedKernelError
        If it can't load its parameters.
    """
    with _lock:
        known = _kept_for(kernel.dispatcher, "loaded")
        key = (kernel.argtypes, kernel.unaliased, loaded)
        found = known.get(key)
        if found is None:
            compiled = kernel.dispatcher.compile(kernel.argtypes)
            made = _indirect(compiled, kernel, loaded) if loaded else _ordered(compiled, kernel)
            found = known[key] = made
    compiled, order, waits = found
    try:
        compiled.bind()
    except Exception as error:
        raise KernelCompileError(f"Numba can't link kernel {kernel.name}:\n{error}") from error
    return LoadedKernel(compiled._codelibrary.get_cufunc().kernel, order, waits)


def _ordered(compiled: Any, kernel: KernelIR) -> tuple[Any, tuple[int, ...], bool]:
    """A compiled kernel with its parameters in an order of ours; or itself, in Numba's."""
    order, waits = moving_first(kernel), _can_wait(kernel)

    def change(text: str) -> str | None:
        text = with_unaliased(text, kernel.entry, kernel.unaliased)
        changed = reordered(text, kernel.entry, order)
        return waiting(changed, kernel.entry) if changed and waits else changed

    if _can_be_copied(kernel.dispatcher, compiled):
        changed = _rewritten(compiled, change)
        if changed is not None:
            return changed, order, waits
    return compiled, tuple(range(len(order))), False


def _can_wait(kernel: KernelIR) -> bool:
    """Whether kernels that are launched before others have ended can wait for those here."""
    from numba import cuda

    return bool(cuda.get_current_device().compute_capability >= (9, 0)) and not kernel.cooperative


def _indirect(
    compiled: Any, kernel: KernelIR, loaded: frozenset[int]
) -> tuple[Any, tuple[int, ...], bool]:
    """A compiled kernel that loads parameters from memory."""
    changed, waits = None, _can_wait(kernel)

    def change(text: str) -> str | None:
        text = with_unaliased(text, kernel.entry, kernel.unaliased - loaded)
        changed = indirect(text, kernel.entry, loaded)
        return waiting(changed, kernel.entry) if changed and waits else changed

    if not compiled._codelibrary._setup_functions:
        changed = _rewritten(compiled, change)
    if changed is None:
        raise UnsupportedKernelError(
            f"kernel {kernel.name} can't be in a loop or branch that a GPU decides: it comes from "
            "a cache on disk, or links code with setup functions; compile it without cache=True"
        )
    pointers = {leaf.data for leaf in kernel.leaves}
    count = sum(leaf.count for leaf in kernel.leaves) + len(loaded & pointers)
    return changed, tuple(range(count)), waits


def _rewritten(compiled: Any, change: Callable[[str], str | None]) -> Any:
    """A copy of a compiled kernel with the module that holds it changed; None if that failed."""
    library = compiled._codelibrary
    texts = [change(text) for text in library.llvm_strs]
    if sum(text is not None for text in texts) != 1:
        return None
    pairs = zip(texts, library.llvm_strs, strict=True)
    changes: dict[str, Any] = {name: {} for name in _MADE_OF_IR}
    changes["_llvm_strs"] = [mine or other for mine, other in pairs]
    return _copy_of(compiled, _codelibrary=_copy_of(library, **changes))


def device_runtime_library() -> str:
    """Path of the library with which kernels decide what a graph does next.

    Raises
    ------
    DeviceError
        If it isn't there.
    """
    from numba.cuda.cudadrv.libs import get_cudalib

    path = str(get_cudalib("cudadevrt", static=True))
    if not os.path.isfile(path):
        raise DeviceError(
            "loops and branches on a GPU need CUDA's device runtime, libcudadevrt.a, and it isn't "
            "found; install the CUDA toolkit, or numba-cuda[cu13]"
        )
    return path


def _can_be_copied(dispatcher: CUDADispatcher, compiled: Any) -> bool:
    """Whether eager launches and replays can use two copies of a kernel.

    What is linked in may have state, one that is cached on disk need not be linked again.
    """
    library = compiled._codelibrary
    return (
        not library._linking_files
        and not library._setup_functions
        and isinstance(dispatcher._cache, NullCache)
    )


def _copy_of(original: Any, **changes: Any) -> Any:
    """A copy that its class's own ways of copying have no part in."""
    made = object.__new__(type(original))
    vars(made).update(vars(original), **changes)
    return made


def _describe(item: Any) -> str:
    name = getattr(item, "name", None) or (item if isinstance(item, str) else type(item).__name__)
    return os.path.basename(str(name))
