"""dpctl: devices, their queues, and kernels made of SPIR-V."""

from __future__ import annotations

import functools
import importlib.util
import threading
import weakref
from collections.abc import Callable
from typing import Any

from graphjit._errors import DeviceError, UnsupportedKernelError
from graphjit.backends.opencl import name_cpu_runtime
from graphjit.backends.sycl.codegen import SPIRVKernel

_lock = threading.Lock()
_queues: dict[int, Any] = {}
# By SPIR-V kernel: the kernel of each device.
_kernels: weakref.WeakKeyDictionary[SPIRVKernel, dict[int, Any]] = weakref.WeakKeyDictionary()


def is_installed() -> bool:
    """Whether dpctl is there."""
    return importlib.util.find_spec("dpctl") is not None


@functools.cache
def dpctl() -> Any:
    """The module dpctl, able to find the CPU runtime that comes as a wheel.

    Raises
    ------
    DeviceError
        If it isn't installed, or can't be imported.
    """
    if not is_installed():
        raise DeviceError(
            "the sycl backend needs dpctl, which isn't installed; pip install 'graphjit[sycl]'"
        )
    name_cpu_runtime()
    try:
        import dpctl
        import dpctl.program
        import dpctl.utils
    except (ImportError, OSError) as error:
        raise DeviceError(f"dpctl is installed, and can't be imported: {error}") from error
    return dpctl


@functools.cache
def devices() -> tuple[Any, ...]:
    """Dpctl's devices; none where dpctl can't be imported."""
    if not is_installed():
        return ()
    try:
        return tuple(dpctl().get_devices())
    except DeviceError:
        return ()


@functools.cache
def dpnp_queue(index: int) -> Any:
    """The queue that dpnp uses on a device unless told otherwise."""
    dpctl()
    from dpctl._sycl_queue_manager import get_device_cached_queue

    return get_device_cached_queue(devices()[index])


def queue(index: int) -> Any:
    """The queue that graphs are submitted to unless told otherwise.

    Not dpnp's, which runs out of order: each submission would need a barrier, and where several
    threads submit, Intel's runtime for CPUs now and then forgets one for good.
    """
    found = _queues.get(index)
    if found is None:
        theirs = dpnp_queue(index)
        made = dpctl().SyclQueue(theirs.sycl_context, theirs.sycl_device, property="in_order")
        # Not functools.cache: of two threads' queues only one may ever be used.
        found = _queues.setdefault(index, made)
    return found


@functools.cache
def address(index: int) -> int:
    """The address of a device's queue."""
    return int(queue(index).addressof_ref())


def load(kernel: SPIRVKernel, index: int, name: str, held: Callable[[], Any]) -> Any:
    """A kernel on a device; compiled there once.

    Parameters
    ----------
    kernel : SPIRVKernel
        The kernel.
    index : int
        The device's number.
    name : str
        The Python function's name, for messages.
    held : callable
        Gives a context in which nothing runs: Intel's compiler for CPUs isn't safe otherwise.

    Returns
    -------
    dpctl.program.SyclKernel

    Raises
    ------
    UnsupportedKernelError
        If the device lacks what it needs, or can't compile it.
    """
    with _lock:
        known = _kernels.setdefault(kernel, {})
        found = known.get(index)
        if found is None:
            with held():
                found = known[index] = _load(kernel, index, name)
        return found


def _load(kernel: SPIRVKernel, index: int, name: str) -> Any:
    device = devices()[index]
    for aspect in sorted(kernel.aspects):
        if not getattr(device, f"has_aspect_{aspect}"):
            wide = "float16" if aspect == "fp16" else "float64"
            raise UnsupportedKernelError(
                f"kernel {name} computes in {wide}, which the device {device.name.strip()} doesn't "
                f"have (aspect {aspect}); the cpu and cuda backends do"
            )
    program = dpctl().program
    try:
        made = program.create_program_from_spirv(queue(index), kernel.code)
    except program.SyclProgramCompilationError as error:
        raise UnsupportedKernelError(
            f"{device.name.strip()} can't compile kernel {name}: {error}"
        ) from error
    return made.get_sycl_kernel(kernel.name)
