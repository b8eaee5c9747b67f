"""Links between nodes: first in, first out per direction, with random delays, and everything that can go wrong.

A downstream asks for a connection (`Follow`); once it stands, words pass both ways. A reset loses what is on its way
and is noticed by both sides some time later, each in its own time; a cut loses it silently.
"""

from typing import TYPE_CHECKING

from kayos.replica.events import LinkLost, LinkReady

if TYPE_CHECKING:
    from kayos.replica.events import Event
    from tests.simulation.node import Node
    from tests.simulation.world import World

FIFO_GAP = 1e-6


class Link:
    """One direction. What was sent in an earlier `generation` never arrives."""

    __slots__ = ("busy_until", "generation", "is_cut")

    def __init__(self) -> None:
        self.busy_until = 0.0
        self.generation = 0
        self.is_cut = False


class Network:
    def __init__(self, world: "World", names: tuple[str, ...]) -> None:
        self._world = world
        self.links = {(one, other): Link() for one in names for other in names if one != other}

    def send(self, source: "Node", target: "Node", event: "Event") -> None:
        world = self._world
        link = self.links[source.name, target.name]
        weights = world.weights
        random = world.random
        if link.is_cut or not target.is_up or (weights.loss and random() < weights.loss):
            return
        at = world.now + 0.05 + random() * world.delay_max
        if weights.reorder and random() < weights.reorder:
            at += random() * 12.0
        else:
            if at < link.busy_until:
                at = link.busy_until + FIFO_GAP
            link.busy_until = at
        arrival = (link, link.generation, target, event)
        world.push(at, target, self._arrive, arrival)
        if weights.duplicate and random() < weights.duplicate:
            world.push(at + random() * 12.0, target, self._arrive, arrival)

    def _arrive(self, arrival: "tuple[Link, int, Node, Event]") -> None:
        link, generation, target, event = arrival
        if link.generation == generation and not link.is_cut:
            target.feed(event)

    # Connections

    def connect(self, source: "Node") -> None:
        """Try to reach the node that is followed; again and again until it is there."""
        self._world.later(0.1 + self._world.random() * 1.0, source, self._try_connect, (source, source.followed))

    def _try_connect(self, attempt: "tuple[Node, str]") -> None:
        source, wanted = attempt
        if source.followed != wanted or not wanted or source.is_connected:
            return
        target = self._world.nodes[wanted]
        there, back = self.links[source.name, wanted], self.links[wanted, source.name]
        if not target.is_up or target.is_paused or there.is_cut or back.is_cut:
            self._world.later(1.0 + self._world.random() * 3.0, source, self._try_connect, attempt)
            return
        source.is_connected = True
        source.feed(LinkReady(wanted))

    def reset(self, one: "Node", other: "Node") -> None:
        """The connection breaks: both ways lose what is under way, both sides are told, in their time."""
        for source, target in ((one, other), (other, one)):
            self.links[source.name, target.name].generation += 1
            self.tell_lost(source, target.name)

    def tell_lost(self, node: "Node", peer: str) -> None:
        if not node.is_up:
            return
        if node.followed == peer:
            node.is_connected = False
        self._world.later(0.1 + self._world.random() * 2.0, node, self._lost, (node, peer))

    def _lost(self, loss: "tuple[Node, str]") -> None:
        node, peer = loss
        node.feed(LinkLost(peer))
        if node.followed == peer and not node.is_connected:
            self.connect(node)

    def cut(self, one: "Node", other: "Node", *, both: bool, duration: float) -> None:
        pairs = ((one, other), (other, one)) if both else ((one, other),)
        for source, target in pairs:
            self.links[source.name, target.name].is_cut = True
        self._world.later(duration, None, self._heal, pairs)

    def _heal(self, pairs: "tuple[tuple[Node, Node], ...]") -> None:
        for source, target in pairs:
            link = self.links[source.name, target.name]
            if link.is_cut:
                link.is_cut = False
                link.generation += 1
        if self._world.random() < 0.5:
            # The transport gave up in the meantime; otherwise only the silence tells.
            self.reset(pairs[0][0], pairs[0][1])

    def heal_all(self) -> None:
        for link in self.links.values():
            if link.is_cut:
                link.is_cut = False
                link.generation += 1
