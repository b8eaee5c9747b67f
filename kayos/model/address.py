"""Where a node listens: HOST:PORT."""

from kayos.errors import InvalidArgument


def check_address(name: str, address: str, *, port_min: int) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not port_min <= int(port) <= 65_535:
        raise InvalidArgument(f"{name} {address!r} is not HOST:PORT with a port from {port_min} to 65535")
