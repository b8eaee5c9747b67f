"""Addresses for nodes that die and come back."""

import random
import socket
from pathlib import Path

PORT_MIN = 10_000


def lasting_address() -> str:
    """An address that nobody takes while no node listens there.

    A port that the kernel handed out once is handed to somebody else as soon as it is free, for instance to an outgoing
    connection of another test while a node restarts. Ports below that range are only taken by those who ask for them.
    """
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    source = random.SystemRandom()
    for _ in range(100):
        address = ("127.0.0.1", source.randrange(PORT_MIN, first_of_kernel))
        with socket.socket() as probe:
            if probe.connect_ex(address) != 0:
                return f"{address[0]}:{address[1]}"
    raise AssertionError("no free port was found")
