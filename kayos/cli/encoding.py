"""Bytes as text and back: utf8, base64 or hex.

Nothing is ever mangled: bytes that are not UTF-8 come out as base64 even where utf8 was asked for, and whoever shows
them says so (`value_encoding`).
"""

import base64
import binascii

from kayos.errors import InvalidArgument

ENCODINGS = ("utf8", "base64", "hex")


def to_text(data: bytes, encoding: str) -> tuple[str, str]:
    """The text, and the encoding that it is really in."""
    if encoding == "hex":
        return data.hex(), "hex"
    if encoding == "utf8":
        try:
            return data.decode(), "utf8"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(data).decode(), "base64"


def from_text(what: str, text: str | bytes, encoding: str) -> bytes:
    """The bytes behind a text. Bytes instead of text are taken as they are under utf8, valid or not."""
    if encoding == "utf8":
        if isinstance(text, bytes):
            return text
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"{what} holds half a surrogate pair, which is no text: use base64") from None
    try:
        if encoding == "base64":
            return base64.b64decode(text, validate=True)
        return binascii.unhexlify(text)
    except ValueError:
        raise InvalidArgument(f"{what} is not {encoding}: correct it, or name the encoding that it is in") from None
