"""The state of a shard as a row, for `topic describe` and `cluster status`."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kayos.client.core.topics import ShardStatus
    from kayos.model.takeover import TakeoverRow

SHARD_COLUMNS = (
    "topic",
    "shard",
    "role",
    "high_seq",
    "messages",
    "message_bytes",
    "tombstones",
    "marks",
    "pins",
    "file_bytes",
    "problem",
)


def shard_row(status: "ShardStatus") -> dict[str, Any]:
    """All that the node says; `problem` is null when all is well."""
    row = {name: getattr(status, name) for name in status.__dataclass_fields__}
    row["takeover"] = takeover_rows(status.takeover)
    row["incarnation"] = status.incarnation.hex()
    row["learner"] = asdict(status.learner) if status.learner is not None else None
    row["problem"] = status.problem or None
    return row


def takeover_rows(rows: "Iterable[TakeoverRow]") -> list[dict[str, Any]]:
    return [{"history_id": row.history_id.hex(), "start_seq": row.start_seq, "epoch": row.epoch} for row in rows]
