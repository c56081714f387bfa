"""Minimum cut of a directed network with integer capacities, by Dinic's algorithm (E. A. Dinic, 1970)."""

from __future__ import annotations

from collections import deque

UNLIMITED = 1 << 60
"""A capacity that no minimum cut of finite edges reaches."""


class Network:
    """Vertices are ints from `vertex()`. Edges are kept in pairs: edge `e` and its reverse `e ^ 1`."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = []
        self._head: list[int] = []
        self._left: list[int] = []

    def vertex(self) -> int:
        """A new vertex."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """An edge from `tail` to `head`."""
        for start, end, left in ((tail, head, capacity), (head, tail, 0)):
            self._edges[start].append(len(self._head))
            self._head.append(end)
            self._left.append(left)

    def saturate(self, source: int, sink: int) -> int:
        """Push a maximum flow and return its value."""
        total = 0
        while True:
            level = self._levels(source, sink)
            if level[sink] < 0:
                return total
            total += self._blocking_flow(source, sink, level)

    def sink_side(self, sink: int) -> list[bool]:
        """After `saturate`: per vertex, whether it still reaches the sink.

        Of all minimum cuts this is the one nearest to the sink.
        """
        reached = [False] * len(self._edges)
        reached[sink] = True
        queue = deque((sink,))
        while queue:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                tail = self._head[edge]
                if not reached[tail] and self._left[edge ^ 1] > 0:
                    reached[tail] = True
                    queue.append(tail)
        return reached

    def _levels(self, source: int, sink: int) -> list[int]:
        """Breadth-first distance from the source over edges with capacity left; -1 where it ends."""
        level = [-1] * len(self._edges)
        level[source] = 0
        queue = deque((source,))
        while queue and level[sink] < 0:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                head = self._head[edge]
                if level[head] < 0 and self._left[edge] > 0:
                    level[head] = level[vertex] + 1
                    queue.append(head)
        return level

    def _blocking_flow(self, source: int, sink: int, level: list[int]) -> int:
        """Depth-first, without recursion: graphs are thousands of vertices deep."""
        next_edge = [0] * len(self._edges)
        path: list[int] = []
        total, vertex = 0, source
        while True:
            if vertex == sink:
                total += self._push(path)
                full = next(i for i, edge in enumerate(path) if self._left[edge] == 0)
                vertex = self._head[path[full] ^ 1]
                del path[full:]
            edge = self._advance(vertex, level, next_edge)
            if edge is not None:
                path.append(edge)
                vertex = self._head[edge]
            elif path:
                vertex = self._head[path.pop() ^ 1]
                next_edge[vertex] += 1
            else:
                return total

    def _advance(self, vertex: int, level: list[int], next_edge: list[int]) -> int | None:
        edges = self._edges[vertex]
        while next_edge[vertex] < len(edges):
            edge = edges[next_edge[vertex]]
            if self._left[edge] > 0 and level[self._head[edge]] == level[vertex] + 1:
                return edge
            next_edge[vertex] += 1
        return None

    def _push(self, path: list[int]) -> int:
        amount = min(self._left[edge] for edge in path)
        for edge in path:
            self._left[edge] -= amount
            self._left[edge ^ 1] += amount
        return amount
