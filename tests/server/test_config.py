"""A node's settings: three origins, each checked, unknown keys refused by name."""

from pathlib import Path
from typing import Any

import pytest

from kayos.errors import InvalidArgument
from kayos.server.config import NodeConfig, load_config


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "kayos.toml"
    file.write_text(text)
    return file


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'listen = "127.0.0.1:1"\nlog_level = "debug"\nsubscribers_max = 5\n')
    environment = {"KAYOS_LISTEN": "127.0.0.1:2", "KAYOS_LOG_LEVEL": "error", "KAYOS_SERVICE_HOST": "10.0.0.1"}
    config = load_config(file, environment, {"listen": "127.0.0.1:3"})
    assert (config.listen, config.log_level, config.subscribers_max) == ("127.0.0.1:3", "error", 5)
    assert load_config(None, {}, {}) == NodeConfig()


def test_text_of_the_environment_becomes_the_fields_type() -> None:
    environment = {
        "KAYOS_DATA": "/somewhere",
        "KAYOS_STANDALONE": "yes",
        "KAYOS_REFLECTION": "off",
        "KAYOS_MAP_BYTES": "1073741824",
        "KAYOS_DRAIN_GRACE_S": "2.5",
    }
    config = load_config(None, environment, {})
    assert (config.data, config.standalone, config.reflection) == (Path("/somewhere"), True, False)
    assert (config.map_bytes, config.drain_grace_s) == (1 << 30, 2.5)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"lisen": "x"}, "unknown setting 'lisen' in the command line: known are"),
        ({"listen": "7400"}, "not HOST:PORT"),
        ({"listen": "127.0.0.1:70000"}, "port from 0 to 65535"),
        ({"listen": "127.0.0.1:-1"}, "not HOST:PORT"),
        ({"listen": "127.0.0.1:٣"}, "not HOST:PORT"),
        ({"listen": "0.0.0.0:7400"}, "open to other machines"),
        ({"listen": "[::]:7400"}, "open to other machines"),
        ({"advertise": "127.0.0.1:0"}, "port from 1 to 65535"),
        ({"log_level": "loud"}, "use one of debug, info, warning, error"),
        ({"log_format": "xml"}, "use one of auto, json, console"),
        ({"standalone": "perhaps"}, "expected bool"),
        ({"map_bytes": "many"}, "expected int"),
        ({"map_bytes": 1.5}, "expected int"),
        ({"map_bytes": True}, "expected int"),
        ({"map_bytes": 4096}, "give 1 MiB or more"),
        ({"map_bytes": (1 << 20) + 1}, "a multiple of"),
        ({"full_fraction": 1.5}, "give 0.1 to 1.0"),
        ({"full_fraction": float("nan")}, "give 0.1 to 1.0"),
        ({"stalled_reader_s": 0}, "above 0, up to 86400"),
        ({"stalled_reader_s": float("inf")}, "above 0, up to 86400"),
        ({"drain_grace_s": -1}, "give"),
        ({"subscribers_max": 0}, "give 1 or more"),
        ({"concurrent_calls_max": 0}, "give 1 or more"),
        ({"pin_retained_bytes_max": -1}, "give 0 or more"),
        ({"snapshot_memory_bytes_max": 1}, "give at least snapshot_copy_bytes_max"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named_with_what_to_do(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        load_config(None, {}, settings)
    assert complaint in refused.value.message
    assert next(iter(settings)) in refused.value.message


def test_other_machines_may_connect_when_it_is_said_in_words() -> None:
    assert load_config(None, {}, {"listen": "0.0.0.0:7400", "insecure_listen": True}).host == "0.0.0.0"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"listen = ", "is not TOML"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"lisen = 'x'", "unknown setting 'lisen' in"),
        (b"[node]\nlisten = 'x'", "unknown setting 'node'"),
        (b"listen = 5", "expected str"),
    ],
)
def test_an_unreadable_file_is_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    file = tmp_path / "kayos.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidArgument) as refused:
        load_config(file, {}, {})
    assert complaint in refused.value.message and str(file) in refused.value.message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot read the configuration .*: No such file"):
        load_config(tmp_path / "nothing.toml", {}, {})
    with pytest.raises(InvalidArgument, match="cannot read the configuration"):
        load_config(tmp_path, {}, {})


CLUSTER = """
[nodes]
a = "127.0.0.1:7401"
b = "127.0.0.1:7402"
"""


def test_a_node_of_a_cluster_listens_where_the_file_says_unless_told_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    config = load_config(None, {"KAYOS_NAME": "b"}, {"cluster_file": str(file)})
    assert (config.name, config.cluster_file, config.listen) == ("b", file, "127.0.0.1:7402")
    config.check_runnable()
    told = load_config(None, {}, {"cluster_file": file, "name": "a", "listen": "127.0.0.1:9"})
    assert told.listen == "127.0.0.1:9"
    assert load_config(None, {}, {"cluster_file": "", "name": ""}) == NodeConfig()


def test_a_node_is_alone_or_has_a_name_in_the_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    for flags, complaint in (
        ({"cluster_file": file, "name": "a", "standalone": True}, "both given: choose one"),
        ({"cluster_file": file}, "name is not given"),
        ({"cluster_file": file, "name": "Not so"}, "name: node name 'Not so' is not allowed"),
        ({"cluster_file": file, "name": "z"}, f"name 'z' is not in {file}, which names a, b"),
        ({"cluster_file": tmp_path / "none.toml", "name": "a"}, "cannot read the cluster file"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            load_config(None, {}, flags)
        assert complaint in refused.value.message
    file.write_text(CLUSTER.replace("127.0.0.1:7401", "10.0.0.1:7401"))
    with pytest.raises(InvalidArgument, match="open to other machines"):
        load_config(None, {}, {"cluster_file": file, "name": "a"})
    with pytest.raises(InvalidArgument, match="--standalone, or --cluster-file"):
        NodeConfig().check_runnable()
    NodeConfig(standalone=True).check_runnable()
