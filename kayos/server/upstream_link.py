"""The connection to the replica that this one follows: opened again and again, at growing intervals, until closed.

One stream carries the whole conversation. Words go out in the order they were given; the machine bounds how many can
be under way. When the stream breaks the machine is told, and told again when the next one stands.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio

from kayos.errors import KayosError, StaleEpoch
from kayos.limits import LINK_CONNECT_S, LINK_DELAY_S_MAX, LINK_DELAY_S_MIN
from kayos.replica.events import Event, FromUpstream, LinkLost, LinkReady
from kayos.server.outgoing import Outgoing
from kayos.stream.messages import Downward, Upward
from kayos.wire.methods import REPLICATION_METHODS
from kayos.wire.replication_codec import DownwardAssembler, ShardKey, encode_upward
from kayos.wire.status import error_from_rpc

_PATH = REPLICATION_METHODS["Follow"].path
_PATIENT_S = 2.0
_LARGE_BYTES = 1 << 20


class UpstreamLink:
    """`node` is whom it leads to. Everything that happens is told to `feed`; `fetch_view` when a peer knows a later
    epoch."""

    def __init__(
        self,
        node: str,
        channel: aio.Channel,
        *,
        key: ShardKey,
        feed: Callable[[Event], None],
        fetch_view: Callable[[int], None],
        log: Any,
    ) -> None:
        self.node = node
        self.problem = ""
        self._channel = channel
        self._key = key
        self._feed = feed
        self._fetch_view = fetch_view
        self._log = log
        self._outgoing: Outgoing[Upward] = Outgoing()
        self._is_up = False
        self._task = asyncio.create_task(self._run(), name=f"follow-{node}")

    def send(self, message: Upward, can_wait: bool) -> None:
        """Lost without a word when the stream is down: the machine says Hello again once it stands."""
        if self._is_up:
            self._outgoing.put(message, can_wait=can_wait)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        delay_s = LINK_DELAY_S_MIN
        while True:
            began = asyncio.get_running_loop().time()
            await self._converse_safely()
            if asyncio.get_running_loop().time() - began > _PATIENT_S:
                delay_s = LINK_DELAY_S_MIN
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
            delay_s = min(LINK_DELAY_S_MAX, delay_s * 2)

    async def _converse_safely(self) -> None:
        try:
            await self._converse()
            self._note_problem("the upstream ended the conversation")
        except grpc.RpcError as failure:
            error = error_from_rpc(failure)
            self._note_problem(error.message)
            if isinstance(error, StaleEpoch):
                self._fetch_view(error.number("epoch"))
        except KayosError as error:
            # What came in was not sound: nothing of it was used, a new stream begins with Hello.
            self._note_problem(error.message)
        except TimeoutError:
            self._note_problem(f"{self.node} did not answer within {LINK_CONNECT_S:g} s")
        except asyncio.CancelledError:
            # gRPC raises this, too, when a call was cut off under its reader; only a request to end counts.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._note_problem("the stream was cut off")
        except Exception as error:
            self._log.exception("the link to the upstream failed", upstream=self.node)
            self._note_problem(f"{type(error).__name__}, see the node's log")
        finally:
            if self._is_up:
                self._is_up = False
                self._feed(LinkLost(self.node))

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            self._log.info("no link to the upstream", upstream=self.node, reason=problem)
        self.problem = problem

    async def _converse(self) -> None:
        call: Any = self._channel.stream_stream(_PATH)()
        try:
            async with asyncio.timeout(LINK_CONNECT_S):
                await call.wait_for_connection()
            await self._exchange(call)
        finally:
            call.cancel()

    async def _exchange(self, call: Any) -> None:
        self._outgoing = Outgoing()
        self._is_up = True
        self.problem = ""
        self._feed(LinkReady(self.node))
        # Whichever half ends, the conversation is over: a link that hears but cannot speak would look alive for ever.
        halves = {asyncio.create_task(self._send_all(call)), asyncio.create_task(self._read_all(call))}
        try:
            done, _ = await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
            for half in done:
                half.result()
        finally:
            for half in halves:
                half.cancel()
            await asyncio.gather(*halves, return_exceptions=True)

    async def _read_all(self, call: Any) -> None:
        assembler = DownwardAssembler()
        while (encoded := await call.read()) is not aio.EOF:
            message = await self._decode(assembler, encoded)
            if message is not None:
                self._feed(FromUpstream(self.node, message))
        if (code := await call.code()) is not grpc.StatusCode.OK:
            trailing = await call.trailing_metadata()
            raise aio.AioRpcError(code, await call.initial_metadata(), trailing, await call.details(), None)

    @staticmethod
    async def _decode(assembler: DownwardAssembler, encoded: bytes) -> Downward | None:
        """What is large takes long, and must not hold up the other shards of the node."""
        if len(encoded) < _LARGE_BYTES:
            return assembler.feed(encoded)
        return await asyncio.to_thread(assembler.feed, encoded)

    async def _send_all(self, call: Any) -> None:
        outgoing = self._outgoing
        while (message := await outgoing.take()) is not None:
            for encoded in encode_upward(message, self._key):
                await call.write(encoded)
