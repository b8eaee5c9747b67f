"""The paper's example topology: three shards on three nodes, each node once at each place.

S1: producers → a → b → c → consumers
S2: producers → b → c → a → consumers
S3: producers → c → a → b → consumers
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.nodes import NodeProcess
from tests.ports import lasting_addresses

CHAINS = ["abc", "bca", "cab"]
TOPIC = "queue"


@dataclass
class Rotated:
    addresses: dict[str, str]
    nodes: dict[str, NodeProcess]

    @property
    def servers(self) -> str:
        return ",".join(self.addresses.values())


def describe(addresses: dict[str, str]) -> str:
    lines = ["[nodes]", *(f'{name} = "{address}"' for name, address in addresses.items())]
    lines += [f"[topics.{TOPIC}]", f"shards = {len(CHAINS)}", "replicas = 3"]
    for shard, members in enumerate(CHAINS):
        named = ", ".join(f'{{ node = "{node}" }}' for node in members)
        lines += ["[[chains]]", f'topic = "{TOPIC}"', f"shard = {shard}", "epoch = 1", f"members = [{named}]"]
    return "\n".join(lines) + "\n"


@contextmanager
def start_rotated(directory: Path) -> Iterator[Rotated]:
    addresses = dict(zip("abc", lasting_addresses(3), strict=True))
    file = directory / "cluster.toml"
    file.write_text(describe(addresses))
    with ExitStack() as stack:
        nodes = {}
        for name, address in addresses.items():
            nodes[name] = stack.enter_context(
                NodeProcess.start(
                    directory / name,
                    listen=address,
                    standalone=False,
                    name=name,
                    cluster_file=str(file),
                    map_bytes=1 << 28,
                )
            )
        yield Rotated(addresses, nodes)
