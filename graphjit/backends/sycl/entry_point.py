"""The kernel that devices run: it takes numbers, and loads what changes from call to call."""

from __future__ import annotations

from graphjit.backends.sycl.address_spaces import BODY

_SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "half": 2, "float": 4, "double": 8}


def entry_point(
    name: str, types: list[str], loaded: frozenset[int], extra: dict[str, str]
) -> tuple[str, tuple[int, ...]]:
    """The kernel that devices run, and the sizes of its parameters."""
    parameters, lines, passed, sizes = [], [], [], []
    for index, type_ in enumerate(types):
        is_pointer = type_.startswith("ptr")
        if index in loaded:
            parameters.append(f"i64 %at{index}")
            lines.append(f"%from{index} = inttoptr i64 %at{index} to ptr addrspace(1)")
            value = "i64" if is_pointer else type_
            lines.append(f"%v{index} = load {value}, ptr addrspace(1) %from{index}")
            sizes.append(8)
            if is_pointer:
                parameters.append(f"i64 %add{index}")
                sizes.append(8)
                lines.append(f"%w{index} = add i64 %v{index}, %add{index}")
        else:
            given = "i64" if is_pointer else type_
            parameters.append(f"{given} %{'w' if is_pointer else 'v'}{index}")
            sizes.append(_SIZES[given])
        if is_pointer:
            lines.append(f"%g{index} = inttoptr i64 %w{index} to ptr addrspace(1)")
            lines.append(
                f"%p{index} = addrspacecast ptr addrspace(1) %g{index} to ptr addrspace(4)"
            )
            passed.append(f"ptr addrspace(4) %p{index}")
        else:
            passed.append(f"{type_} %v{index}")
    for given, type_ in extra.items():
        if type_ == "ptr":
            parameters.append(f"ptr addrspace(3) %{given}.local")
            lines.append(
                f"%{given} = addrspacecast ptr addrspace(3) %{given}.local to ptr addrspace(4)"
            )
            passed.append(f"ptr addrspace(4) %{given}")
        else:
            parameters.append(f"{type_} %{given}")
            passed.append(f"{type_} %{given}")
    body = "\n".join(f"  {line}" for line in lines)
    text = (
        f"\ndefine spir_kernel void @{name}({', '.join(parameters)}) {{\n{body}\n"
        f"  call void @{BODY}({', '.join(passed)})\n  ret void\n}}\n"
    )
    return text, tuple(sizes)
