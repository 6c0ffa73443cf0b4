"""A process that turns LLVM IR into SPIR-V, one request in a process of its own.

LLVM's SPIR-V target keeps what it emitted and mixes it into later modules, and ends its process on
what it can't select. So it runs in a child of a child, which has emitted nothing before. Run as a
script, without graphjit: what it needs is imported once.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<q")


def emit(text: str, triple: str) -> bytes:
    """The SPIR-V module of LLVM IR."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=2)
    code: bytes = machine.emit_object(llvm.parse_assembly(text))
    return code


def read(stream: BinaryIO) -> bytes | None:
    """One message; None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return stream.read(_LENGTH.unpack(head)[0])


def write(stream: BinaryIO, message: bytes) -> None:
    """Send one message."""
    stream.write(_LENGTH.pack(len(message)) + message)
    stream.flush()


def _in_child(text: str, triple: str) -> tuple[bytes, str]:
    """What `emit` returns, and what it complains of where it ends its process."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
        child = os.fork()
        if child == 0:
            try:
                os.dup2(complaints.fileno(), 2)
                out.write(emit(text, triple))
                out.flush()
                os._exit(0)
            except BaseException as error:
                os.write(2, str(error).encode())
                os._exit(1)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        complaints.seek(0)
        if status == 0:
            return out.read(), ""
        return b"", complaints.read().decode(errors="replace") or f"it ended with status {status}"


def main(requests: Any, answers: Any) -> None:
    """Answer requests until there are no more."""
    if hasattr(os, "fork"):
        import llvmlite.binding  # noqa: F401 - for all children
    while True:
        triple, text = read(requests), read(requests)
        if triple is None or text is None:
            return
        if hasattr(os, "fork"):
            code, complaint = _in_child(text.decode(), triple.decode())
        else:
            code, complaint = emit(text.decode(), triple.decode()), ""
        write(answers, complaint.encode())
        write(answers, code)
        if not hasattr(os, "fork"):
            return


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
