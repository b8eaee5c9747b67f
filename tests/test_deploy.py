"""What `deploy/` ships is held against the code: every setting is there with its default, every flag exists."""

import shlex
import tomllib
from configparser import ConfigParser
from dataclasses import fields
from pathlib import Path

from kayos.cli.node import node
from kayos.cluster.chain_file import parse_cluster
from kayos.server.config import NodeConfig, load_config

DEPLOY = Path(__file__).parent.parent / "deploy"


def test_the_example_names_every_setting_with_its_default() -> None:
    file = DEPLOY / "kayos.toml"
    assert set(tomllib.loads(file.read_text())) == {field.name for field in fields(NodeConfig)}
    assert load_config(file, {}, {}) == load_config(None, {}, {"standalone": True})


def test_the_example_of_a_static_cluster_is_one() -> None:
    file = DEPLOY / "cluster.toml"
    cluster = parse_cluster(file.read_bytes(), file)
    assert cluster.chains["orders", 0].serving == ("a", "b", "c")


def test_the_unit_starts_a_node_with_flags_that_exist() -> None:
    unit = ConfigParser(strict=False)
    unit.read(DEPLOY / "kayos.service")
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/kayos")
    assert arguments[:2] == ["node", "run"]
    known = {name for option in node.commands["run"].params for name in option.opts}
    assert {argument for argument in arguments[2:] if argument.startswith("--")} <= known
