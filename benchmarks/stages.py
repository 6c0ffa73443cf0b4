"""Where the time of a call goes: `python -m benchmarks.dispatch --profile`.

The parts are measured as Python does them. Where the call path is compiled (see `setup.py`) they
take more by themselves than the whole call.

The only benchmark that reaches into graphjit: what it takes from there is in `native_replay` and
`stages_of`. A change of the call path changes these two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import graphjit as gj

from .calls import Call, added, added_scaled
from .report import interleaved


def native_replay(function: Callable[..., Any], *args: Any) -> Call:
    """The native program of a graphed function on the CPU, replayed with nothing bound anew."""
    compiled = gj.graphed(function).lower(*args).compile()
    kept = compiled(*args)  # its result stays bound, so it must stay alive
    program = compiled._executable(())._program
    replay, address = program._native, program._address

    def call(kept: Any = (compiled, args, kept)) -> None:
        replay(address, None)

    return call


def stages_of(function: Any, *args: Any) -> dict[str, Call]:
    """The stages of a call by position, each by itself, in the order in which they run."""
    from graphjit._array import Array
    from graphjit._guards import changed
    from graphjit.schedule.scalar_words import ScalarWords

    function(*args)
    compiled = function.lower(*args).compile()
    binding, executable = compiled.binding, compiled._executable(())
    guards = compiled.traced.guards
    backend, device = binding.backend, binding.device
    schedule = compiled.lowered.schedule
    graph = schedule.graph
    sizes = [graph.buffers[buffer].nbytes for buffer in graph.results]
    scalars = [arg for arg in args if not isinstance(arg, Array)]
    made = [backend.allocate(device, nbytes, None) for nbytes in sizes]
    pointers = [args[item.leaf]._start + item.low for item in binding.inputs]
    pointers += [memory.address for memory in made]
    aval = args[0]._aval

    def bind() -> list[int]:
        found = []
        for item in binding.inputs:
            array = args[item.leaf]
            if array._memory.stream is not None:
                array._memory.used_on(None, False)
            found.append(array._start + item.low)
        return found

    found: dict[str, Call] = {
        "the whole call": lambda: function(*args),
        "  key and lookup": lambda: function._known.get(
            tuple([a._aval if isinstance(a, Array) else type(a) for a in args])
        ),
        "  guards": lambda: changed(guards),
        "  arguments to pointers": bind,
        "  memory of the results": lambda: [backend.allocate(device, n, None) for n in sizes],
        "  executable": lambda: executable.run(pointers, scalars, None),
        "  results": lambda: [Array(memory, memory.address, aval) for memory in made],
    }
    if device.backend == "cuda":
        words = ScalarWords(schedule.scalars).of(scalars) if schedule.scalars else ()
        launch = executable._instances.launch
        found["    of which binding and launch"] = lambda: launch(pointers, words, None)
    else:
        program = executable._program
        found["    of which the native replay"] = lambda: program._native(program._address, None)
    return found


def show(backend: str, size: int, calls: int) -> None:
    """Print what each stage takes on a backend.

    Parameters
    ----------
    backend : str
        "cpu" or "cuda".
    size : int
        Elements of the arrays.
    calls : int
        Calls in a sample.
    """
    with gj.use_backend(backend):
        x, y = gj.zeros(size, dtype="float32"), gj.zeros(size, dtype="float32")
        for function, args in ((added, (x, y)), (added_scaled, (x, y, 0.5))):
            times = interleaved(
                {**stages_of(function, *args), "nothing": lambda: None},
                rounds=15,
                calls=calls,
                sync=gj.synchronize,
                sync_inside=False,
            )
            # What it takes to call each of these callables is no part of a stage.
            nothing = times.pop("nothing")
            print(f"\n{backend}, {function.__name__} of {len(args)} arguments, float32[{size}]")
            print("microseconds: median (least); the parts are done by Python, each by itself")
            for name, time in times.items():
                spent = (time - nothing) * 1e6
                print(f"{name:40}{spent.median:8.2f} ({spent.least:.2f})")
