"""Graphed methods of instances that are pytrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphjit._cache import CacheInfo
    from graphjit._stages import Lowered, Traced
    from graphjit.backends.binding_stats import BindingStats


class BoundMethod:
    """A graphed method bound to an instance that is a pytree, and so an argument like any other."""

    def __init__(self, graphed: Any, instance: Any) -> None:
        self._graphed = graphed
        self.__self__ = instance

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._graphed(self.__self__, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<bound {self._graphed!r}>"

    def trace(self, /, *args: Any, **kwargs: Any) -> Traced:
        """As `Graphed.trace`."""
        traced: Traced = self._graphed.trace(self.__self__, *args, **kwargs)
        return traced

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """As `Graphed.lower`."""
        lowered: Lowered = self._graphed.lower(self.__self__, *args, **kwargs)
        return lowered

    def cache_info(self) -> CacheInfo:
        """As `Graphed.cache_info`; the cache is that of all instances."""
        info: CacheInfo = self._graphed.cache_info()
        return info

    def cache_clear(self) -> None:
        """As `Graphed.cache_clear`; the cache is that of all instances."""
        self._graphed.cache_clear()

    def binding_stats(self) -> BindingStats:
        """As `Graphed.binding_stats`; the cache is that of all instances."""
        stats: BindingStats = self._graphed.binding_stats()
        return stats
