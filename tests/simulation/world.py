"""One schedule: a cluster of cores, its clients and its faults, all from one seed; then healing, then the verdict.

Everything happens through one heap of (time, number, node, life, function, argument). Times are drawn from the seed,
so no two are alike and the seed decides every order. A step is one event given to one core.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from kayos.model.chain import MemberState
from kayos.replica.follower import FollowerState
from kayos.storage.interface import Identity
from kayos.storage.memory import MemoryStore
from tests.simulation.checks import Checks, Violation
from tests.simulation.clients import Clients
from tests.simulation.consumers import Consumer
from tests.simulation.manager import Manager
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.weights import SWARM, Profile, draw_bounds, draw_settings, draw_weights

FAULTY_TIME_MAX = 120.0
HEALING_TIME_MAX = 900.0
HEALING_STEPS_MAX = 12_000
LOOK_INTERVAL = 1.0
HEALING_ROUND = 2.0
HEALING_REACTION = 0.3


class World:
    def __init__(self, seed: int, profile: Profile = SWARM, *, keep_story: bool = False) -> None:
        self.seed = seed
        self.profile = profile
        self.story: list[str] | None = [] if keep_story else None
        rng = Random(seed)
        self.random: Callable[[], float] = rng.random
        self._draw_bytes = rng.randbytes
        self.settings = draw_settings(rng, profile)
        self.weights = draw_weights(rng, profile)
        self.bounds = draw_bounds(rng, profile)
        self.bounds.install()
        self.delay_max = 0.2 + rng.random()
        self.fsync_max = 0.2 + rng.random() * 2.0
        self.tick = 8.0 + rng.random() * 5.0
        self.round = 4.0 + rng.random() * 6.0
        self.reaction = 2.5
        self.wanted_length = self.settings.replicas
        self.think = 1.0 + rng.random() * 6.0
        self.now = 0.0
        self.steps = 0
        self.is_healing = False
        self.was_forced = False
        self._heap: list[tuple[float, int, Node | None, int, Callable[[Any], None], Any]] = []
        self._count = 0
        self._token = 0
        self._identity = Identity("t", 0, self.settings.mode)
        self._probe_is_sent = False
        self.checks = Checks(self)
        names = tuple("ABCDE"[: self.settings.nodes])
        self.network = Network(self, names)
        self.manager = Manager(self)
        self.nodes = {name: Node(self, name) for name in names}
        for node in self.nodes.values():
            node.start()
        self.manager.begin()
        self.clients = Clients(self)
        self.consumers = [Consumer(self, f"c{index}") for index in range(1 + int(rng.random() * 2))]
        if profile.forced:
            self.later(10.0, None, self._operate, None)
        self._fault_names = [name for name, weight in self.weights.faults.items() if weight]
        self._fault_total = sum(self.weights.faults.values())
        if self._fault_names:
            self.later(6.0 + rng.random() * self.weights.fault_interval, None, self._strike, None)

    # The heap

    def push(self, at: float, node: Node | None, act: Callable[[Any], None], argument: Any) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, node, node.life if node is not None else 0, act, argument))

    def later(self, delay: float, node: Node | None, act: Callable[[Any], None], argument: Any) -> None:
        self._count += 1
        life = node.life if node is not None else 0
        heappush(self._heap, (self.now + delay, self._count, node, life, act, argument))

    def _run_until(self, time_max: float, steps_max: int) -> None:
        heap = self._heap
        at = self.now
        while at < time_max and self.steps < steps_max:
            at, _, node, life, act, argument = heappop(heap)
            self.now = at
            if node is not None:
                if node.life != life:
                    continue
                if node.paused_until > at:
                    self.push(node.paused_until, node, act, argument)
                    continue
            act(argument)

    # What the seed draws on the way

    def make_store(self) -> MemoryStore:
        return MemoryStore(self._identity, self._draw_bytes(8))

    def draw_history(self) -> bytes:
        return self._draw_bytes(16)

    def draw_token(self) -> int:
        self._token += 1
        return self._token

    def draw_fsync(self, *, is_group: bool = False) -> float:
        slow = self.weights.slow_head if is_group else self.weights.slow_disk
        if slow and self.random() < slow:
            return 1.0 + self.random() * 12.0
        return 0.05 + self.random() * self.fsync_max

    # Telling

    def note(self, node: Node | None, what: str, detail: object) -> None:
        if self.story is not None:
            name = node.name if node is not None else "manager"
            self.story.append(f"{self.now:9.3f} {name} {what} {'' if detail is None else detail}".rstrip())

    def fail(self, text: str) -> None:
        raise Violation(text)

    # Faults

    def _strike(self, _: object) -> None:
        if self.is_healing:
            return
        self.later(self.weights.fault_interval * (0.2 + self.random() * 1.6), None, self._strike, None)
        mark = self.random() * self._fault_total
        for name in self._fault_names:
            mark -= self.weights.faults[name]
            if mark <= 0:
                break
        _STRIKES[name](self)

    def _pick(self) -> Node:
        """Mostly a member of the chain."""
        names = self.manager.view.serving if self.random() < 0.8 else tuple(self.nodes)
        return self.nodes[names[int(self.random() * len(names))]]

    def _pick_pair(self) -> tuple[Node, Node]:
        one = self._pick()
        others = [node for node in self.nodes.values() if node is not one]
        return one, others[int(self.random() * len(others))]

    def crash(self, node: Node, *, wipe: bool = False, delay_max: float = 20.0) -> None:
        if not node.is_up:
            return
        node.crash(wipe=wipe)
        for other in self.nodes.values():
            if other is not node and self.random() >= self.weights.silent_loss:
                self.network.tell_lost(other, node.name)
        self.later(0.5 + self.random() * delay_max, None, self._restart, node)

    def break_node(self, node: Node) -> None:
        self.crash(node, delay_max=4.0)

    def _restart(self, node: Node) -> None:
        if node.is_up:
            return
        node.start()
        for other in self.nodes.values():
            if other is not node and other.followed == node.name:
                self.network.tell_lost(other, node.name)

    def _strike_crash(self) -> None:
        self.crash(self._pick())

    def _strike_wipe(self) -> None:
        node = self._pick()
        if self.manager.may_wipe(node.name):
            self.crash(node, wipe=True)

    def _strike_outage(self) -> None:
        """Power fails: everything or nearly everything at once."""
        for node in self.nodes.values():
            if self.random() < 0.85:
                self.crash(node)

    def _strike_pause(self) -> None:
        node = self._pick()
        node.paused_until = self.now + 1.0 + self.random() * 25.0
        self.note(node, "pauses", None)

    def _strike_cut(self) -> None:
        one, other = self._pick_pair()
        self.note(one, "is cut from", other.name)
        self.network.cut(one, other, both=True, duration=2.0 + self.random() * 30.0)

    def _strike_cut_one_way(self) -> None:
        one, other = self._pick_pair()
        self.note(one, "is not heard by", other.name)
        self.network.cut(one, other, both=False, duration=2.0 + self.random() * 30.0)

    def _strike_reset(self) -> None:
        one, other = self._pick_pair()
        self.note(one, "loses the link with", other.name)
        self.network.reset(one, other)

    def _strike_suspect(self) -> None:
        node = self._pick()
        node.suspected_until = self.now + 4.0 + self.random() * 20.0
        self.note(node, "is suspected", None)

    def _strike_depose(self) -> None:
        """The tail is taken for dead, and once it may be out of the chain, the head is."""
        view = self.manager.view
        tail, head = self.nodes[view.serving[-1]], self.nodes[view.head]
        tail.suspected_until = self.now + 10.0 + self.random() * 5.0
        self.note(tail, "is suspected", None)
        self.later(3.0 + self.random() * 10.0, head, lambda node: self.crash(node, delay_max=6.0), head)

    def _strike_orphan(self) -> None:
        """All but the last member go at once."""
        for name in self.manager.view.serving[:-1]:
            self.crash(self.nodes[name])

    def _operate(self, _: object) -> None:
        """An operator who knows no patience: starts the shard with any copy, gives up the disks of those that wedge."""
        self.later(4.0 + self.random() * 8.0, None, self._operate, None)
        for node in self.nodes.values():
            if node.is_up and node.replica.follower.state is FollowerState.WEDGED:
                self.crash(node, wipe=True, delay_max=2.0)
        whole = [node for node in self.nodes.values() if node.is_up and node.is_whole]
        is_stuck = self.nodes[self.manager.view.head] not in whole
        if whole and self.random() < 0.5 and (is_stuck or not self.is_healing):
            self.was_forced = True
            self.manager.force(whole[int(self.random() * len(whole))])

    # The two phases

    def run(self) -> None:
        self._run_until(FAULTY_TIME_MAX, self.weights.steps)
        self.heal()
        self.checks.finish()

    def dismantle(self) -> None:
        """Let go of everything at once: a world is one knot of references, cheaper to untie than to collect."""
        self._heap.clear()
        clients = (self.clients, *self.clients.producers)
        for node in self.nodes.values():
            node.replica.__dict__.clear()
        for part in (*self.nodes.values(), *self.consumers, *clients, self.checks, self.network, self.manager):
            part.__dict__.clear()
        self.__dict__.clear()

    def heal(self) -> None:
        self.note(None, "heals", None)
        self.is_healing = True
        self.weights = self.weights.without_faults()
        self.network.heal_all()
        # Ticks go on as they were: with all else quick, fewer of them find nothing to do.
        self.round, self.reaction, self.delay_max, self.fsync_max = HEALING_ROUND, HEALING_REACTION, 0.2, 0.2
        self.manager.hurry()
        for node in self.nodes.values():
            node.suspected_until = 0.0
            node.paused_until = min(node.paused_until, self.now)
            if not node.is_up:
                self.later(self.random() * 3.0, None, self._restart, node)
        deadline, steps_max = self.now + HEALING_TIME_MAX, self.steps + HEALING_STEPS_MAX
        while not self.is_healed():
            self._run_until(self.now + LOOK_INTERVAL, steps_max)
            if self.now > deadline or self.steps >= steps_max:
                self.fail(f"liveness: not healed: {self.describe()}")
        for consumer in self.consumers:
            for name in self.manager.view.tail_nodes:
                consumer.read(self.nodes[name])
            if consumer.mark.seq != self.nodes[name].store.state.high_seq:
                self.fail(f"liveness: {consumer.name} came to {consumer.mark.seq} only")

    def is_healed(self) -> bool:
        """The chain has its length, all in it have everything and are asked for nothing; once a probe was written."""
        view = self.manager.view
        members = view.members
        if len(members) < self.wanted_length or members[-1].state is not MemberState.SERVING:
            return False
        head = self.nodes[view.head]
        if not head.is_up or not head.serving:
            return False
        seq = head.store.state.high_seq
        for name in view.serving:
            node = self.nodes[name]
            if not node.is_up or node.busy or node.replica.view.epoch != view.epoch:
                return False
            replica, state = node.replica, node.store.state
            if replica.accepted_seq != seq or state.high_seq != seq or node.released < seq or state.is_copying:
                return False
            if not replica.is_established or not state.sync.is_ready:
                return False
        if not self.clients.is_idle:
            return False
        if not self._probe_is_sent:
            self._probe_is_sent = True
            self.clients.write(self.clients.producers[0], is_probe=True)
            return False
        return True

    def describe(self) -> str:
        parts = [
            f"chain {[(m.node, m.state.value) for m in self.manager.view.members]} epoch {self.manager.view.epoch}"
        ]
        for node in self.nodes.values():
            if node.is_up:
                report = node.replica.report()
                parts.append(
                    f"{node.name}: {report.role} {report.phase} epoch {report.epoch} seq {report.high_seq}/"
                    f"{report.durable_seq} commit {report.commit_point} jobs {node.replica.jobs} {report.problem}"
                )
        parts += [f"{p.id.decode()} waits for {p.waiting}" for p in self.clients.producers if p.waiting]
        return "; ".join(parts)


_STRIKES: dict[str, Callable[[World], None]] = {
    "crash": World._strike_crash,
    "wipe": World._strike_wipe,
    "pause": World._strike_pause,
    "cut": World._strike_cut,
    "cut_one_way": World._strike_cut_one_way,
    "reset": World._strike_reset,
    "suspect": World._strike_suspect,
    "outage": World._strike_outage,
    "depose": World._strike_depose,
    "orphan": World._strike_orphan,
}
