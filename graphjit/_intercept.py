"""The one hook in numba.cuda's launch path and array constructors.

Installed when graphjit is imported. Outside a trace each hook hands on to Numba, except that a
kernel given CPU Arrays runs on the CPU backend.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numba import cuda
from numba.cuda import api

from graphjit._array import Array
from graphjit._errors import TraceError
from graphjit._layout import Layout, contiguous
from graphjit._location import user_location
from graphjit._refusals import concretization_error
from graphjit._trace import current, to_device
from graphjit._tracers import ArrayTracer, Tracer
from graphjit.kernel import frontend

# forall() without a block size asks the driver for occupancy; a trace has no driver to ask. With
# 256 threads every kernel fits: 255 registers a thread, the most there are, are 65280 of 65536.
_FORALL_BLOCK = 256


class TracedStream:
    """What `cuda.stream()` gives while tracing; the graph's own hazards give the order."""

    handle = 0

    def synchronize(self) -> None:
        """Nothing to wait for while tracing."""

    def auto_synchronize(self) -> TracedStream:
        """Give this stream, as a context manager."""
        return self

    def __enter__(self) -> TracedStream:
        return self

    def __exit__(self, *exception: object) -> None:
        return None


def install() -> None:
    """Put the hooks in place; a second call does nothing."""
    hooks = frontend.LaunchHooks()
    if getattr(hooks.dispatcher.call, "_graphjit", False):
        return
    _wrap(hooks.dispatcher, "call", _call)
    _wrap(hooks.dispatcher, "configure", _configure)
    _wrap(hooks.forall, "__call__", _forall)
    _wrap(hooks.ufunc, "__call__", _ufunc)
    _wrap(hooks.gufunc, "__call__", _ufunc)
    _wrap(hooks.device_array, "__init__", _device_array_made)
    for name, replacement in _API.items():
        for module in (cuda, api):
            if hasattr(module, name):
                _wrap(module, name, replacement)


def _wrap(owner: Any, name: str, hook: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    hooked._graphjit = True  # type: ignore[attr-defined]
    setattr(owner, name, hooked)


def _call(original: Any, dispatcher: Any, args: tuple[Any, ...], launch_config: Any) -> Any:
    trace = current()
    if trace is not None:
        trace.launch(
            dispatcher,
            args,
            launch_config.griddim,
            launch_config.blockdim,
            launch_config.sharedmem,
        )
        return None
    device = _device_of_ours(args)
    if device is None:
        if isinstance(launch_config, Configuration):
            launch_config = _numba_configuration(launch_config)  # raises what Numba raises
        if any(isinstance(arg, Array) for arg in args):
            from graphjit._eager import for_numba

            args = for_numba(args, launch_config.stream)
        return original(dispatcher, args, launch_config)
    from graphjit._eager import launch

    return launch(device, dispatcher, args, launch_config)


def _numba_configuration(mine: Configuration) -> Any:
    frontend.require_driver(mine.dispatcher.py_func.__name__)
    return mine.dispatcher.configure(mine.griddim, mine.blockdim, 0, mine.sharedmem)


def _device_of_ours(args: tuple[Any, ...]) -> Any:
    """The device of an Array among the arguments that Numba can't launch on; no leaked tracers."""
    for arg in args:
        if isinstance(arg, Array):
            if arg._device.backend != "cuda":
                return arg._device
        elif isinstance(arg, Tracer):
            raise arg._elsewhere()
        elif isinstance(arg, tuple):
            found = _device_of_ours(arg)
            if found is not None:
                return found
    return None


class Configuration:
    """A launch configuration that needs no driver, where Numba's own would."""

    stream = 0

    def __init__(self, dispatcher: Any, griddim: Any, blockdim: Any, sharedmem: int) -> None:
        self.dispatcher = dispatcher
        self.griddim, self.blockdim = frontend.normalize_dimensions(griddim, blockdim)
        self.sharedmem = operator.index(sharedmem)

    def __call__(self, *args: Any) -> None:
        self.dispatcher.call(args, self)


def _configure(
    original: Any, dispatcher: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: Any = 0
) -> Any:
    if current() is None and frontend.driver_available():
        return original(dispatcher, griddim, blockdim, stream, sharedmem)
    dims = {"grid": griddim, "block": blockdim, "shared memory size": sharedmem}
    for what, value in dims.items():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, Tracer):
                raise concretization_error(f"the {what} of a launch", item, item._remedy())
    return Configuration(dispatcher, griddim, blockdim, sharedmem)


