"""The web application: the page's files, runs as JSON, and the sockets of live runs and of flights."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from gpf.runs.listing import summary
from gpf.viewer import comparison, flying, live, networks, runs
from gpf.viewer.folders import Folders
from gpf.viewer.security import LOOPBACK, Access, Guard

STATIC = Path(__file__).parent / "static"


def make_app(folders: Sequence[Path], *, token: str, hosts: Sequence[str] = LOOPBACK) -> Starlette:
    """The application that shows the runs below some folders.

    Args:
        folders: Run folders, or folders of them.
        token: What a request must carry: as `?token=` once, then in a cookie.
        hosts: Host names that it answers to.
    """
    shown = Folders(folders)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def list_runs(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(_rows, shown))

    async def describe_run(request: Request) -> Response:
        return await _answer(lambda: runs.describe(shown.find(request.path_params["name"])))

    async def show_network(request: Request) -> Response:
        moment = request.query_params.get("moment", "last")
        return await _answer(lambda: networks.network(shown.find(request.path_params["name"]), moment))

    async def compare_runs(request: Request) -> Response:
        names = request.query_params.getlist("run")
        return await _answer(lambda: comparison.compare({name: shown.find(name) for name in names}))

    async def list_choices(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(flying.choices, shown))

    async def follow_run(socket: WebSocket) -> None:
        await _talk(socket, lambda: live.follow(socket, shown.find(socket.path_params["name"])))

    async def fly(socket: WebSocket) -> None:
        await _talk(socket, lambda: flying.converse(socket, shown))

    return Starlette(
        routes=[
            Route("/", page),
            Route("/favicon.ico", lambda request: FileResponse(STATIC / "favicon.svg")),
            Route("/api/runs", list_runs),
            Route("/api/run/{name:path}", describe_run),
            Route("/api/network/{name:path}", show_network),
            Route("/api/compare", compare_runs),
            Route("/api/fly", list_choices),
            WebSocketRoute("/ws/run/{name:path}", follow_run),
            WebSocketRoute("/ws/fly", fly),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, access=Access(token, tuple(hosts)))],
    )


def _rows(shown: Folders) -> list[dict[str, Any]]:
    """All runs in a few numbers, the newest first."""
    rows = [{**summary(folder), "run": name} for name, folder in shown.names()]
    rows += [{**runs.other_row(folder), "run": name} for name, folder in shown.others()]
    return sorted(rows, key=lambda row: -row["written"])


async def _answer(make: Callable[[], Any]) -> Response:
    """What a function returns, as JSON, or its error as one sentence."""
    try:
        return JSONResponse(await run_in_threadpool(make))
    except (ValueError, OSError) as error:
        return JSONResponse({"error": str(error)}, 404)


async def _talk(socket: WebSocket, conversation: Callable[[], Awaitable[None]]) -> None:
    """Hold a conversation until either side ends it; an error is told as one sentence."""
    await socket.accept()
    try:
        await conversation()
        await socket.close()
    except WebSocketDisconnect:
        pass
    except (ValueError, OSError) as error:
        await socket.send_json({"error": str(error)})
        await socket.close()
