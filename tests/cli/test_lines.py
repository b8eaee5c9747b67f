"""Lines of stdin that are no message: each is named with its number and what is wrong with it."""

import io

import pytest

from kayos.cli.lines import LINE_BYTES_MAX, LineError, LineParser
from kayos.client.core.write import make_write
from kayos.errors import InvalidArgument


def read_all(text: bytes) -> None:
    """As `kayos produce` does: through the parser, then through the client's own checks."""
    parser = LineParser(key_encoding="utf8", value_encoding="utf8", delimiter=None, plain=False)
    for number, _, line in parser.read(io.BytesIO(text)):
        try:
            make_write(line.key, line.value, headers=line.headers, ttl_ms=line.ttl_ms, expected_seq=line.expected_seq)
        except InvalidArgument as error:
            raise LineError(number, error.message) from error


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "no JSON object"),
        (b'"text"', "no JSON object"),
        (b"{}", '"value"'),
        (b'{"value": 5}', "'value' is a number"),
        (b'{"value": {"a": 1}}', "'value' is an object"),
        (b'{"value": "v", "key": true}', "'key' is true or false"),
        (b'{"value": "v", "valeu": 1}', "unknown field 'valeu'"),
        (b'{"value": "v", "value": "w"}', "stands twice"),
        (b'{"value": "\xff"}', "not UTF-8"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"value": "x", "value_encoding": "base64"}', "not base64"),
        (b'{"value": "0", "value_encoding": "hex"}', "not hex"),
        (b'{"value": "0", "value_encoding": "rot13"}', "value_encoding"),
        (b'{"value": "v", "headers": {"a": 1}}', "headers"),
        (b'{"value": "v", "headers": [["a"]]}', "headers"),
        (b'{"value": "v", "ttl_ms": "5"}', "'ttl_ms' is text"),
        (b'{"value": "v", "ttl_ms": true}', "'ttl_ms' is true or false"),
        (b'{"value": "v", "ttl_ms": -1}', "ttl_ms"),
        (b'{"value": null}', "needs a key"),
        (b'{"value": "v", "key": ""}', "the key has 0 bytes"),
        (b'{"value": "v", "expected_seq": 0}', "needs a key"),
        (b"[" * 100_000, "not JSON"),
        (b'{"value": "v", "ttl_ms": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"key": "' + b"k" * 5000 + b'", "value": "v"}', "5000 bytes"),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else "",
)
def test_a_bad_line_is_named(line: bytes, reason: str) -> None:
    with pytest.raises(LineError) as caught:
        read_all(b'{"value": "good"}\n' + line + b"\n")
    assert str(caught.value).startswith("line 2: ")
    assert reason in str(caught.value)


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
            self.given += len(buffer)
            buffer[:] = b"x" * len(buffer)
            return len(buffer)

    source = Endless()
    parser = LineParser(key_encoding="utf8", value_encoding="utf8", delimiter=None, plain=True)
    with pytest.raises(LineError, match="longer than"):
        next(parser.read(io.BufferedReader(source)))
    assert source.given < 2 * LINE_BYTES_MAX