def _forall(original: Any, forall: Any, *args: Any) -> Any:
    if current() is None and _device_of_ours(args) is None:
        return original(forall, *args)
    if isinstance(forall.ntasks, Tracer):
        raise concretization_error("the size of a launch", forall.ntasks, forall.ntasks._remedy())
    if forall.ntasks == 0:
        return None
    block = forall.thread_per_block or _FORALL_BLOCK
    grid = (forall.ntasks + block - 1) // block
    return forall.dispatcher[grid, block, 0, forall.sharedmem](*args)


def _ufunc(original: Any, ufunc: Any, *args: Any, **kwargs: Any) -> Any:
    if current() is not None:
        raise TraceError(
            f'a ufunc of @vectorize(target="cuda") was called at {user_location()} while '
            f"{current().name} was traced; "  # type: ignore[union-attr]
            "only @cuda.jit kernels become part of a graph: write it as a kernel "
            "(graphjit.kernels.map makes one of a scalar function)"
        )
    return original(ufunc, *args, **kwargs)


def _device_array_made(original: Any, array: Any, *args: Any, **kwargs: Any) -> None:
    trace = current()
    if trace is not None and kwargs.get("gpu_data") is None and len(args) < 5:
        raise TraceError(
            f"a device array was made at {user_location()} while {trace.name} was traced, past "
            "graphjit's hooks; call it as cuda.device_array, or use graphjit.empty"
        )
    original(array, *args, **kwargs)


def _device_array(
    original: Any,
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
) -> Any:
    trace = current()
    if trace is None:
        return original(shape, dtype, strides, order, stream)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if strides is not None:
        return trace.empty(Layout(shape, tuple(strides), np.dtype(dtype)))
    return trace.empty(contiguous(tuple(int(n) for n in shape), dtype, order))


def _device_array_like(original: Any, ary: Any, stream: Any = 0) -> Any:
    trace = current()
    if trace is None:
        return original(ary, stream)
    order = "F" if _is_fortran(ary) else "C"
    return trace.empty(contiguous(tuple(ary.shape), ary.dtype, order))


def _is_fortran(ary: Any) -> bool:
    if isinstance(ary, (ArrayTracer, Array)):
        return ary._layout.order == "F"
    flags = getattr(ary, "flags", None)
    return bool(flags is not None and flags["F_CONTIGUOUS"] and not flags["C_CONTIGUOUS"])


def _to_device(original: Any, obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
    trace = current()
    if trace is None:
        if isinstance(obj, Tracer):
            raise obj._elsewhere()
        return original(obj, stream, copy, to)
    if to is not None:
        to[...] = obj
        return to
    return to_device(trace, obj)


def _stream(original: Any, *args: Any) -> Any:
    return original(*args) if current() is None else TracedStream()


def _synchronize(original: Any) -> Any:
    return original() if current() is None else None


def _refused(name: str) -> Callable[..., Any]:
    def hook(original: Any, *args: Any, **kwargs: Any) -> Any:
        trace = current()
        if trace is not None:
            _refuse(name, trace.name)
        return original(*args, **kwargs)

    return hook


def _refuse(name: str, traced: str) -> NoReturn:
    raise TraceError(
        f"cuda.{name}() was called at {user_location()} while {traced} was traced; a graph has no "
        "place for it: do it outside the graphed function"
    )


_API: dict[str, Callable[..., Any]] = {
    "device_array": _device_array,
    "device_array_like": _device_array_like,
    "to_device": _to_device,
    "stream": _stream,
    "default_stream": _stream,
    "legacy_default_stream": _stream,
    "per_thread_default_stream": _stream,
    "external_stream": _stream,
    "synchronize": _synchronize,
    **{
        name: _refused(name)
        for name in (
            "event",
            "event_elapsed_time",
            "managed_array",
            "mapped_array",
            "mapped_array_like",
            "pinned",
            "mapped",
            "open_ipc_array",
        )
    },
}
