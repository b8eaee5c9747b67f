"""Addresses for nodes that die and come back."""

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

PORT_MIN = 10_000
WORKERS_MAX = 8


def lasting_address() -> str:
    """An address that nobody takes while no node listens there.

    A port that the kernel handed out once is handed to somebody else as soon as it is free, for instance to an outgoing
    connection of another test while a node restarts. Ports below that range are only taken by those who ask for them,
    and of those each test process has a part of its own, which it goes through once.
    """
    for port in _ports:
        address = ("127.0.0.1", port)
        with socket.socket() as probe:
            if probe.connect_ex(address) != 0:
                return f"{address[0]}:{address[1]}"
    raise AssertionError("no free port is left")


def lasting_addresses(count: int) -> list[str]:
    return [lasting_address() for _ in range(count)]


def own_ports() -> Iterator[int]:
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    width = (first_of_kernel - PORT_MIN) // WORKERS_MAX
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS_MAX
    start = random.SystemRandom().randrange(width)
    return (PORT_MIN + worker * width + (start + step) % width for step in range(width))


_ports = own_ports()
