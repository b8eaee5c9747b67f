"""A stage for stories: the simulator's nodes and links without a grain of chance, moved by words.

Every delay is the same, so a script gives the same story every time. Time passes only when the script says `run`.
Verdicts, takeovers and answers are told as they happen; `show` and `compare` tell how things stand.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from kayos.model.chain import ChainView, Member, MemberState
from kayos.model.control import CommitMark, Purge
from kayos.model.mark import Mark
from kayos.model.producer import ProducerStamp
from kayos.model.record import Kind, Record, decode_record
from kayos.model.topic import Mode
from kayos.model.write import ControlRequest, Request, WriteRequest, WriteResult
from kayos.replica.effects import ApplyPiece
from kayos.replica.events import FromUpstream, Until, ViewChanged
from kayos.storage.interface import Identity
from kayos.storage.memory import MemoryStore
from kayos.stream.messages import CatchUp, Continue, Refuse, Reset, RollBack, Wedge
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.weights import Bounds, Weights

ANY_SIZE = 1 << 40
CALM = Weights({}, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)


class Sent:
    """One request of the script and how it was answered."""

    def __init__(self, stage: "Stage", name: str, request: Request, until: Until, copies: int) -> None:
        self._stage = stage
        self.name = name
        self.request = request
        self.until = until
        self.copies = copies

    def answered(self, result: WriteResult) -> None:
        level = "all" if self.until is Until.ALL else str(self.copies)
        place = f"{show_history(result.history_id)}/{result.first_seq}"
        if result.last_seq > result.first_seq:
            place += f"..{result.last_seq}"
        again = ", an earlier send stored it" if result.duplicate else ""
        self._stage.tell(f"{self.name}: written at {place}, durable on {level}{again}")

    def refused(self, node: Node, error: Exception) -> None:
        self._stage.tell(f"{self.name}: refused by {node.name}: {error}")

    def forsaken(self) -> None:
        self._stage.tell(f"{self.name}: unknown")


class Actor(Node):
    """A node whose disk can be held still, and that tells what it decides."""

    stage: "Stage"

    def __init__(self, stage: "Stage", name: str) -> None:
        self.stage = stage
        self.is_held = False
        self.held: list[tuple[Callable[[Any], None], Any]] = []
        super().__init__(stage, name)  # type: ignore[arg-type]

    def finish_job(self, jobs: list[Any]) -> None:
        if self.is_held:
            self.held.append((super().finish_job, jobs))
        else:
            self.stage.job_done(self, jobs[0])
            super().finish_job(jobs)

    def _finish_group(self, group: Any) -> None:
        if self.is_held:
            self.held.append((super()._finish_group, group))
        else:
            super()._finish_group(group)

    def let_go(self) -> None:
        self.is_held = False
        held, self.held = self.held, []
        for finish, argument in held:
            finish(argument)

    def crash(self, *, wipe: bool) -> None:
        self.held = []
        super().crash(wipe=wipe)

    def fetch_view(self, _: object = None) -> None:
        if self.stage.manager.view.epoch:
            super().fetch_view()


class Wire(Network):
    """Links that repeat the verdicts they carry."""

    def send(self, source: Node, target: Node, event: Any) -> None:
        if isinstance(event, FromUpstream) and isinstance(source, Actor):
            text = describe(event.message)
            if text:
                source.stage.tell(f"{source.name} tells {target.name}: {text}")
        super().send(source, target, event)


class Silence:
    """Instead of checks and clients: stories are judged by their reader."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class Views:
    def __init__(self) -> None:
        self.view = ChainView(0, ())


