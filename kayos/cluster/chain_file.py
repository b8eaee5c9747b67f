"""The file that names a static cluster: its nodes, topics and chains.

    [nodes]
    a = "10.0.0.1:7400"
    b = "10.0.0.2:7400"
    c = "10.0.0.3:7400"

    [topics.orders]
    shards = 1                   # as in 'kayos topic create': replicas, tails, min_durable, min_replicas, mode,
    replicas = 3                 # max_age_ms, max_bytes, max_messages, tombstone_ms

    [[chains]]
    topic = "orders"
    shard = 0
    epoch = 1                    # higher with every change of the chain
    members = [{ node = "a" }, { node = "b" }, { node = "c" }]
    tails = 1                    # the topic's, unless given

A member may have a `state` (waiting, syncing, serving; serving unless given) and the `incarnation`, in hex, that the
place is for. The file is read whole and believed whole or not at all; every error names the place and the value.
"""

import hashlib
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kayos.cluster.section import Section, placed
from kayos.errors import InvalidArgument
from kayos.limits import (
    CLUSTER_FILE_BYTES_MAX,
    INCARNATION_BYTES_MAX,
    NUMBER_MAX,
    SHARDS_PER_NODE_MAX,
    TOMBSTONE_RETENTION_MS_DEFAULT,
    TOPICS_MAX,
)
from kayos.model.address import check_address
from kayos.model.chain import ChainView, Member, MemberState
from kayos.model.topic import Mode, Retention, Topic, check_name

ShardOf = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """`nodes` maps names to addresses; every shard of every topic has a chain."""

    nodes: Mapping[str, str]
    topics: Mapping[str, Topic]
    chains: Mapping[ShardOf, ChainView]


def read_content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(CLUSTER_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidArgument(f"cannot read the cluster file {path}: {error.strerror}") from error
    if len(content) > CLUSTER_FILE_BYTES_MAX:
        raise InvalidArgument(f"the cluster file {path} has more than {CLUSTER_FILE_BYTES_MAX} bytes")
    return content


def parse_cluster(content: bytes, path: Path) -> ClusterFile:
    try:
        document = tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the cluster file {path} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"the cluster file {path} is not TOML: {error}") from error
    with placed(str(path)):
        section = Section(document)
        nodes = _parse_nodes(section.table("nodes"))
        topics = _parse_topics(section.table("topics", {}), nodes)
        chains = _parse_chains(section.tables("chains", []), nodes, topics)
        section.end()
        _check_all_shards(topics, chains)
    return ClusterFile(nodes, topics, chains)


def topic_id_of(name: str) -> str:
    """The same on every node, since nobody could hand out another."""
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def check_follows(old: ClusterFile, new: ClusterFile) -> None:
    """Refuse a new file that contradicts the old one: an epoch names one chain for ever."""
    for name, topic in old.topics.items():
        found = new.topics.get(name)
        with placed(f"topics.{name}"):
            if found is None:
                raise InvalidArgument("it is gone: put it back, or restart the nodes without it")
            if (found.shards, found.mode) != (topic.shards, topic.mode):
                raise InvalidArgument(
                    f"it had {topic.shards} shards of mode {topic.mode!s}: these stay, make another topic"
                )
    for (name, shard), view in old.chains.items():
        with placed(f"the chain of {name}/{shard}"):
            _check_chain_follows(view, new.chains[name, shard], old.nodes, new.nodes)


def _check_chain_follows(
    old: ChainView, new: ChainView, old_nodes: Mapping[str, str], new_nodes: Mapping[str, str]
) -> None:
    if new.epoch < old.epoch:
        raise InvalidArgument(f"epoch fell from {old.epoch} to {new.epoch}: give {old.epoch + 1} or more")
    if new.epoch > old.epoch:
        return
    if new != old:
        raise InvalidArgument(f"it changed within epoch {old.epoch}: give it a higher one")
    for member in old.members:
        if old_nodes[member.node] != new_nodes[member.node]:
            raise InvalidArgument(f"the address of {member.node} changed within epoch {old.epoch}: give a higher one")


# The parts of the file


def _parse_nodes(table: dict[str, Any]) -> dict[str, str]:
    with placed("nodes"):
        if not table:
            raise InvalidArgument('it is empty: give each node a line such as a = "127.0.0.1:7400"')
        section = Section(table)
        for name in table:
            check_name("node", name)
            check_address(name, section.text(name), port_min=1)
        address, count = Counter(table.values()).most_common(1)[0]
        if count > 1:
            raise InvalidArgument(f"{address!r} stands {count} times: each node listens on its own")
    return table


