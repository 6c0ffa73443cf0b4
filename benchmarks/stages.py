"""Where the time of a call goes: `python -m benchmarks.dispatch --profile`.

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
    from graphjit import _scalars
    from graphjit._context import current_stream
    from graphjit._guards import changed

    function(*args), function(*args)
    array = type(gj.empty(1))
    key = tuple([a._aval if type(a) is array else type(a) for a in args])
    compiled = function._plain[key]
    direct, binding = compiled.direct, compiled._binding
    executable = compiled._executable(())
    stream = current_stream()
    inputs, allocate, device = direct._inputs, direct._allocate, direct._device
    pointers = [args[leaf]._address + low for leaf, low in inputs] + direct._fixed
    made = [allocate(device, nbytes, stream) for nbytes in direct._result_bytes]
    pointers += [memory.address for memory in made]
    scalar_values = [args[leaf] for leaf in direct._scalar_inputs]
    scalars = _scalars.evaluate(direct._scalars, scalar_values)

    def bind() -> Any:
        bound = [args[leaf]._address + low for leaf, low in inputs] + direct._fixed
        if direct._has_streams:
            binding.note_streams(args, stream)
        return binding.overlaps_of(bound) if direct._watched else ()

    found: dict[str, Call] = {
        "key and lookup": lambda: function._plain.get(
            tuple([a._aval if type(a) is array else type(a) for a in args])
        ),
        "guards": lambda: changed(compiled.traced.guards),
        "arguments to pointers": bind,
        "scalars": lambda: _scalars.evaluate(direct._scalars, scalar_values),
        "memory of the results": lambda: [
            allocate(device, nbytes, stream) for nbytes in direct._result_bytes
        ],
        "executable": lambda: executable.run(pointers, scalars, stream),
        "results": lambda: [result(args, made, scalars) for result in direct._results],
    }
    if device.backend == "cuda":
        from cuda.bindings import driver

        executable.run(pointers, scalars, stream)
        found["  of which the launch"] = lambda: driver.cuGraphLaunch(executable._exec, 0)
    else:
        program = executable._program
        found["  of which the native replay"] = lambda: program._native(program._address, None)
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
            stages = stages_of(function, *args)
            whole = f"{function.__name__}({', '.join('xyk'[: len(args)])})"
            times = interleaved(
                {**stages, whole: lambda f=function, a=args: f(*a), "nothing": lambda: None},
                rounds=15,
                calls=calls,
                sync=gj.synchronize,
                sync_inside=False,
            )
            # What it takes to call each of these callables is no part of a stage.
            nothing = times.pop("nothing")
            spent = {name: (time - nothing) * 1e6 for name, time in times.items()}
            print(f"\n{backend}, float32[{size}], microseconds: median (least)")
            for name, time in spent.items():
                print(f"{name:40}{time.median:8.2f} ({time.least:.2f})")
            parts = [t for n, t in spent.items() if n != whole and not n.startswith(" ")]
            rest = spent[whole].median - sum(time.median for time in parts)
            print(f"{'what is between the stages':40}{rest:8.2f}")
