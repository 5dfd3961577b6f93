"""A run in progress: new lines of its logs, as they are written."""

from pathlib import Path

from starlette.websockets import WebSocket


async def follow(socket: WebSocket, folder: Path) -> None:
    """Send the lines that are added to the logs of a run, until the page is closed."""
    while True:
        await socket.receive_text()
