"""Build the documentation site with MkDocs and with Zensical, both strictly, and check what they built.

    python benchmarks/docs_site.py

Checks every internal link and anchor, that no page loads anything from elsewhere (fonts, scripts, styles, pictures),
and that the API reference has every name that `__all__` exports. Sites go to dist/site (Zensical) and dist/site-mkdocs.
Episodes that pages embed are recorded first, into docs/episodes, where they are missing.
"""

import argparse
import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from documents import ROOT

PACKAGES = ("network", "plume", "navigation", "continual", "world_model", "spectra", "tasks")
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
"""Tags that load what one of their attributes names; `link` depends on its `rel`."""
LOADING_LINKS = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "prefetch", "modulepreload"}
REMOTE = re.compile(r"^(https?:)?//")


EPISODES = {"office": ("--policy", "zoo:turbulent", "--scenario", "office", "--seed", "2")}
"""Embedded episodes: names of files in docs/episodes, and options of `gpf view --record`."""


class Page(HTMLParser):
    """Links, anchors and loaded files of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag links to, loads and names."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found and tag != "meta"}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADS and LOADS[tag] in found:
            self.loaded.append(found[LOADS[tag]])
        if tag == "link" and LOADING_LINKS & set(found.get("rel", "").split()):
            self.loaded.append(found.get("href", ""))


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a built site, a line for each fault."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute, for it is shown in any folder
            continue
        name = path.relative_to(site)
        for link in page.loaded:
            if REMOTE.match(link):
                yield f"{name} loads {link}"
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or REMOTE.match(link):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{name} links to {link}, which does not exist"
            elif parts.fragment and target in pages and not _has(pages[target], parts.fragment):
                yield f"{name} links to {link}, where there is no such anchor"
    for path in sorted(site.rglob("*.css")):
        for url in re.findall(r"(?:url\(|@import\s+)['\"]?((?:https?:)?//[^'\")\s]+)", path.read_text()):
            yield f"{path.relative_to(site)} loads {url}"


def _has(page: Page, fragment: str) -> bool:
    made_by_scripts = fragment.startswith(("__", "/"))  # __tabbed and the like; routes of a recorded episode
    return made_by_scripts or unquote(fragment) in page.anchors


def unlisted(site: Path) -> Iterator[str]:
    """Names that packages export and the API reference lacks."""
    for package in PACKAGES:
        page = Page((site / "api" / f"{package}.html").read_text())
        module = importlib.import_module(f"gpf.{package}")
        for name in module.__all__:
            home = getattr(getattr(module, name), "__module__", "")  # where a file has the same name as its function
            if not {f"gpf.{package}.{name}", f"{home}.{name}"} & page.anchors:
                yield f"api/{package}.html lacks gpf.{package}.{name}"


def record(folder: Path) -> None:
    """Record the episodes that are missing."""
    folder.mkdir(exist_ok=True)
    for name, options in EPISODES.items():
        if not (file := folder / f"{name}.html").exists():
            subprocess.run([sys.executable, "-m", "gpf", "view", "--record", str(file), *options], check=True)


def build(out: Path) -> dict[str, Path]:
    """Build the site with both programs, strictly; returns where it is, by program."""
    sites = {"zensical": out / "site", "mkdocs": out / "site-mkdocs"}
    commands = {
        "zensical": ["zensical", "build", "--strict", "--clean"],
        "mkdocs": ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(sites["mkdocs"].resolve())],
    }
    for program, command in commands.items():
        begun = time.monotonic()
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, check=False)
        if done.returncode:
            sys.exit(f"{program} failed, see above")
        pages = len(list(sites[program].rglob("*.html")))
        print(f"{program}: {pages} pages in {time.monotonic() - begun:.0f} s")
    return sites


def main() -> None:
    """Build, check, and fail if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    record(ROOT / "docs" / "episodes")
    wrong = []
    for program, site in build(ROOT / "dist").items():
        found = [*problems(site), *unlisted(site)]
        print(*(f"{program}: {one}" for one in found), sep="\n", end="\n" if found else "")
        wrong += found
    if wrong:
        sys.exit(f"{len(wrong)} faults")
    print("links, anchors and API reference are complete; nothing is loaded from elsewhere")


if __name__ == "__main__":
    main()
