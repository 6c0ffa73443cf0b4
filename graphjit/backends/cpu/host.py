"""The host as an LLVM target: modules parsed for it, optimised and loaded."""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def target_machine() -> Any:
    """A target machine for this processor; MCJIT owns it, so each engine needs one of its own."""
    _initialise()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )


@functools.cache
def _process_symbols() -> Any:
    # LLVM looks a name up in the process only after the first engine has opened it.
    machine = target_machine()
    return llvm.create_mcjit_compiler(parse("", machine), machine)


def has_symbol(name: str) -> bool:
    """Whether the process, or LLVM's own table, has a function of that name."""
    _process_symbols()
    return bool(llvm.address_of_symbol(name))


@functools.cache
def has_half() -> bool:
    """Whether float16 can be converted, by the processor or by a library in the process."""
    if llvm.get_host_cpu_features().get("f16c") or not llvm.get_process_triple().startswith("x86"):
        return True
    return has_symbol("__extendhfsf2") and has_symbol("__truncsfhf2")


def parse(text: str, machine: Any) -> Any:
    """Parse and verify LLVM text that has no target of its own."""
    header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
    module = llvm.parse_assembly(header + text)
    module.verify()
    return module


def compile_module(module: Any, machine: Any, unroll: bool = True) -> Any:
    """Optimise a module and load it; what it calls must be known to LLVM by then.

    Parameters
    ----------
    module : llvmlite.binding.ModuleRef
        The module; the engine takes it over.
    machine : llvmlite.binding.TargetMachine
        Its target machine; the engine takes it over.
    unroll : bool
        Whether loops may be unrolled, which costs most of the time for large modules.

    Returns
    -------
    llvmlite.binding.ExecutionEngine
    """
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = options.loop_unrolling = options.loop_interleaving = unroll
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
