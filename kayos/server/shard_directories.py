"""Where the node's shards lie on the disk.

    DIR/shards/<topic_id>-<shard>/    a store
    DIR/made/<topic_id>-<shard>       an empty file: the store was made, so from now on its absence is a loss
    DIR/trash/                        stores of deleted topics on their way out

Names come from ids, never from what callers say. Without `made` a shard whose directory was lost would begin again,
empty and without a word. A deleted topic's stores are moved to the trash before they are removed, so that a
crash never leaves half a store where a whole one is expected.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from kayos.errors import DamagedStore
from kayos.files import fsync_path
from kayos.model.topic import Topic


class ShardDirectories:
    """All of it blocks: call it from a thread."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._shards = data / "shards"
        self._made = data / "made"
        self._trash = data / "trash"

    def prepare(self) -> None:
        """Make what is not there, durably, and empty the trash."""
        for directory in (self._shards, self._made, self._trash):
            directory.mkdir(mode=0o700, exist_ok=True)
        fsync_path(self._data)
        for path in self._trash.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def path_of(self, topic: Topic, index: int) -> Path:
        return self._shards / name_of(topic, index)

    def check(self, topic: Topic, index: int) -> Path:
        """The shard's directory, there or yet to be made; refuses one that was made and is gone."""
        path = self.path_of(topic, index)
        if path.is_symlink():
            raise DamagedStore(f"{path} is a symbolic link: put the shard's directory itself there")
        if not path.exists() and self.was_made(topic, index):
            raise DamagedStore(
                f"{path} is missing although this node held the shard: restore it from a copy, or delete the topic"
            )
        return path

    def was_made(self, topic: Topic, index: int) -> bool:
        return (self._made / name_of(topic, index)).exists()

    def note_made(self, topic: Topic, index: int) -> None:
        if not self.was_made(topic, index):
            (self._made / name_of(topic, index)).touch(mode=0o600)
            fsync_path(self._made)

    def throw_away(self, topic: Topic, index: int) -> None:
        path = self.path_of(topic, index)
        (self._made / path.name).unlink(missing_ok=True)
        if path.exists():
            target = self._trash / path.name
            path.rename(target)
            shutil.rmtree(target, ignore_errors=True)

    def find_strangers(self, topics: list[Topic]) -> Iterator[str]:
        """Directories that no topic names."""
        known = {name_of(topic, index) for topic in topics for index in range(topic.shards)}
        return (path.name for path in self._shards.iterdir() if path.name not in known)

    def names(self) -> set[str]:
        return {path.name for path in self._shards.iterdir()} if self._shards.is_dir() else set()


def name_of(topic: Topic, index: int) -> str:
    return f"{topic.topic_id}-{index}"
