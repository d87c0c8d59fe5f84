"""Take the port of the server before the run is opened, so that a port in use is found at once."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ...errors import ConfigError

MOST_PORT = 65_535


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Yield a socket for each address of a host; they are closed in the end, and take no connection before `listen`.

    Parameters
    ----------
    port
        0 is any that is free, the same for all addresses.
    """
    if not 0 <= port <= MOST_PORT:
        raise ConfigError(f"the port is {port}; it must be 0 to {MOST_PORT} (0: any that is free)")
    with ExitStack() as opened:
        try:
            sockets = _bind(host, port, opened)
        except (OSError, UnicodeError) as error:
            raise _refused(f"{host} port {port}", error) from error
        yield sockets


def _bind(host: str, port: int, opened: ExitStack) -> list[socket.socket]:
    """Bind to all addresses, as asyncio does: without those of a kind, such as IPv6, that this machine has not."""
    sockets, missing = [], OSError(errno.EADDRNOTAVAIL, "it has no address")
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in dict.fromkeys(found):
        try:
            one = opened.enter_context(socket.socket(family, kind, protocol))
            if os.name == "posix":  # otherwise the port stays taken for a minute after the server has ended
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address[0], port, *address[2:]))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            missing = error
            continue
        port = one.getsockname()[1]
        sockets.append(one)
    if not sockets:
        raise missing
    return sockets


def listen(sockets: Sequence[socket.socket]) -> int:
    """Take connections from now on; return the port."""
    for one in sockets:
        try:
            one.listen()
        except OSError as error:  # another process, which was bound to the port too, was the first to listen
            raise _refused(f"{one.getsockname()[0]} port {one.getsockname()[1]}", error) from error
    return int(sockets[0].getsockname()[1])


def _refused(where: str, error: OSError | UnicodeError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return ConfigError(f"cannot listen on {where}: {reason}; choose another --port or --host")
