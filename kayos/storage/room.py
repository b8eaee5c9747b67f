"""How much room the disk has, and how much of it must stay free for what gives room back: deletes, trims, takeovers."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DiskRoom:
    free_bytes: int
    reserve_bytes: int

    @property
    def is_short(self) -> bool:
        return self.free_bytes < self.reserve_bytes


def find_disk_room(directory: Path, *, full_fraction: float, reserve_bytes_max: int) -> DiskRoom:
    """The reserve is a share of the disk, but on a large one no more than `reserve_bytes_max`."""
    disk = os.statvfs(directory)
    reserve_bytes = min(int(disk.f_blocks * disk.f_frsize * (1 - full_fraction)), reserve_bytes_max)
    return DiskRoom(disk.f_bavail * disk.f_frsize, reserve_bytes)
