"""SPIR-V from LLVM IR, by the process of `emitter`."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from graphjit._locks import make_lock
from graphjit.backends.sycl.emitter import read, write

_lock = make_lock()
_process: Any = None


class EmissionError(Exception):
    """LLVM's SPIR-V target can't select a module."""


def spirv(text: str, triple: str) -> bytes:
    """The SPIR-V module of LLVM IR.

    Parameters
    ----------
    text : str
        The IR.
    triple : str
        The target.

    Returns
    -------
    bytes

    Raises
    ------
    EmissionError
        If LLVM's target ends its process, with what it says.
    """
    global _process
    with _lock:
        if _process is None or _process.poll() is not None:
            _stop()
            _process = _start()
        try:
            write(_process.stdin, triple.encode())
            write(_process.stdin, text.encode())
            complaint, code = read(_process.stdout), read(_process.stdout)
        except BaseException:
            # An answer that nobody waits for would be taken for that to the next request.
            _stop()
            raise
    if complaint is None or code is None:
        raise EmissionError("the process that emits SPIR-V ended")
    if complaint:
        raise EmissionError(complaint.decode().strip().splitlines()[0])
    return code


def _start() -> Any:
    script = Path(__file__).with_name("emitter.py")
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the program
    )


def _stop() -> None:
    """End the process, if it is there."""
    global _process
    process, _process = _process, None
    if process is not None:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            stream.close()


def _forget() -> None:
    """In a forked child: the process is its parent's."""
    global _process
    _process = None


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
