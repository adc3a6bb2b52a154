"""Graph: nodes, edges between them, and spaces for the features of a node and of an edge."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.checks import mismatch, show_value
from vecspaces.spaces.batch_values import (
    batch_length,
    batch_limits,
    batches_from_jsonable,
    batches_to_jsonable,
    contains_all,
    explain_all,
)
from vecspaces.spaces.batching import batch_space
from vecspaces.spaces.masks import choose_limit
from vecspaces.spaces.nesting import Composite, check_member, sample_member
from vecspaces.spaces.space import Space


class GraphInstance(NamedTuple):
    """A value of a Graph space.

    Attributes:
        nodes: A batch of n values of the node space, such as an array of shape `(n, ...)`.
        edges: A batch of m values of the edge space, such as an array of shape `(m, ...)`, or None.
        edge_links: The two nodes of each edge, integers of shape `(m, 2)` below n; None if and only
            if `edges` is.
    """

    nodes: Any
    edges: Any | None
    edge_links: npt.NDArray[Any] | None


class Graph(Composite[GraphInstance]):
    """Graphs of any size, with a value of one space per node and of another per edge.

    Edges are directed; two nodes may have several edges, and an edge may link a node with itself.

    Args:
        node_space: The space of a node's features.
        edge_space: The space of an edge's features, or None for graphs without edges.
        seed: A seed (see `seed`), or a generator for the number and the links of edges alone.

    Attributes:
        node_space: The argument.
        edge_space: The argument.
        batch_node_space: The space of a batch of one node.
        batch_edge_space: The space of a batch of one edge, or None.

    Raises:
        TypeError: `node_space` is not a Space, or `edge_space` is neither a Space nor None.

    Example:
        >>> from vecspaces.spaces import Box, Discrete
        >>> space = Graph(Box(-100, 100, shape=(3,)), Discrete(3), seed=123)
        >>> space.sample(num_nodes=2, num_edges=1)
        GraphInstance(nodes=array([[-50.143734, -89.37025 , -42.120003],
               [ 31.519672, -96.5817  ,  85.16244 ]], dtype=float32), edges=array([1]),
               edge_links=array([[0, 1]], dtype=int32))
    """

    _has_fixed_size = False

    def __init__(
        self,
        node_space: Space[Any],
        edge_space: Space[Any] | None,
        seed: int | tuple[Any, ...] | np.random.Generator | None = None,
    ) -> None:
        check_member(node_space, "node_space")
        if edge_space is not None:
            check_member(edge_space, "edge_space")
        self.node_space = node_space
        self.edge_space = edge_space
        self.batch_node_space = batch_space(node_space, 1)
        self.batch_edge_space = None if edge_space is None else batch_space(edge_space, 1)
        super().__init__(None, None, seed)

    def _members(self) -> dict[str, Space[Any]]:
        members = {"node_space": self.node_space}
        return members if self.edge_space is None else {**members, "edge_space": self.edge_space}

    def _name_seeds(self) -> str:
        edges = "" if self.edge_space is None else ", and of its edges"
        return f"of the graph and of its nodes{edges}"

    def sample(
        self,
        mask: tuple[Any, Any] | None = None,
        probability: tuple[Any, Any] | None = None,
        num_nodes: int = 10,
        num_edges: int | None = None,
    ) -> GraphInstance:
        """Draw a random graph.

        Args:
            mask: A pair of masks, or None, for the nodes and for the edges. Each is the mask of a
                batch of all nodes or edges (for a Discrete, a tuple of masks); if `num_edges` is
                None, the mask for edges is that of one edge, and applies to all.
            probability: A pair of probabilities in the same form.
            num_nodes: Number of nodes, at least 1.
            num_edges: Number of edges. None: a random number below n * (n - 1) for n nodes.

        Returns:
            The graph. If it has no edges, `edges` and `edge_links` are None.

        Raises:
            AssertionError: `num_nodes` or `num_edges` is too small.
            TypeError, ValueError: `mask` or `probability` is not a pair, or both are passed.
        """
        if not num_nodes > 0:
            raise AssertionError(f"num_nodes: expected at least 1 node, found {num_nodes}")
        word, limits = choose_limit(mask, probability)
        try:
            node_limit, edge_limit = (None, None) if limits is None else limits
        except (TypeError, ValueError) as error:
            expected = "a pair, for nodes and for edges"
            raise type(error)(mismatch(word, expected, show_value(limits))) from None
        if num_edges is None:
            num_edges = 0
            if num_nodes > 1:
                num_edges = int(self.np_random.integers(num_nodes * (num_nodes - 1)))
            if self.edge_space is not None:
                edge_limit = batch_limits(self.edge_space, edge_limit, num_edges)
        elif num_edges < 0:
            raise AssertionError(f"num_edges: expected at least 0 edges, found {num_edges}")
        elif self.edge_space is None:
            warnings.warn(
                f"num_edges: found {num_edges}, but a Graph whose edge_space is None has no edges",
                UserWarning,
                stacklevel=2,
            )
        nodes = _sample_batch(self.node_space, num_nodes, word, node_limit, 0)
        if self.edge_space is None or num_edges == 0:
            return GraphInstance(nodes, None, None)
        edges = _sample_batch(self.edge_space, num_edges, word, edge_limit, 1)
        links = self.np_random.integers(0, num_nodes, size=(num_edges, 2), dtype=np.int32)
        return GraphInstance(nodes, edges, links)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a GraphInstance of values of the spaces, with valid links."""
        try:
            if not isinstance(x, GraphInstance) or x.nodes is None:
                return False
            nodes, edges, links = x
            if not contains_all(self.node_space, nodes):
                return False
            if edges is None or links is None:
                return edges is None and links is None
            return (
                self.edge_space is not None
                and contains_all(self.edge_space, edges)
                and self._explain_links(nodes, edges, links, "") is None
            )
        except Exception:  # whatever x contains, it is not a graph
            return False

    def _explain_links(self, nodes: Any, edges: Any, links: Any, name: str) -> str | None:
        if not isinstance(links, np.ndarray) or links.dtype.kind not in "iu":
            return mismatch(name, "an array of integers", show_value(links))
        assert self.edge_space is not None
        num_edges = batch_length(self.edge_space, edges)
        if links.ndim != 2 or links.shape[1] != 2 or num_edges not in (None, len(links)):
            rows = "m" if num_edges is None else num_edges
            return mismatch(name, f"shape ({rows}, 2), a row for each edge", f"shape {links.shape}")
        num_nodes = batch_length(self.node_space, nodes)
        if (links < 0).any() or (num_nodes is not None and (links >= num_nodes).any()):
            last = "" if num_nodes is None else f" to {num_nodes - 1}"
            return mismatch(
                name, f"indices of nodes, from 0{last}", f"{links.min()} to {links.max()}"
            )
        return None

    def _explain(self, x: Any, name: str) -> str:
        if not isinstance(x, GraphInstance):
            return mismatch(name, "a GraphInstance", show_value(x))
        nodes, edges, links = x
        answer = explain_all(self.node_space, nodes, f"{name}.nodes")
        if answer is None and (edges is None) != (links is None):
            answer = mismatch(
                name,
                "edges and edge_links, or neither",
                "edges alone" if links is None else "edge_links alone",
            )
        elif answer is None and edges is not None:
            if self.edge_space is None:
                answer = mismatch(
                    f"{name}.edges", "None, for edge_space is None", show_value(edges)
                )
            else:
                answer = explain_all(self.edge_space, edges, f"{name}.edges")
                answer = answer or self._explain_links(nodes, edges, links, f"{name}.edge_links")
        return answer or super()._explain(x, name)

    def to_jsonable(self, sample_n: Iterable[GraphInstance]) -> list[dict[str, Any]]:
        """Convert graphs into dicts with `nodes` and, if there are any, `edges` and their links."""
        graphs = []
        for sample in sample_n:
            graph = {"nodes": batches_to_jsonable(self.node_space, [sample.nodes])}
            if self.edge_space is not None and sample.edge_links is not None:
                graph["edges"] = batches_to_jsonable(self.edge_space, [sample.edges])
                graph["edge_links"] = sample.edge_links.tolist()
            graphs.append(graph)
        return graphs

    def from_jsonable(self, sample_n: Iterable[dict[str, Any]]) -> list[GraphInstance]:
        """Convert the dicts that `to_jsonable` returned back into graphs; links become int32."""
        graphs = []
        for graph in sample_n:
            nodes = batches_from_jsonable(self.node_space, graph["nodes"])[0]
            edges = links = None
            if "edges" in graph:
                assert self.edge_space is not None
                edges = batches_from_jsonable(self.edge_space, graph["edges"])[0]
                links = np.asarray(graph["edge_links"], dtype=np.int32).reshape(-1, 2)
            graphs.append(GraphInstance(nodes, edges, links))
        return graphs

    def __repr__(self) -> str:
        return f"Graph({self.node_space}, {self.edge_space})"


def _sample_batch(space: Space[Any], n: int, word: str, limit: Any, key: int) -> Any:
    """Sample `n` values at once, and advance the generator of `space`."""
    batch = sample_member(batch_space(space, n), word, limit, key)
    # The batch draws from copies of the generators, so the original advances by one number, as in
    # Gymnasium. A composite space draws with its members' generators, which do not advance, so each
    # of its batches equals the one before.
    space.np_random.random()
    return batch
