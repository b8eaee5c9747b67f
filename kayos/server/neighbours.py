"""The replicas next to this one: the link to the one it follows, and the streams of those that follow it."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from kayos.errors import NotInChain, StaleEpoch
from kayos.model.chain import ChainView
from kayos.replica.events import Event, FromDownstream, LinkLost
from kayos.server.peers import Peers
from kayos.server.upstream_link import UpstreamLink
from kayos.stream.messages import Downward, Hello, Upward
from kayos.wire.replication_codec import ShardKey


class DownstreamStream(Protocol):
    def send(self, message: Downward, can_wait: bool) -> None: ...

    def close(self) -> None: ...


class Neighbours:
    """`addresses` are those of the view; everything that neighbours say is told to `feed`."""

    def __init__(
        self,
        key: ShardKey,
        peers: Peers,
        *,
        feed: Callable[[Event], None],
        fetch_view: Callable[[int], None],
        log: Any,
    ) -> None:
        self.addresses: Mapping[str, str] = {}
        self._key = key
        self._peers = peers
        self._feed = feed
        self._fetch_view = fetch_view
        self._log = log
        self._link: UpstreamLink | None = None
        self._downstreams: dict[str, DownstreamStream] = {}
        self._ending: set[asyncio.Task[None]] = set()

    # Upstream

    def follow(self, node: str) -> None:
        """Lead the link to this node; empty: to nobody."""
        if self._link is not None:
            self._end(self._link.close())
            self._link = None
        if node:
            self._link = UpstreamLink(
                node,
                self._peers.channel(self.addresses[node]),
                key=self._key,
                feed=self._feed,
                fetch_view=self._fetch_view,
                log=self._log,
            )

    def send_up(self, message: Upward, can_wait: bool) -> None:
        if self._link is not None:
            self._link.send(message, can_wait)

    # Downstream

    def check_hello(self, hello: Hello, view: ChainView, node: str) -> None:
        """Refuse whoever has no business here, each for its own reason."""
        if hello.epoch < view.epoch:
            raise StaleEpoch(f"epoch {hello.epoch} is over, {view.epoch} is current: fetch the view", epoch=view.epoch)
        if hello.epoch > view.epoch:
            self._fetch_view(hello.epoch)
            return
        member = view.find_member(hello.node)
        if member is None or view.upstream_of(hello.node) != node:
            raise NotInChain(
                f"{hello.node!r} does not follow {node!r} in epoch {view.epoch}: fetch the view", epoch=view.epoch
            )
        if member.incarnation and member.incarnation != hello.incarnation:
            raise NotInChain(
                f"epoch {view.epoch} gave the place of {hello.node!r} to another life of it: join at the end",
                epoch=view.epoch,
            )

    def came(self, node: str, stream: DownstreamStream, hello: Hello) -> None:
        """A stream that said Hello takes the place of an older one of the same node."""
        old = self._downstreams.pop(node, None)
        if old is not None:
            old.close()
            self._feed(LinkLost(node))
        self._downstreams[node] = stream
        self._feed(FromDownstream(node, hello))

    def said(self, node: str, stream: DownstreamStream, message: Upward) -> None:
        if self._downstreams.get(node) is stream:
            self._feed(FromDownstream(node, message))

    def left(self, node: str, stream: DownstreamStream) -> None:
        if self._downstreams.get(node) is stream:
            del self._downstreams[node]
            self._feed(LinkLost(node))

    def send_down(self, node: str, message: Downward, can_wait: bool) -> None:
        stream = self._downstreams.get(node)
        if stream is not None:
            stream.send(message, can_wait)

    # Ending

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        for stream in self._downstreams.values():
            stream.close()
        self.follow("")
        await asyncio.gather(*self._ending, return_exceptions=True)
