"""Stands in for the process of a command that another process forks; see `support.prepared`.

Usage: relay.py ADDRESS CODE ARGUMENT...

Passes on its files, folder and environment, and signals. Ends as the command ends.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress


def main() -> None:
    """Have the command begun, and wait for its end."""
    address, *words = sys.argv[1:]
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    folder = os.getcwd()  # noqa: PTH109  (`pathlib` takes as long to import as all else)
    asked = json.dumps([folder, dict(os.environ), words]).encode()
    socket.send_fds(server, [len(asked).to_bytes(8)], [0, 1, 2])
    server.sendall(asked)
    forked = int.from_bytes(server.recv(8))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(forked, number))
    code = int.from_bytes(server.recv(8), signed=True)
    if code < 0:
        with suppress(OSError):  # it cannot be handled at all
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
