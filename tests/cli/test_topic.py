"""`kayos topic`: the life of a topic from its creation to its end, in every form of output."""

import json

from tests.cli.command import Kayos


def test_the_life_of_a_topic(kayos: Kayos) -> None:
    # A topic is made, and made again: the same settings are no conflict, others are.
    made = kayos.ok("topic", "create", "life", "--shards", "2", "--max-age-ms", "60000").json
    assert (made["name"], made["shards"], made["mode"], made["max_age_ms"]) == ("life", 2, "compact", 60000)
    assert kayos.ok("topic", "create", "life", "--shards", "2", "--max-age-ms", "60000").json == made
    other = kayos("topic", "create", "life", "--shards", "3")
    assert (other.code, other.out) == (6, b"") and "exists with other settings" in other.err

    # It stands in the list, in all three forms.
    assert made in kayos.ok("topic", "list").json
    assert made in kayos.ok("topic", "list", "-o", "jsonl").rows
    table = kayos.ok("topic", "list", "-o", "table").out.decode().splitlines()
    assert table[0].split()[:3] == ["NAME", "MODE", "SHARDS"]
    assert ["life", "compact", "2"] in [line.split()[:3] for line in table[1:]]

    # Altering changes what was given and nothing else.
    altered = kayos.ok("topic", "alter", "life", "--tombstone-ms", "5000").json
    assert altered == {**made, "tombstone_ms": 5000}
    nothing = kayos("topic", "alter", "life")
    assert nothing.code == 2 and "--max-age-ms" in nothing.err

    # Describing shows settings and shards.
    kayos.ok("produce", "life", "-k", "a", "-v", "1")
    described = kayos.ok("topic", "describe", "life").json
    assert [row["shard"] for row in described["shard_status"]] == [0, 1]
    assert sum(row["messages"] for row in described["shard_status"]) == 1
    assert all(row["problem"] is None for row in described["shard_status"])
    shown = kayos.ok("topic", "describe", "life", "-o", "table").out.decode()
    assert "tombstone_ms  5000" in shown and "head+tail" in shown

    # Without a terminal to ask on, deleting needs --yes; then the topic is gone.
    refused = kayos("topic", "delete", "life")
    assert refused.code == 2 and "--yes" in refused.err
    assert kayos.ok("topic", "delete", "life", "--yes").json == {"name": "life", "deleted": True}
    assert kayos("topic", "describe", "life").code == 3
    assert "life" not in {entry["name"] for entry in kayos.ok("topic", "list").json}


def test_bad_names_and_settings_are_refused_before_anything_changes(kayos: Kayos) -> None:
    before = kayos.ok("topic", "list").json
    for name in ("../x", "a/b", "Große", "", "x" * 64, "a\nb"):
        refused = kayos("topic", "create", name)
        assert refused.code == 2 and refused.err.count("\n") == 1, refused
        assert refused.err.startswith("kayos: ")
    assert kayos("topic", "create", "t", "--shards", "0").code == 2
    assert kayos("topic", "create", "t", "--shards", "99999").code == 2
    assert kayos("topic", "create", "t", "--mode", "queue").code == 2
    assert kayos("topic", "create", "t", "--max-bytes", "5").code == 2  # needs mode log
    assert kayos("topic", "create", "t", "--replicas", "3").code == 2  # one node holds one replica
    assert kayos.ok("topic", "list").json == before


def test_servers_come_from_the_flag_then_the_flag_before_the_command_then_the_environment(kayos: Kayos) -> None:
    nowhere = {"KAYOS_SERVERS": "127.0.0.1:1"}
    for arguments in (
        ("topic", "list", "--servers", kayos.servers),
        ("--servers", kayos.servers, "topic", "list"),
        ("--servers", "127.0.0.1:1", "topic", "list", "--servers", kayos.servers),
        ("topic", "list", "--servers", f"127.0.0.1:1,{kayos.servers}"),
    ):
        listed = kayos(*arguments, env=nowhere)
        assert listed.code == 0 and isinstance(json.loads(listed.out), list), listed
    for wrong in ("nonsense", "host:", ":7400", "host:99999", ","):
        assert kayos("topic", "list", "--servers", wrong).code == 2
