"""What `connect` accepts, and what it says about the rest."""

from typing import Any

import pytest

from kayos.client.core.settings import PRODUCER_EPOCH_MAX, make_settings, parse_servers
from kayos.errors import InvalidArgument
from kayos.limits import BATCH_BYTES_MAX


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1", ("a:1",)),
        ("a:1,b:2", ("a:1", "b:2")),
        (" a:1 , b:2, ", ("a:1", "b:2")),
        ("[::1]:7400", ("[::1]:7400",)),
    ],
)
def test_servers_are_addresses_with_commas_between(servers: str, addresses: tuple[str, ...]) -> None:
    assert parse_servers(servers) == addresses


@pytest.mark.parametrize("servers", ["", " , ", "localhost", ":7400", "a:", "a:x", "a:0", "a:65536", "a:1,b"])
def test_other_servers_are_refused_with_an_example(servers: str) -> None:
    with pytest.raises(InvalidArgument, match=r"HOST:PORT"):
        parse_servers(servers)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"delivery_timeout_s": 86_401}, "delivery_timeout_s is 86401"),
        ({"linger_ms": -1}, "linger_ms is -1"),
        ({"linger_ms": 60_001}, "linger_ms is 60001"),
        ({"batch_bytes": 0}, "batch_bytes is 0"),
        ({"batch_bytes": BATCH_BYTES_MAX + 1}, "batch_bytes is"),
        ({"buffer_bytes": BATCH_BYTES_MAX - 1}, "buffer_bytes is"),
        ({"producer_id": "p"}, "go together"),
        ({"producer_epoch": 1}, "go together"),
        ({"producer_id": "", "producer_epoch": 1}, "has 0 bytes"),
        ({"producer_id": "x" * 65, "producer_epoch": 1}, "has 65 bytes"),
        ({"producer_id": "p", "producer_epoch": -1}, "producer_epoch is -1"),
        ({"producer_id": "p", "producer_epoch": PRODUCER_EPOCH_MAX + 1}, "producer_epoch is"),
    ],
)
def test_a_setting_out_of_bounds_is_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        make_settings("a:1", **wrong)


def test_without_a_producer_id_every_client_is_another_producer() -> None:
    first, second = make_settings("a:1"), make_settings("a:1")
    assert len(first.producer_id) == 16
    assert first.producer_id != second.producer_id


def test_the_epochs_of_two_lives_never_meet() -> None:
    old, new = (make_settings("a:1", producer_id="p", producer_epoch=epoch) for epoch in (3, 4))
    assert old.producer_id == b"p"
    assert old.last_epoch + 1 == new.first_epoch
    assert make_settings("a:1", producer_id="p", producer_epoch=PRODUCER_EPOCH_MAX).last_epoch == 2**32 - 1
