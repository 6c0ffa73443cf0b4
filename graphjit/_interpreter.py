"""What the interpreter knows: of threads, references and functions.

`_interpreter.pyx` has the same for compiled modules, which ask at every call.
"""

from __future__ import annotations

import sys
import threading
from types import FunctionType
from typing import Any


def thread_ident() -> int:
    """The number of this thread."""
    return threading.get_ident()


def reference_count(value: object) -> int:
    """How many references there are to an object, those of the asking included."""
    return sys.getrefcount(value)


def function_attribute(function: FunctionType, name: str) -> Any:
    """`__code__`, `__defaults__` or `__kwdefaults__` of a Python function.

    To read them as attributes is audited: where a library listens to audit events, as some that
    come with JAX do, one look takes as long as half a call.
    """
    return getattr(function, name)
