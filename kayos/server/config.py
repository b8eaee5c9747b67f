"""A node's settings: a TOML file, then KAYOS_* in the environment, then flags; the later wins.

An unknown key in the file or among the flags is an error that names it. Unknown KAYOS_* variables are not:
Kubernetes puts KAYOS_SERVICE_HOST and the like into every container near a service called `kayos`, and
clients have variables of their own. All is checked here, before the node touches the disk.
"""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from kayos import limits
from kayos.cluster.chain_file import parse_cluster, read_content
from kayos.errors import InvalidArgument
from kayos.model.address import check_address
from kayos.model.topic import check_name
from kayos.server.logs import LEVELS

VARIABLE_PREFIX = "KAYOS_"
LOG_FORMATS = ("auto", "json", "console")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """`listen` is HOST:PORT (port 0: any free one). `advertise` is the address that clients are told; empty:
    the one listened on. `insecure_listen` says in words that other machines may connect without TLS.
    `cluster_file` names the chains of a static cluster, and `name` is this node's name in it."""

    listen: str = "127.0.0.1:7400"
    data: Path = Path("data")
    standalone: bool = False
    name: str = ""
    cluster_file: Path | None = None
    advertise: str = ""
    insecure_listen: bool = False
    reflection: bool = True
    log_level: str = "info"
    log_format: str = "auto"
    verify: bool = True
    map_bytes: int = limits.MAP_BYTES_DEFAULT
    full_fraction: float = limits.STORE_FULL_FRACTION
    disk_reserve_bytes_max: int = limits.DISK_RESERVE_BYTES_MAX
    pin_retained_bytes_max: int = limits.PIN_RETAINED_BYTES_MAX
    snapshot_memory_bytes_max: int = limits.SNAPSHOT_MEMORY_BYTES_MAX
    snapshot_copy_bytes_max: int = limits.SNAPSHOT_COPY_BYTES_MAX
    subscribers_max: int = limits.SUBSCRIBERS_MAX
    concurrent_calls_max: int = limits.CONCURRENT_CALLS_MAX
    stalled_reader_s: float = limits.STALLED_READER_S
    maintenance_interval_s: float = limits.MAINTENANCE_INTERVAL_S
    drain_grace_s: float = limits.DRAIN_GRACE_S

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    def check(self) -> None:
        check_address("listen", self.listen, port_min=0)
        if self.advertise:
            check_address("advertise", self.advertise, port_min=1)
        self._check_place()
        if not is_loopback(self.host) and not self.insecure_listen:
            raise InvalidArgument(
                f"listen {self.listen!r} is open to other machines, and this version speaks no TLS: listen on "
                "127.0.0.1, or say insecure_listen = true if the network is yours alone"
            )
        if self.log_level not in LEVELS:
            raise InvalidArgument(f"log_level {self.log_level!r} is unknown: use one of {', '.join(LEVELS)}")
        if self.log_format not in LOG_FORMATS:
            raise InvalidArgument(f"log_format {self.log_format!r} is unknown: use one of {', '.join(LOG_FORMATS)}")
        if not 0.1 <= self.full_fraction <= 1.0:
            raise InvalidArgument(f"full_fraction is {self.full_fraction}: give 0.1 to 1.0")
        self._check_numbers()

    def check_runnable(self) -> None:
        """A node is alone or has a place in a cluster; a file of settings may leave that to the command line."""
        if not self.standalone and self.cluster_file is None:
            raise InvalidArgument("say how the node runs: --standalone, or --cluster-file FILE --name NODE")

    def _check_place(self) -> None:
        if self.name:
            check_name("name: node", self.name)
        if self.cluster_file is None:
            return
        if self.standalone:
            raise InvalidArgument(f"standalone and cluster_file {self.cluster_file} are both given: choose one")
        if not self.name:
            raise InvalidArgument(f"name is not given: say which node of cluster_file {self.cluster_file} this one is")

    def _check_numbers(self) -> None:
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        if self.map_bytes < limits.MIB or self.map_bytes % page_bytes:
            raise InvalidArgument(f"map_bytes is {self.map_bytes}: give 1 MiB or more, a multiple of {page_bytes}")
        if self.snapshot_memory_bytes_max < self.snapshot_copy_bytes_max + 2 * limits.READ_CHUNK_BYTES_MAX:
            raise InvalidArgument(
                f"snapshot_memory_bytes_max is {self.snapshot_memory_bytes_max}: give at least "
                f"snapshot_copy_bytes_max + {2 * limits.READ_CHUNK_BYTES_MAX}"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in (int, float) and (value != value or value < 0):
                raise InvalidArgument(f"{field.name} is {value}: give 0 or more")
            if field.name in ("subscribers_max", "concurrent_calls_max") and value < 1:
                raise InvalidArgument(f"{field.name} is {value}: give 1 or more")
            if field.name.endswith("_s") and not 0 < value <= 86_400:
                raise InvalidArgument(f"{field.name} is {value}: give a number of seconds above 0, up to 86400")


FIELDS = {field.name: field.type for field in fields(NodeConfig)}


def load_config(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> NodeConfig:
    """The settings of all three origins; `flags` holds only what was given."""
    settings: dict[str, Any] = {}
    if file is not None:
        settings |= convert_all(read_file(file), f"{file}")
    from_environment = {
        name: environment[VARIABLE_PREFIX + name.upper()]
        for name in FIELDS
        if VARIABLE_PREFIX + name.upper() in environment
    }
    settings |= convert_all(from_environment, "the environment")
    settings |= convert_all(flags, "the command line")
    config = NodeConfig(**settings)
    config.check()
    if config.cluster_file is None:
        return config
    address = find_address(config.cluster_file, config.name)
    if "listen" not in settings:
        config = replace(config, listen=address)
        config.check()
    return config


def find_address(cluster_file: Path, name: str) -> str:
    """Where the cluster file says that this node listens."""
    nodes = parse_cluster(read_content(cluster_file), cluster_file).nodes
    if name not in nodes:
        raise InvalidArgument(f"name {name!r} is not in {cluster_file}, which names {', '.join(nodes)}")
    return nodes[name]


def read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"cannot read the configuration {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the configuration {file} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"the configuration {file} is not TOML: {error}") from error


def convert_all(given: Mapping[str, Any], origin: str) -> dict[str, Any]:
    unknown = sorted(set(given) - set(FIELDS))
    if unknown:
        raise InvalidArgument(f"unknown setting {unknown[0]!r} in {origin}: known are {', '.join(sorted(FIELDS))}")
    return {name: convert(name, value, origin) for name, value in given.items()}


def convert(name: str, value: Any, origin: str) -> Any:
    """A setting as its field's type; text is read, a number in place of a word is an error."""
    wanted = FIELDS[name]
    refused = InvalidArgument(f"{name} = {value!r} in {origin}: expected {getattr(wanted, '__name__', wanted)}")
    if wanted in (Path, Path | None) and isinstance(value, str | Path):
        if str(value):
            return Path(value)
        if wanted is not Path:
            return None
    if wanted is bool and isinstance(value, str):
        if value.lower() not in _TRUE + _FALSE:
            raise refused
        return value.lower() in _TRUE
    if wanted in (int, float) and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return wanted(value) if wanted is float or not isinstance(value, float) else exact_int(value)
        except ValueError:
            raise refused from None
    if isinstance(wanted, type) and type(value) is wanted:
        return value
    raise refused


def exact_int(value: float) -> int:
    if not value.is_integer():
        raise ValueError(value)
    return int(value)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
