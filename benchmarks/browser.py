"""Open a report in headless Chromium: no error, no request to anywhere, and a screenshot to look at.

    python benchmarks/browser.py runs/plume-1/report.html [--screenshot report.png] [--json]

Needs playwright (`pip install playwright`) and a Chromium (Debian's package `chromium`, or --chromium PATH).
"""

import argparse
import json
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def main() -> None:
    """Open the page, and end with code 1 if anything is amiss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--screenshot", type=Path)
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    found = look(arguments.page.resolve(), arguments.screenshot, arguments.width, arguments.chromium)
    print(json.dumps(found) if arguments.json else "\n".join(f"{key}: {value}" for key, value in found.items()))
    if found["errors"] or found["requests"] or found["unseen_images"] or found["overflow"] > 0:
        raise SystemExit(1)


def look(page: Path, screenshot: Path | None, width: int, chromium: str) -> dict[str, Any]:
    """What goes wrong when a page is opened."""
    errors: list[str] = []
    requests: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page(viewport={"width": width, "height": 900})
        tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        own = page.as_uri()
        tab.on("request", lambda r: None if r.url == own or r.url.startswith("data:") else requests.append(r.url))
        tab.goto(own)
        images = "Array.from(document.images)"
        found = {
            "errors": errors,
            "requests": requests,
            "sections": tab.eval_on_selector_all("section h2", "nodes => nodes.map(node => node.textContent)"),
            "images": tab.evaluate(f"{images}.length"),
            "unseen_images": tab.evaluate(f"{images}.filter(image => !image.naturalWidth).length"),
            "overflow": tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"),
        }
        if screenshot is not None:
            tab.screenshot(path=str(screenshot), full_page=True)
        browser.close()
    return found


if __name__ == "__main__":
    main()
