"""`functools.cached_property`, without the lock that Python 3.11 has in it."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 12):
    from functools import cached_property
else:
    from collections.abc import Callable
    from typing import Any, Generic, TypeVar, overload

    _T = TypeVar("_T")

    class cached_property(Generic[_T]):
        """A property that is computed once, or by threads that meet, and then an attribute.

        Python 3.11's holds a lock meanwhile; a fork leaves a child the lock of another thread for
        ever.

        Parameters
        ----------
        function : callable
            What computes it from the instance.
        """

        def __init__(self, function: Callable[[Any], _T]) -> None:
            self._function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        @overload
        def __get__(self, instance: None, owner: type | None = None) -> cached_property[_T]: ...

        @overload
        def __get__(self, instance: object, owner: type | None = None) -> _T: ...

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._function(instance)
            return value


__all__ = ["cached_property"]
