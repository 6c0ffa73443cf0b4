"""The backends, each imported when it is first asked for."""

from __future__ import annotations

import functools
import importlib

from graphjit._errors import DeviceError
from graphjit.backends.base import Backend
from graphjit.backends.opencl import name_cpu_runtime

# Whoever imports dpnp next finds the devices that graphjit finds.
name_cpu_runtime()

NAMES = ("cpu", "cuda", "sycl")


@functools.cache
def get(name: str) -> Backend:
    """The backend of that name.

    Parameters
    ----------
    name : {"cpu", "cuda", "sycl"}
        Which one.

    Returns
    -------
    Backend

    Raises
    ------
    DeviceError
        If there is no such backend.
    """
    if name not in NAMES:
        raise DeviceError(f"no backend {name!r}; there are {', '.join(map(repr, NAMES))}")
    backend: Backend = importlib.import_module(f"graphjit.backends.{name}").BACKEND
    return backend
