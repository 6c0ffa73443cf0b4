"""make_graph: a function's Graph, with nothing compiled or run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from graphjit._graph import Graph
from graphjit._graphed import Graphed


def make_graph(function: Callable[..., Any]) -> Callable[..., Graph]:
    """Make a function that traces another and returns its Graph.

    Parameters
    ----------
    function : callable
        As for `graphed`; a graphed function is taken as it is.

    Returns
    -------
    callable
        Takes the function's arguments; runs nothing and needs no device.

    Examples
    --------
    >>> import graphjit as gj
    >>> graph = gj.make_graph(lambda x: x[::2])(gj.zeros(4))
    >>> graph.outputs[0].view.layout.shape
    (2,)
    """
    wrapped = function if isinstance(function, Graphed) else Graphed(function)

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Graph:
        return wrapped.trace(*args, **kwargs).graph

    return traced