class Stage:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.story = None
        self.now = 0.0
        self.steps = 0
        self.tick = 4.0
        self.delay_max = 0.2
        self.weights = CALM
        self.bounds = Bounds(3, 4_096, ANY_SIZE, 2, 10_000, ANY_SIZE, 100_000, ANY_SIZE)
        self.is_healing = True
        self.checks = Silence()
        self.manager = Views()
        self.nodes: dict[str, Actor] = {}
        self.network: Network
        self._heap: list[tuple[float, int, Node | None, int, Callable[[Any], None], Any]] = []
        self._count = 0
        self._histories = 0
        self._stores = 0
        self._numbers: dict[str, int] = {}
        self._mode = Mode.COMPACT
        self._pieces_left = -1

    # What a node asks of its world

    def random(self) -> float:
        return 0.5

    def push(self, at: float, node: Node | None, act: Callable[[Any], None], argument: Any) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, node, node.life if node is not None else 0, act, argument))

    def later(self, delay: float, node: Node | None, act: Callable[[Any], None], argument: Any) -> None:
        self.push(self.now + delay, node, act, argument)

    def make_store(self) -> MemoryStore:
        self._stores += 1
        return MemoryStore(Identity("story", 0, self._mode), b"disk%d" % self._stores)

    def draw_history(self) -> bytes:
        self._histories += 1
        return (b"h%d" % self._histories).ljust(16, b".")

    def draw_token(self) -> int:
        self._count += 1
        return self._count

    def draw_fsync(self, *, is_group: bool = False) -> float:
        return 0.3

    def note(self, node: Node | None, what: str, detail: object) -> None:
        pass

    def break_node(self, node: Node) -> None:
        self.tell(f"{node.name} is broken: {node.replica.problem}")
        self.crash(node.name)

    # Telling

    def tell(self, line: str) -> None:
        self.lines.append(line)

    def job_done(self, node: Actor, job: Any) -> None:
        if isinstance(job, ApplyPiece) and self._pieces_left > 0:
            self._pieces_left -= 1

    # What scripts say

    def cluster(self, *names: str, mode: str = "compact") -> None:
        """All begins anew."""
        lines = self.lines
        self.__init__()  # type: ignore[misc]
        self.lines = lines
        self.bounds.install()
        self._mode = Mode(mode)
        self.network = Wire(self, names)  # type: ignore[arg-type]
        for name in names:
            self.nodes[name] = Actor(self, name)
            self.nodes[name].start()

    def bound(self, **bounds: int) -> None:
        self.bounds = Bounds(**{**self.bounds.__dict__, **bounds})
        self.bounds.install()

    def view(
        self, *names: str, tails: int = 1, min_durable: int = 9, learner: str = "", state: str = "", to: str = ""
    ) -> None:
        """The next epoch; every place is given to the present life of its node, unless it kept it."""
        before = {member.node: member.incarnation for member in self.manager.view.members}
        members = []
        for name in names:
            life, _, kept = name.partition("=")
            incarnation = before.get(life, b"") if kept == "kept" else self.nodes[life].replica.incarnation
            members.append(Member(life, incarnation))
        if learner:
            members.append(Member(learner, self.nodes[learner].replica.incarnation, MemberState(state or "waiting")))
        view = ChainView(self.manager.view.epoch + 1, tuple(members), tails, min_durable, 1)
        view.check()
        self.manager.view = view
        for name in to.split(",") if to else self.nodes:
            if self.nodes[name].is_up:
                self.push(self.now, self.nodes[name], self.nodes[name].feed, ViewChanged(view))

    def run(self, duration: float = 30.0, *, pieces: int = -1) -> None:
        """Let time pass; with `pieces`, only until that many pieces of a catch-up were applied."""
        end, self._pieces_left = self.now + duration, pieces
        while self._heap and self._heap[0][0] <= end and self._pieces_left != 0:
            at, _, node, life, act, argument = heappop(self._heap)
            self.now = at
            if node is None or node.life == life:
                act(argument)
        self.now = end if self._pieces_left != 0 else self.now
        self._pieces_left = -1

    def write(self, name: str, node: str, *words: str, level: str = "all", number: str = "") -> None:
        keys, values, kinds = [], [], bytearray()
        for word in words:
            key, _, value = word.partition("=")
            keys.append(key.encode())
            values.append(value.encode())
            kinds.append(Kind.PUT if "=" in word else Kind.DELETE)
        stamp = ProducerStamp(number.partition(":")[0].encode(), 0, int(number.partition(":")[2])) if number else None
        self._send(name, node, WriteRequest(keys, values, bytes(kinds), producer=stamp), level)

    def fill(self, name: str, node: str, count: int) -> None:
        """Many revisions of one key in one request: they take sequences, the last one stays."""
        values = [str(index).encode() for index in range(1, count + 1)]
        self._send(name, node, WriteRequest([b"k"] * count, values), "all")

    def _send(self, name: str, node: str, request: Request, level: str) -> None:
        until, copies = (Until.ALL, 0) if level == "all" else (Until.COPIES, int(level))
        target = self.nodes[node]
        self.push(self.now, target, target.receive, Sent(self, name, request, until, copies))

    def purge(self, name: str, node: str, through: int) -> None:
        self._send(name, node, ControlRequest(Purge(through)), "all")

    def mark(self, name: str, node: str, consumer: str, history: str, seq: int) -> None:
        mark = Mark(history.encode().ljust(16, b"."), seq, 0, seq)
        self._send(name, node, ControlRequest(CommitMark(consumer, mark)), "all")

    def wait(self, name: str, node: str, history: str, seq: int, level: str = "all") -> None:
        until, copies = (Until.ALL, 0) if level == "all" else (Until.COPIES, int(level))
        result = WriteResult(history.encode().ljust(16, b"."), seq, seq, 0)
        self.nodes[node].wait(Sent(self, name, WriteRequest([], []), until, copies), result)  # type: ignore[arg-type]

    def hold(self, *names: str) -> None:
        for name in names:
            self.nodes[name].is_held = True

    def release(self, *names: str) -> None:
        for name in names:
            self.nodes[name].let_go()

    def crash(self, *names: str, wipe: str = "no") -> None:
        for name in names:
            self.nodes[name].is_held = False
            self.nodes[name].crash(wipe=wipe == "yes")
        for name in names:
            for other in self.nodes.values():
                if other.name not in names:
                    self.network.tell_lost(other, name)

    def restart(self, *names: str) -> None:
        for name in names:
            self.nodes[name].start()

    def cut(self, one: str, other: str) -> None:
        for pair in ((one, other), (other, one)):
            self.network.links[pair].is_cut = True

    def heal(self, one: str, other: str) -> None:
        for pair in ((one, other), (other, one)):
            self.network.links[pair].is_cut = False
        self.network.reset(self.nodes[one], self.nodes[other])

    def read(self, name: str) -> None:
        """What a consumer who begins at 0 may see at a tail."""
        node = self.nodes[name]
        state = node.store.state
        if not node.replica.role.is_tail or not state.sync.is_ready:
            self.tell(f"{name} shows nothing: it is {node.replica.role}")
        elif node.released < state.high_seq:
            self.tell(f"{name} holds {state.high_seq}, may show {node.released}")
        else:
            self.tell(f"{name} shows {state.high_seq}: {show_rows(node)}")

    def show(self, *names: str) -> None:
        for name in names or tuple(self.nodes):
            node = self.nodes[name]
            state = node.kept_state
            rows = " ".join(f"{show_history(row.history_id)}@{row.start_seq}" for row in state.takeover.rows)
            role = node.replica.role.value if node.is_up else "down"
            phase = f" ({node.replica.report().phase})" if node.is_up and not node.replica.is_head else ""
            self.tell(f"{name} {role}{phase}: seq {state.high_seq}, commit {state.commit_point}, [{rows}]")
            self.tell(f"    {show_rows(node)}")

    def compare(self, *names: str) -> None:
        chosen = names or self.manager.view.serving
        dumps = {name: list(self.nodes[name].store.dump()) for name in chosen}
        first = dumps[chosen[0]]
        differing = [name for name in chosen if dumps[name] != first]
        self.tell(f"{' '.join(chosen)}: " + (f"{differing} differ from {chosen[0]}" if differing else "all equal"))


def show_history(history_id: bytes) -> str:
    return history_id.rstrip(b".").decode() or "(none)"


def show_rows(node: Node) -> str:
    records = [decode_record(row.stored) for row in node.store._tables.log.values()]
    return " ".join(map(show_record, records)) or "(nothing)"


def show_record(record: Record) -> str:
    value = f"={record.value.decode()}" if record.kind == Kind.PUT else "-"
    return f"{record.seq}:{record.key.decode()}{value}"


def describe(message: object) -> str:
    match message:
        case Continue():
            return "continue"
        case CatchUp():
            return "catch up"
        case RollBack():
            return f"roll back to {message.seq}"
        case Reset():
            return f"reset, {message.reason}"
        case Wedge():
            return f"wedge, {message.reason}"
        case Refuse():
            return f"refused, {message.reason}"
        case _:
            return ""
