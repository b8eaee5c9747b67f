"""What a seed decides before anything happens: the topic, how often which fault strikes, and how small the bounds are.

A swarm: every kind of fault is absent from about half of the schedules, so that some have one kind only. The bounds
of `kayos.limits` are set so small that a schedule of a few hundred steps reaches them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random

import kayos.replica.feeder
import kayos.replica.follower
import kayos.stream.window
from kayos.model.topic import Mode

FAULTS = ("crash", "wipe", "pause", "cut", "cut_one_way", "reset", "suspect", "outage", "depose", "orphan")
ANY_SIZE = 1 << 40


@dataclass(frozen=True)
class Settings:
    nodes: int
    replicas: int
    tails: int
    min_durable: int
    min_replicas: int
    mode: Mode


@dataclass(frozen=True)
class Bounds:
    """What stands in `kayos.limits`, small."""

    silent_ticks: int
    window_count: int
    in_flight_bytes: int
    pieces_ahead: int
    keys_per_question: int
    rollback_bytes: int
    rollback_rows: int
    piece_bytes: int

    def install(self) -> None:
        for (module, name), value in zip(_PLACES, self._values(), strict=True):
            setattr(module, name, value)

    def _values(self) -> tuple[int, ...]:
        return (
            self.silent_ticks,
            self.pieces_ahead,
            self.keys_per_question,
            self.rollback_bytes,
            self.window_count,
            self.in_flight_bytes,
        )


_PLACES = (
    (kayos.replica.follower, "LINK_SILENT_TICKS_MAX"),
    (kayos.replica.follower, "PIECES_AHEAD_MAX"),
    (kayos.replica.follower, "ROLLBACK_KEYS_PER_QUESTION"),
    (kayos.replica.follower, "ROLLBACK_BYTES_MAX"),
    (kayos.stream.window, "WINDOW_COUNT_MAX"),
    (kayos.replica.feeder, "LINK_IN_FLIGHT_BYTES_MAX"),
)


@contextmanager
def bounds_given_back() -> Iterator[None]:
    """Whatever schedules install in here, the limits are the product's again after it."""
    kept = [(module, name, getattr(module, name)) for module, name in _PLACES]
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


@dataclass(frozen=True)
class Weights:
    """`faults` are relative; the others are probabilities: per message, per job of a writer, per request."""

    faults: dict[str, float]
    fault_interval: float
    loss: float
    duplicate: float
    reorder: float
    silent_loss: float
    no_room: float
    broken: float
    slow_disk: float
    slow_head: float
    controls: float
    waits: float
    late_views: float
    steps: int

    def without_faults(self) -> "Weights":
        calm = dict.fromkeys(("loss", "duplicate", "reorder", "no_room", "broken", "slow_disk", "slow_head"), 0.0)
        return replace(self, late_views=0.0, **calm)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Profile:
    """Leanings that make one kind of story likely; what is not named is drawn as in any schedule.

    `wanted` and `settings` override what was drawn. `forced`: an operator starts the shard uncleanly now and then, and
    gives up the disks of replicas that wedge; what that may lose is not held against the core.
    """

    name: str = "swarm"
    faults: dict[str, float] | None = None
    settings: dict[str, object] = field(default_factory=dict)
    weights: dict[str, object] = field(default_factory=dict)
    bounds: dict[str, int] = field(default_factory=dict)
    forced: bool = False


SWARM = Profile()


def draw_settings(rng: Random, profile: Profile) -> Settings:
    nodes = 3 + int(rng.random() * 2.4)
    replicas = min(nodes, (1, 2, 3, 3, 3, 3, 4, 4)[int(rng.random() * 8)])
    tails = 2 if replicas > 2 and rng.random() < 0.3 else 1
    min_durable = replicas if rng.random() < 0.7 else 1 + int(rng.random() * replicas)
    min_replicas = 1 if rng.random() < 0.6 else 1 + int(rng.random() * (replicas // 2 + 1))
    mode = Mode.LOG if rng.random() < 0.12 else Mode.COMPACT
    drawn = Settings(nodes, replicas, tails, min_durable, min_replicas, mode)
    return replace(drawn, **profile.settings) if profile.settings else drawn  # type: ignore[arg-type]


def draw_weights(rng: Random, profile: Profile) -> Weights:
    faults = {name: rng.random() if rng.random() < 0.5 else 0.0 for name in FAULTS}
    if profile.faults is not None:
        faults = dict(profile.faults)
    drawn = Weights(
        faults=faults,
        fault_interval=3.0 + rng.random() * 9.0,
        loss=_maybe(rng, 0.4, 0.06),
        duplicate=_maybe(rng, 0.4, 0.1),
        reorder=_maybe(rng, 0.2, 0.05),
        silent_loss=_maybe(rng, 0.5, 0.6),
        no_room=_maybe(rng, 0.2, 0.08),
        broken=_maybe(rng, 0.2, 0.03),
        slow_disk=_maybe(rng, 0.5, 0.4),
        slow_head=_maybe(rng, 0.3, 0.6),
        controls=_maybe(rng, 0.7, 0.5),
        waits=_maybe(rng, 0.5, 0.4),
        late_views=0.05 + _maybe(rng, 0.3, 0.4),
        steps=_draw_steps(rng),
    )
    return replace(drawn, **profile.weights) if profile.weights else drawn  # type: ignore[arg-type]


def _draw_steps(rng: Random) -> int:
    """How long faults strike: mostly a short story of one or two, cheap enough to try many; the others let faults meet
    what earlier ones have left."""
    return 25 + int(rng.random() * 55) if rng.random() < 0.75 else 100 + int(rng.random() * 120)


def draw_bounds(rng: Random, profile: Profile) -> Bounds:
    drawn = Bounds(
        silent_ticks=2 + int(rng.random() * 2),
        window_count=_pick(rng, (1, 2, 3, 6, 50)),
        in_flight_bytes=_pick(rng, (1, 120, ANY_SIZE)),
        pieces_ahead=_pick(rng, (1, 2, 3)),
        keys_per_question=_pick(rng, (1, 2, 100)),
        rollback_bytes=_pick(rng, (60, ANY_SIZE, ANY_SIZE)),
        rollback_rows=_pick(rng, (2, 1000, 1000)),
        piece_bytes=_pick(rng, (1, 80, 200, ANY_SIZE)),
    )
    return replace(drawn, **profile.bounds) if profile.bounds else drawn


def _maybe(rng: Random, chance: float, most: float) -> float:
    return rng.random() * most if rng.random() < chance else 0.0


def _pick(rng: Random, values: tuple[int, ...]) -> int:
    return values[int(rng.random() * len(values))]
