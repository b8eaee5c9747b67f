"""Calls with routing, a deadline and retries, as steps.

`Directory` remembers where things are: the servers of the connection string, tried in turn, and the view of each
topic until an error says that it is out of date.
"""

import time
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message as WireMessage

from kayos.client.core.route import View, view_from_wire
from kayos.client.core.settings import Settings
from kayos.client.core.steps import Invoke, Pause, Steps
from kayos.client.core.verdict import Backoff, Verdict, judge
from kayos.errors import DeadlineExceeded, KayosError, NotFound, Unavailable
from kayos.wire.methods import CLUSTER_METHODS, LOG_METHODS, Method
from kayos.wire.v1 import cluster_pb2, log_pb2

BuildRequest = Callable[[log_pb2.ShardRef], WireMessage]
Clock = Callable[[], float]


class Directory:
    def __init__(self, settings: Settings, clock: Clock = time.monotonic) -> None:
        self.settings = settings
        self.clock = clock
        self._views: dict[str, View] = {}
        # By topic id and shard: a node that was away for a while tells of an epoch that is over, and reads there would
        # go back behind what was seen already.
        self._epochs: dict[tuple[str, int], int] = {}
        self._turn = 0

    @property
    def server(self) -> str:
        return self.settings.servers[self._turn % len(self.settings.servers)]

    @property
    def all_servers(self) -> str:
        return ",".join(self.settings.servers)

    def try_next_server(self) -> None:
        self._turn += 1

    def find_view(self, topic: str) -> View | None:
        return self._views.get(topic)

    def keep_view(self, view: View) -> bool:
        """False: it is older than one that was here before, and not kept."""
        epochs = {(view.topic.topic_id, shard): route.epoch for shard, route in enumerate(view.routes)}
        if any(epoch < self._epochs.get(shard, 0) for shard, epoch in epochs.items()):
            return False
        self._epochs.update(epochs)
        self._views[view.topic.name] = view
        return True

    def forget_view(self, topic: str) -> None:
        self._views.pop(topic, None)


class Attempts:
    """The retries of one call: how long is left, and what to do after a failure."""

    def __init__(self, directory: Directory, timeout_s: float | None) -> None:
        self._clock = directory.clock
        self._servers = directory.all_servers
        self._timeout_s = directory.settings.timeout_s if timeout_s is None else timeout_s
        self._deadline = self._clock() + self._timeout_s
        self._backoff = Backoff()
        self._refusal: KayosError | None = None

    @property
    def left_s(self) -> float:
        return max(0.001, self._deadline - self._clock())

    def pause_after(self, error: KayosError) -> Pause:
        """How long to wait before the next try; raises when there is no time for one.

        The last try may have had a millisecond and no chance: then what an earlier one was told says more."""
        delay_s = self._backoff.next_delay_s(error)
        if type(error) is not DeadlineExceeded:
            self._refusal = error
        if self._clock() + delay_s < self._deadline:
            return Pause(delay_s)
        raise explain_silence(self._refusal or error, self._servers, self._timeout_s)


def explain_silence(error: KayosError, servers: str, timeout_s: float) -> KayosError:
    """The last error of a search that ran out of time; gRPC's own words get the what-to-do."""
    if type(error) is Unavailable:
        return Unavailable(
            f"no server of {servers} answered within {timeout_s:.3g} s ({error.message}): "
            "see that a node runs there, or give other servers"
        )
    if type(error) is DeadlineExceeded:
        return DeadlineExceeded(f"no answer within {timeout_s:.3g} s ({error.message})")
    return error


def call_any(directory: Directory, name: str, request: WireMessage, *, timeout_s: float | None = None) -> Steps[Any]:
    """A call of the Cluster service that every node answers."""
    attempts = Attempts(directory, timeout_s)
    while True:
        try:
            return (yield Invoke(directory.server, CLUSTER_METHODS[name], request, attempts.left_s))
        except KayosError as error:
            if judge(error) is not Verdict.RETRY:
                raise
            failure = error
        directory.try_next_server()
        yield attempts.pause_after(failure)


def fetch_view(directory: Directory, topic: str, *, timeout_s: float | None = None) -> Steps[View]:
    """The current view, whatever is remembered; a topic without a head is asked for again."""
    attempts = Attempts(directory, timeout_s)
    directory.forget_view(topic)
    while True:
        request = cluster_pb2.GetViewRequest(topic=topic)
        response = yield from call_any(directory, "GetView", request, timeout_s=attempts.left_s)
        view = view_from_wire(response)
        if view is None:
            trouble = Unavailable(f"topic {topic!r} has a shard without a head or a tail")
        elif directory.keep_view(view):
            return view
        else:
            trouble = Unavailable(f"{directory.server} tells of an epoch of topic {topic!r} that is over")
            directory.try_next_server()
        yield attempts.pause_after(trouble)


def get_view(directory: Directory, topic: str) -> Steps[View]:
    view = directory.find_view(topic)
    return view if view is not None else (yield from fetch_view(directory, topic))


def call_head(
    directory: Directory, name: str, topic: str, shard: int, build: BuildRequest, *, timeout_s: float | None = None
) -> Steps[Any]:
    """A call that the shard's head answers: all that writes."""
    return (yield from _call_shard(directory, LOG_METHODS[name], topic, shard, build, timeout_s, View.head))


def call_tail(
    directory: Directory, name: str, topic: str, shard: int, build: BuildRequest, *, timeout_s: float | None = None
) -> Steps[Any]:
    """A call that one of the shard's tails answers: all that reads."""
    turn = 0

    def next_tail(view: View, shard: int) -> str:
        nonlocal turn
        turn += 1
        return view.tail(shard, turn)

    return (yield from _call_shard(directory, LOG_METHODS[name], topic, shard, build, timeout_s, next_tail))


def _call_shard(
    directory: Directory,
    method: Method,
    topic: str,
    shard: int,
    build: BuildRequest,
    timeout_s: float | None,
    choose: Callable[[View, int], str],
) -> Steps[Any]:
    attempts = Attempts(directory, timeout_s)
    while True:
        view = yield from get_view(directory, topic)
        view.check_shard(shard)
        try:
            return (yield Invoke(choose(view, shard), method, build(view.ref(shard)), attempts.left_s))
        except KayosError as error:
            if isinstance(error, NotFound):
                directory.forget_view(topic)
            if judge(error) not in (Verdict.RETRY, Verdict.REROUTE):
                raise
            failure = error
        directory.forget_view(topic)
        yield attempts.pause_after(failure)
