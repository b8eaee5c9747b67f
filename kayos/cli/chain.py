"""`kayos chain`: the replicas of a shard, how far each has got, and what an operator may do next."""

from typing import TYPE_CHECKING, Any

import click

from kayos.cli.options import Connection, connection_options, output_option, topic_argument
from kayos.cli.output import choose_format, show_one, show_rows, write_out
from kayos.cli.shards import takeover_rows

if TYPE_CHECKING:
    from kayos.client.core.chain import ChainStatus, MemberStatus
    from kayos.client.core.topics import ShardStatus

_COLUMNS = (
    "node",
    "address",
    "role",
    "state",
    "high_seq",
    "durable_seq",
    "visible_seq",
    "lag",
    "phase",
    "sync",
    "following",
    "problem",
)


@click.group()
def chain() -> None:
    """Show the chain of a shard."""


@chain.command(epilog="\b\nExample:\n  kayos chain show orders 0\n  kayos chain show orders 0 -o json | jq .next_step")
@topic_argument
@click.argument("shard", type=click.IntRange(0))
@output_option
@connection_options
def show(connection: Connection, topic: str, shard: int, output: str | None) -> None:
    """Show who is in the chain of SHARD, how far each replica has got, and the takeover table.

    Every member is asked itself. LAG counts the sequences that it is behind the head. Exit code 1 if a member does not
    answer or has a problem.
    """
    with connection.open() as client:
        found = client.topics.chain(topic, shard)
    rows = [member_row(found, each) for each in found.members]
    summary = summarize(found)
    if choose_format(output) == "table":
        show_rows(rows, output, _COLUMNS)
        write_out(b"\n")
        show_one({name: value for name, value in summary.items() if name != "takeover"}, output)
        write_out(b"\n")
        show_rows(summary["takeover"], output, ("history_id", "start_seq", "epoch"))
    else:
        show_one({**summary, "members": rows}, output)
    troubled = [row for row in rows if row["problem"]]
    if troubled:
        raise click.ClickException(
            f"{len(troubled)} of {len(rows)} members have a problem, the first is {troubled[0]['node']}: "
            f"{troubled[0]['problem']}"
        )


def member_row(found: "ChainStatus", member: "MemberStatus") -> dict[str, Any]:
    """What is not known is null."""
    status, head = member.status, find_head(found)
    row: dict[str, Any] = dict.fromkeys(_COLUMNS)
    row |= {"node": member.member.node, "address": member.address, "state": str(member.member.state)}
    row["problem"] = find_problem(found, member)
    if status is None:
        return row
    for name in ("role", "high_seq", "durable_seq", "visible_seq", "phase", "sync"):
        row[name] = getattr(status, name)
    row["following"] = status.following or None
    row["lag"] = max(0, head.high_seq - status.high_seq) if head is not None else None
    row["epoch"] = status.epoch
    row["incarnation"] = status.incarnation.hex()
    row["commit_point"] = status.commit_point
    row["durable"] = status.durable
    return row


def find_problem(found: "ChainStatus", member: "MemberStatus") -> str | None:
    status = member.status
    if status is None:
        return member.failure
    if not status.problem and status.epoch != found.epoch:
        return f"it is at epoch {status.epoch}, the view at {found.epoch}"
    return status.problem or None


def find_head(found: "ChainStatus") -> "ShardStatus | None":
    return found.members[0].status if found.members else None


def summarize(found: "ChainStatus") -> dict[str, Any]:
    """What concerns the chain as a whole, as far as members answered."""
    answered = [member for member in found.members if member.status is not None]
    statuses = [member.status for member in answered if member.status is not None]
    tables = {status.takeover for status in statuses}
    head = find_head(found)
    return {
        "topic": found.topic.name,
        "shard": found.shard,
        "epoch": found.epoch,
        "commit_point": max((status.commit_point for status in statuses), default=None),
        "min_durable": found.topic.min_durable,
        "min_replicas": found.topic.min_replicas,
        "accepts_writes": head.accepts_writes if head is not None else None,
        "tables_agree": len(tables) == 1 if tables else None,
        "next_step": find_next_step(found),
        "takeover": takeover_rows(statuses[0].takeover) if statuses else [],
    }


def find_next_step(found: "ChainStatus") -> str | None:
    """What may be done about the newcomer; None when there is none. The one that feeds it knows."""
    from kayos.model.chain import MemberState

    newcomer = found.members[-1].member if found.members else None
    if newcomer is None or newcomer.state is MemberState.SERVING:
        return None
    feeder = found.members[-2] if len(found.members) > 1 else None
    learner = feeder.status.learner if feeder is not None and feeder.status is not None else None
    if feeder is None or learner is None or learner.node != newcomer.node:
        name = feeder.member.node if feeder is not None else "its upstream"
        return f"{newcomer.node}: wait until {name}, which feeds it, tells of it"
    if newcomer.state is MemberState.WAITING:
        return f"{newcomer.node}: " + ("ready to be made syncing" if learner.is_close else "wait, it catches up")
    return f"{newcomer.node}: " + ("ready to be made serving" if learner.is_ready else "wait, it syncs")
