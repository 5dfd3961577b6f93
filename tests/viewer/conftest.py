"""A server of the page in a thread, and a browser that looks at it and complains."""

import asyncio
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from gpf.viewer.app import make_app
from gpf.viewer.serve import listen, server_of

CHROMIUM = os.environ.get("GPF_CHROMIUM", "/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
TOKEN = "a-token-of-the-tests"


@dataclass
class Served:
    """A server and its address."""

    port: int
    stop: object

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/?token={TOKEN}"


@pytest.fixture
def serve():
    """Starts servers of some folders; all are stopped at the end."""
    started = []

    def start(*folders, port=0):
        listening = listen("127.0.0.1", port)
        server = server_of(make_app([Path(folder) for folder in folders], token=TOKEN))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)

        def stop():
            server.should_exit = True
            thread.join(timeout=30)
            listening.close()
            assert not thread.is_alive()

        started.append(stop)
        return Served(listening.getsockname()[1], stop)

    yield start
    for stop in started:
        stop()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens pages; in the end none may have met an error, or asked any other host.

    `allowed` has parts of console errors that a test expects.
    """
    contexts, errors, requests = [], [], []
    allowed = []

    def open_(url, width=1280, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # a busy machine compiles kernels meanwhile
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url)
        return page

    open_.allowed = allowed
    yield open_
    for context in contexts:
        context.close()
    ours = ("http://127.0.0.1:", "data:", "blob:", "file:")
    assert [url for url in requests if not url.startswith(ours)] == []
    assert [text for text in errors if not any(part in text for part in allowed)] == []


@pytest.fixture
def artefact(tmp_path_factory):
    """The path of a screenshot: below $GPF_ARTEFACTS, or in the tests' own folder."""
    folder = Path(os.environ.get("GPF_ARTEFACTS") or tmp_path_factory.getbasetemp() / "artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return lambda name: str(folder / f"{name}.png")
