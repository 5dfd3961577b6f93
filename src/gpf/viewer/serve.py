"""Serves the page: on a free port, on this machine only unless asked otherwise, until Ctrl-C."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from gpf.viewer.app import make_app
from gpf.viewer.security import EVERY_ADDRESS, LOOPBACK


def serve(folders: Sequence[Path], port: int, host: str, tell: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C.

    Args:
        folders: Run folders, or folders of them.
        port: Wanted port; a free one is taken where it is in use.
        host: Address to listen on.
        tell: Called with lines for the user.
    """
    token = secrets.token_urlsafe(24)
    app = make_app(folders, token=token, hosts=(*LOOPBACK, host))
    listening = listen(host, port)
    actual = listening.getsockname()[1]
    if actual != port != 0:
        tell(f"port {port} is in use, so this is port {actual}")
    shown = "127.0.0.1" if host in EVERY_ADDRESS else f"[{host}]" if ":" in host else host
    tell(f"http://{shown}:{actual}/?token={token}")
    tell("Ctrl-C stops it")
    with listening, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server_of(app).serve(sockets=[listening]))


def server_of(app: ASGIApp) -> uvicorn.Server:
    """The server of an application, quiet and with small incoming messages only."""
    return uvicorn.Server(
        uvicorn.Config(
            app, log_level="error", access_log=False, ws="websockets-sansio", ws_max_size=1 << 16,
            ws_per_message_deflate=False, timeout_graceful_shutdown=1, server_header=False,
        )
    )  # fmt: skip


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on this port, or on a free one if it is in use."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port must be from 0 to 65535, got {port}")
    for wanted in (port, 0):
        try:
            return socket.create_server((host, wanted), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except PermissionError:
            raise ValueError(f"port {port} needs more rights than you have; choose one above 1023") from None
        except OSError as error:
            if wanted == 0 or "in use" not in str(error.strerror).lower():
                raise ValueError(f"host {host!r} cannot be listened on ({error.strerror})") from None
    raise AssertionError("the second attempt returns or raises")
