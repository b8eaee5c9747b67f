"""Names and settings of topics: one pattern for all names, every number checked, and the answer says what to do."""

import pytest

from kayos.errors import InvalidArgument
from kayos.model.topic import Mode, Retention, Topic, check_name

GOOD = ["a", "0", "orders", "orders.eu-1_x", "a" * 63]
NAMES_OF_PATHS = ["", ".", "..", "../x", "/etc", "a/b", "-a", "_a", ".a"]
BAD = [*NAMES_OF_PATHS, "A", "CON", "a" * 64, "a" * 1000, "é", "🐍", "a\n", "a\0b", " a"]


@pytest.mark.parametrize("name", GOOD)
def test_good_names(name: str) -> None:
    check_name("topic", name)


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused_and_told_why(name: str) -> None:
    with pytest.raises(InvalidArgument, match="use 1 to 63 of a-z") as caught:
        check_name("topic", name)
    assert len(caught.value.message) < 250


@pytest.mark.parametrize(
    "settings",
    [
        {"shards": 0},
        {"shards": 1025},
        {"replicas": 0},
        {"replicas": 10},
        {"replicas": 2, "tails": 3},
        {"replicas": 2, "min_durable": 3},
        {"min_replicas": 0},
        {"retention": Retention(max_age_ms=-1)},
        {"retention": Retention(max_bytes=5)},
        {"retention": Retention(max_messages=5)},
        {"retention": Retention(max_bytes=2**63), "mode": Mode.LOG},
    ],
    ids=str,
)
def test_bad_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=r": (give|in mode)|needs a topic"):
        Topic("orders", "id", **settings).check()


def test_a_log_may_be_bounded_by_size() -> None:
    Topic("orders", "id", mode=Mode.LOG, retention=Retention(max_bytes=5, max_messages=5)).check()
