"""Control records as bytes: the value of a CONTROL record is [name, fields], in MessagePack.

The names are stable: a store on disk holds none of them (controls leave no row), but replicas of two versions
exchange them. Fields travel by name, so that one with a default can be added later.
"""

import msgspec

from kayos.errors import DamagedRecord
from kayos.model.control import (
    CommitMark,
    Control,
    CreatePin,
    DropMark,
    EndPin,
    Expire,
    ForgetProducers,
    Purge,
    RenewPin,
    Trim,
)

NAMES: dict[type[Control], str] = {
    CommitMark: "commit_mark",
    DropMark: "drop_mark",
    CreatePin: "create_pin",
    RenewPin: "renew_pin",
    EndPin: "end_pin",
    Purge: "purge",
    Trim: "trim",
    Expire: "expire",
    ForgetProducers: "forget_producers",
}

_encoder = msgspec.msgpack.Encoder()
_envelope_decoder = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_field_decoders: dict[str, msgspec.msgpack.Decoder[Control]] = {
    name: msgspec.msgpack.Decoder(control_class) for control_class, name in NAMES.items()
}


def encode_control(control: Control) -> bytes:
    return _encoder.encode((NAMES[type(control)], control))


def decode_control(value: bytes) -> Control:
    try:
        name, fields = _envelope_decoder.decode(value)
        decoder = _field_decoders[name]
        return decoder.decode(fields)
    except (msgspec.MsgspecError, KeyError) as error:
        raise DamagedRecord("a control record is malformed: the sender runs another version, or is damaged") from error