def _parse_topics(table: dict[str, Any], nodes: Mapping[str, str]) -> dict[str, Topic]:
    if len(table) > TOPICS_MAX:
        raise InvalidArgument(f"topics: there are {len(table)}, {TOPICS_MAX} are the most")
    topics = {}
    for name in table:
        with placed(f"topics.{name}"):
            topics[name] = _parse_topic(name, Section(Section(table).table(name)))
            if topics[name].replicas > len(nodes):
                raise InvalidArgument(f"replicas is {topics[name].replicas}: the file names {len(nodes)} nodes")
    return topics


def _parse_topic(name: str, section: Section) -> Topic:
    replicas = section.number("replicas", 1)
    mode = section.text("mode", "compact")
    if mode not in tuple(Mode):
        raise InvalidArgument(f"mode is {mode!r}: use 'compact' or 'log'")
    topic = Topic(
        name=name,
        topic_id=topic_id_of(name),
        shards=section.number("shards", 1),
        replicas=replicas,
        tails=section.number("tails", 1),
        min_durable=section.number("min_durable", replicas),
        min_replicas=section.number("min_replicas", replicas // 2 + 1),
        mode=Mode(mode),
        retention=Retention(
            max_age_ms=section.number("max_age_ms", 0),
            max_bytes=section.number("max_bytes", 0),
            max_messages=section.number("max_messages", 0),
            tombstone_ms=section.number("tombstone_ms", TOMBSTONE_RETENTION_MS_DEFAULT),
        ),
    )
    section.end()
    topic.check()
    return topic


def _parse_chains(
    tables: list[dict[str, Any]], nodes: Mapping[str, str], topics: Mapping[str, Topic]
) -> dict[ShardOf, ChainView]:
    chains: dict[ShardOf, ChainView] = {}
    for number, table in enumerate(tables, 1):
        with placed(f"chains, number {number}"):
            section = Section(table)
            name, shard = section.text("topic"), section.number("shard")
            topic = topics.get(name)
            if topic is None:
                raise InvalidArgument(f"topic is {name!r}: the file does not describe it under [topics.{name}]")
            if not 0 <= shard < topic.shards:
                raise InvalidArgument(f"shard is {shard}: those of {name!r} are 0 to {topic.shards - 1}")
            if (name, shard) in chains:
                raise InvalidArgument(f"the chain of {name}/{shard} stands twice")
            chains[name, shard] = _parse_chain(section, nodes, topic)
    return chains


def _parse_chain(section: Section, nodes: Mapping[str, str], topic: Topic) -> ChainView:
    members = []
    for number, table in enumerate(section.tables("members"), 1):
        with placed(f"members, number {number}"):
            members.append(_parse_member(Section(table), nodes))
    serving = sum(member.state is MemberState.SERVING for member in members)
    view = ChainView(
        epoch=section.number("epoch"),
        members=tuple(members),
        tails=section.number("tails", max(1, min(topic.tails, serving - 1))),
        min_durable=topic.min_durable,
        min_replicas=topic.min_replicas,
    )
    section.end()
    view.check()
    if view.epoch > NUMBER_MAX:
        raise InvalidArgument(f"epoch is {view.epoch}: {NUMBER_MAX} is the highest")
    if serving > topic.replicas:
        raise InvalidArgument(f"{serving} members serve, topic {topic.name!r} has {topic.replicas} replicas")
    return view


def _parse_member(section: Section, nodes: Mapping[str, str]) -> Member:
    node = section.text("node")
    if node not in nodes:
        raise InvalidArgument(f"node is {node!r}: the file names {', '.join(nodes)}")
    state = section.text("state", "serving")
    if state not in tuple(MemberState):
        raise InvalidArgument(f"state is {state!r}: use one of {', '.join(MemberState)}")
    incarnation = section.text("incarnation", "")
    section.end()
    try:
        decoded = bytes.fromhex(incarnation)
    except ValueError:
        raise InvalidArgument(f"incarnation is {incarnation!r}: give hexadecimal digits") from None
    if len(decoded) > INCARNATION_BYTES_MAX:
        raise InvalidArgument(f"incarnation has {len(decoded)} bytes: give at most {INCARNATION_BYTES_MAX}")
    return Member(node, decoded, MemberState(state))


def _check_all_shards(topics: Mapping[str, Topic], chains: Mapping[ShardOf, ChainView]) -> None:
    for topic in topics.values():
        for shard in range(topic.shards):
            if (topic.name, shard) not in chains:
                raise InvalidArgument(f"shard {topic.name}/{shard} has no chain: add it under [[chains]]")
    held = Counter(member.node for view in chains.values() for member in view.members)
    for node, count in held.items():
        if count > SHARDS_PER_NODE_MAX:
            raise InvalidArgument(f"node {node} is in {count} chains, {SHARDS_PER_NODE_MAX} are the most")
