"""The conversation of a flight: what the page asks over its socket, and the frames that it gets."""

from typing import Any

from starlette.websockets import WebSocket

from gpf.plume.presets import PRESETS
from gpf.viewer.folders import Folders


def choices(shown: Folders) -> dict[str, Any]:
    """Worlds and policies to choose from."""
    return {"worlds": list(PRESETS), "policies": []}


async def converse(socket: WebSocket, shown: Folders) -> None:
    """Fly as the page asks, until it is closed."""
    while True:
        await socket.receive_text()
