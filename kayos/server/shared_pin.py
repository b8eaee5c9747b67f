"""Pins that subscribers far behind share, so that a thousand returning consumers cost what one does.

A shard gets at most one new shared pin per `SHARED_PIN_INTERVAL_S`. A pin is counted by its users; its lease
is renewed while it has any and it is released after a short idle time. A pin that the head ended (retained
bytes over budget) is dropped here; its readers hear SNAPSHOT_EXPIRED from the store.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from kayos.cluster.turns import Turns
from kayos.errors import Aborted, KayosError, NotFound
from kayos.limits import PIN_LEASE_MS_DEFAULT, SHARED_PIN_IDLE_S, SHARED_PIN_INTERVAL_S
from kayos.model.control import Control, CreatePin, EndPin, RenewPin
from kayos.model.write import WriteResult

SHARED_PREFIX = "shared."
_RENEW_S = PIN_LEASE_MS_DEFAULT / 1000 / 3


class ControlWriter(Protocol):
    async def control(self, control: Control) -> WriteResult: ...


@dataclass(slots=True)
class SharedPin:
    pin_id: str
    seq: int
    users: int = 0
    created_at: float = field(default_factory=time.monotonic)
    idle_since: float = field(default_factory=time.monotonic)
    renewed_at: float = field(default_factory=time.monotonic)


class SharedPins:
    def __init__(self, shard: ControlWriter, log: Any) -> None:
        self._shard = shard
        self._log = log
        self._turns = Turns()
        self._newest: SharedPin | None = None
        self._keepers: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def use(self, *, above_seq: int) -> AsyncIterator[SharedPin]:
        """A living pin whose snapshot reaches above `above_seq`."""
        # To its end: a pin whose first user goes away must still be known here, or a storm of subscribers
        # that come and go would leave one behind each.
        pin = await self._turns.take(self._find_or_create(above_seq))
        pin.users += 1
        try:
            yield pin
        finally:
            pin.users -= 1
            pin.idle_since = time.monotonic()

    def close(self) -> None:
        """Stop renewing; what is left ends with its lease."""
        for keeper in self._keepers.values():
            keeper.cancel()
        self._keepers.clear()
        self._newest = None

    async def _find_or_create(self, above_seq: int) -> SharedPin:
        newest = self._newest
        if newest is not None:
            age_s = time.monotonic() - newest.created_at
            if age_s < SHARED_PIN_INTERVAL_S and newest.seq > above_seq:
                return newest
            await asyncio.sleep(max(0.0, SHARED_PIN_INTERVAL_S - age_s))
        return await self._create()

    async def _create(self) -> SharedPin:
        pin_id = SHARED_PREFIX + secrets.token_hex(8)
        result = await self._shard.control(CreatePin(pin_id, PIN_LEASE_MS_DEFAULT))
        pin = SharedPin(pin_id, result.last_seq)
        self._newest = pin
        self._keepers[pin_id] = asyncio.create_task(self._keep(pin), name=f"keep-{pin_id}")
        return pin

    async def _keep(self, pin: SharedPin) -> None:
        try:
            while True:
                await asyncio.sleep(SHARED_PIN_IDLE_S)
                if await self._end_or_renew(pin):
                    return
        except (NotFound, Aborted):
            self._log.info("shared pin ended early", pin=pin.pin_id, seq=pin.seq)
        finally:
            self._keepers.pop(pin.pin_id, None)
            if self._newest is pin:
                self._newest = None

    async def _end_or_renew(self, pin: SharedPin) -> bool:
        """True when the pin was ended."""
        now = time.monotonic()
        try:
            if not pin.users and now - pin.idle_since >= SHARED_PIN_IDLE_S:
                if self._newest is pin:
                    self._newest = None
                await self._shard.control(EndPin(pin.pin_id, "no reader left"))
                return True
            if now - pin.renewed_at >= _RENEW_S:
                await self._shard.control(RenewPin(pin.pin_id, PIN_LEASE_MS_DEFAULT))
                pin.renewed_at = now
        except (NotFound, Aborted):
            raise
        except KayosError as error:
            # The store is full or busy: try again at the next turn, the lease has room for that.
            self._log.warning("shared pin not kept", pin=pin.pin_id, reason=error.message)
        return False
