"""The state of a shard as a row, for `topic describe` and `cluster status`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kayos.client.core.topics import ShardStatus

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
    row["takeover"] = [
        {"history_id": entry.history_id.hex(), "start_seq": entry.start_seq, "epoch": entry.epoch}
        for entry in status.takeover
    ]
    row["problem"] = status.problem or None
    return row
