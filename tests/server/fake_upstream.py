"""An upstream that the test plays itself: it hears a follower's words one by one and answers what it likes."""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc

from kayos.stream.messages import Downward, Upward
from kayos.wire.methods import REPLICATION_METHODS
from kayos.wire.replication_codec import UpwardAssembler, encode_downward

HEARD_S = 30.0
FOLLOW = REPLICATION_METHODS["Follow"]
Word = TypeVar("Word", bound=Upward)


class Conversation:
    """One stream of the follower."""

    def __init__(self) -> None:
        self._heard: queue.Queue[Upward] = queue.Queue()
        self._outgoing: queue.Queue[bytes | None] = queue.Queue()

    def say(self, *messages: Downward) -> None:
        for message in messages:
            self.say_raw(*encode_downward(message))

    def say_raw(self, *encoded: bytes) -> None:
        for each in encoded:
            self._outgoing.put(each)

    def hear(self, kind: type[Word], wanted: Callable[[Word], bool] = lambda word: True) -> Word:
        """The next word of that kind; others, such as signs of life, go by."""
        while True:
            word = self._heard.get(timeout=HEARD_S)
            if isinstance(word, kind) and wanted(word):
                return word

    def end(self) -> None:
        self._outgoing.put(None)

    def serve(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        threading.Thread(target=self._listen, args=(requests,), daemon=True).start()
        while (encoded := self._outgoing.get()) is not None:
            yield encoded

    def _listen(self, requests: Iterator[bytes]) -> None:
        assembler = UpwardAssembler()
        try:
            for encoded in requests:
                word = assembler.feed(encoded)
                if word is not None:
                    self._heard.put(word)
        except grpc.RpcError:
            pass
        self.end()


class FakeUpstream:
    def __init__(self) -> None:
        self._conversations: queue.Queue[Conversation] = queue.Queue()
        self._all: list[Conversation] = []

    def next_conversation(self) -> Conversation:
        return self._conversations.get(timeout=HEARD_S)

    @classmethod
    @contextmanager
    def serving(cls, address: str) -> Iterator["FakeUpstream"]:
        fake = cls()
        server = grpc.server(futures.ThreadPoolExecutor(16))
        handlers = {FOLLOW.name: grpc.stream_stream_rpc_method_handler(fake._follow)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FOLLOW.service, handlers),))
        assert server.add_insecure_port(address)
        server.start()
        try:
            yield fake
        finally:
            for conversation in fake._all:
                conversation.end()
            server.stop(0.2).wait()

    def _follow(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        conversation = Conversation()
        self._all.append(conversation)
        self._conversations.put(conversation)
        yield from conversation.serve(requests)
