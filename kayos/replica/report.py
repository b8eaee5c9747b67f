"""What operators and the manager are told of a replica."""

from typing import TYPE_CHECKING, NamedTuple

from kayos.model.chain import MemberState, Role
from kayos.replica.feeder import FeederState
from kayos.stream.messages import Durable

if TYPE_CHECKING:
    # The machine makes its report; the other direction is for the type checker.
    from kayos.replica.machine import Replica


class Report(NamedTuple):
    """`learner` is the newcomer that reads from this replica, if there is one. `learner_is_close`: it gets batches as
    they come; `learner_is_ready`: it holds all that was ever acknowledged here."""

    role: Role
    epoch: int
    high_seq: int
    durable_seq: int
    commit_point: int
    following: str
    phase: str
    problem: str
    learner: str
    learner_is_close: bool
    learner_is_ready: bool
    durable: Durable


def make_report(replica: "Replica") -> Report:
    learner = find_learner(replica)
    feeder = replica.feeders.get(learner)
    is_close = feeder is not None and feeder.state is FeederState.STREAMING
    return Report(
        role=replica.role,
        epoch=replica.view.epoch,
        high_seq=replica.accepted_seq,
        durable_seq=replica.store_facts.high_seq,
        commit_point=replica.commit_point,
        following=replica.follower.upstream,
        phase=find_phase(replica),
        problem=replica.problem,
        learner=learner,
        learner_is_close=is_close,
        learner_is_ready=is_close and replica.is_established and is_learner_ready(replica, learner),
        durable=dict(replica.ledger.durable),
    )


def find_learner(replica: "Replica") -> str:
    learner = replica.view.learner if replica.view.members else None
    if learner is None or replica.view.upstream_of(learner.node) != replica.node:
        return ""
    return learner.node


def find_phase(replica: "Replica") -> str:
    if not replica.is_head:
        return replica.follower.phase
    return "serving" if replica.is_established else "taking over"


def is_learner_ready(replica: "Replica", learner: str) -> bool:
    member = replica.view.find_member(learner)
    # What was promised in a history that this log has left since binds nobody.
    promised_seq = min(replica.promised_seq, replica.facts.high_seq)
    held_seq = replica.ledger.durable.get(learner, 0)
    return member is not None and member.state is MemberState.SYNCING and held_seq >= promised_seq
