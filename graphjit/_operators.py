"""What arrays don't do: operators and reductions, each refused with what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

_OPERATORS = ("add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or").split()
_OTHERS = "lt le gt ge ne neg pos abs invert".split()
# Names that users of NumPy, CuPy and PyTorch look for.
_METHODS = frozenset(
    "all any argmax argmin clip cpu cumsum dot fill get max mean min numpy prod sort std sum "
    "tolist var".split()
)
_REMEDY = (
    "write a kernel for it, or use graphjit.kernels (map, fill, reduce_sum, reduce_max, dot, "
    "transpose)"
)


class NoOperators:
    """Base of Arrays and of what stands for them while tracing."""

    __slots__ = ()

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"graphjit arrays have no {what}; {_REMEDY}")

    def __eq__(self, other: object) -> bool:
        if other is None or self is other:
            return other is not None
        self._refuse("operator ==")

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __contains__(self, item: object) -> bool:
        self._refuse("operator in")

    def __getattr__(self, name: str) -> Any:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(f"{message}; {_REMEDY}" if name in _METHODS else message)


def _refused(name: str) -> Any:
    def method(self: NoOperators, *others: Any) -> NoReturn:
        self._refuse(f"operator {name}")

    return method


for _name in _OPERATORS:
    for _prefix in ("", "r", "i"):
        if _prefix + _name != "idivmod":
            setattr(NoOperators, f"__{_prefix}{_name}__", _refused(_name))
for _name in _OTHERS:
    setattr(NoOperators, f"__{_name}__", _refused(_name))
