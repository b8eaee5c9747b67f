"""The witness: a small file beside the environment that says how far it had come.

A bit flipped in LMDB's newest meta page, or an older copy of the file put in its place, makes LMDB open an
earlier state without a word. The witness is written after each commit and never fsynced: it costs a
microsecond, may lag after a power cut, and is never ahead of what was durable. So an environment that is
behind its witness is damaged.
"""

import os
import struct
from pathlib import Path

from kayos.errors import DamagedRecord
from kayos.model.record import seal, unseal

_ROW = struct.Struct(">QQ")
_KEY = b"witness"


class Witness:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> tuple[int, int] | None:
        """(generation, transaction) as last noted; None when there is none or it is torn."""
        stored = os.pread(self._file, 64, 0)
        try:
            generation, transaction = _ROW.unpack(unseal(_KEY, stored))
        except (DamagedRecord, struct.error):
            return None
        return generation, transaction

    def note(self, *, generation: int, transaction: int) -> None:
        os.pwrite(self._file, seal(_KEY, _ROW.pack(generation, transaction)), 0)

    def close(self) -> None:
        os.close(self._file)
