# SPDX-License-Identifier: Apache-2.0
"""A connection that can be cut: something between trainer and daemon that passes on all they say,
file descriptors too.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import socket
import struct
import threading

_RESET = struct.pack("ii", 1, 0)  # linger of 0 s: closing sends RST
_FDS_MAX = 16


class Proxy:
    """Listens at `listen` (a path, or a HOST, PORT pair) and connects each client to `upstream`."""

    def __init__(self, listen: pathlib.Path | tuple[str, int], upstream: pathlib.Path,
                 kind: socket.SocketKind):
        self._upstream, self._kind = upstream, kind
        family = socket.AF_INET if isinstance(listen, tuple) else socket.AF_UNIX
        self._listener = socket.socket(family, kind)
        self._listener.bind(listen if isinstance(listen, tuple) else str(listen))
        self._listener.listen()
        self.address = self._listener.getsockname()
        self._mu = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def connection_count(self) -> int:
        with self._mu:
            return len(self._pairs)

    def cut(self, dice: random.Random) -> None:
        """Cuts every connection that there is: both ends at once or one first, by reset or not."""
        with self._mu:
            pairs = sorted(self._pairs, key=lambda pair: pair[0].fileno())
        for pair in pairs:
            for end in dice.sample(pair, dice.choice([1, 2])):
                # A pump that waits in recv sees the end and lets go of the other side as well.
                if end.family == socket.AF_INET and dice.random() < 0.5:
                    with contextlib.suppress(OSError):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                _shut(end)

    def close(self) -> None:
        _shut(self._listener)
        self._threads[0].join()
        self._listener.close()
        with self._mu:
            pairs = list(self._pairs)
        for pair in pairs:
            _shut(pair[0])
        for thread in self._threads[1:]:
            thread.join()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            server = socket.socket(socket.AF_UNIX, self._kind)
            try:
                server.connect(str(self._upstream))
            except OSError:  # no daemon there now
                server.close()
                client.close()
                continue
            thread = threading.Thread(target=self._serve, args=(client, server))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with self._mu:
            self._pairs.add((client, server))
        back = threading.Thread(target=_pump, args=(server, client))
        back.start()
        _pump(client, server)
        back.join()
        with self._mu:
            self._pairs.discard((client, server))
        client.close()
        server.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while True:
            if source.family == socket.AF_UNIX:
                data, fds, _, _ = socket.recv_fds(source, 1 << 17, _FDS_MAX)
            else:
                data, fds = source.recv(1 << 17), []
            if not data:
                break
            try:
                if fds:
                    socket.send_fds(target, [data], fds)
                else:
                    target.sendall(data)
            finally:
                for fd in fds:
                    os.close(fd)
    except OSError:
        pass
    _shut(source)
    _shut(target)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
