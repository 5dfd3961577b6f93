"""Private copies of the checkout, so that the working tree is never touched."""

import hashlib
import os
import shutil
from pathlib import Path

from mutation.sites import Mutant

LEFT_BEHIND = {".git", ".venv", "runs", "dist"}
"""At the top level; a package may be called the same."""
CACHES = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache", ".hypothesis")


def revision(root: Path, chosen: list[str]) -> str:
    """A digest of everything that decides whether a mutant survives: sources, tests, settings, and the chosen tests."""
    digest = hashlib.sha256("\n".join(chosen).encode())
    paths = [
        path for folder in ("src", "tests") for path in (root / folder).rglob("*") if "__pycache__" not in path.parts
    ]
    for path in sorted([*paths, root / "pyproject.toml"]):
        if path.is_file():
            digest.update(path.relative_to(root).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def copy_checkout(root: Path, folder: Path) -> Path:
    """A copy of the checkout in folder, with what lies next to it (the data sets in ../shared) next to it again."""
    folder.mkdir(parents=True)
    if (root.parent / "shared").exists():
        (folder / "shared").symlink_to((root.parent / "shared").resolve())

    def ignore(parent: str, names: list[str]) -> set[str]:
        return CACHES(parent, names) | (LEFT_BEHIND & set(names) if Path(parent) == root else set())

    return Path(shutil.copytree(root, folder / "checkout", symlinks=True, ignore=ignore))


def place(mutant: Mutant | None, template: Path, checkout: Path) -> None:
    """Put the template's sources, byte code and compiled kernels into a checkout, and change them by one mutant.

    A recompiled kernel overwrites its cache, so all of src/ is copied from the template each time.
    """
    shutil.rmtree(checkout / ".hypothesis", ignore_errors=True)
    shutil.rmtree(checkout / "src")
    shutil.copytree(template / "src", checkout / "src", symlinks=True)
    if mutant is not None:
        path = checkout / mutant.path
        path.write_bytes(mutant.apply(path.read_bytes()))
        # Python compares byte code with its source by size and modification time; both may be the same here.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def environment(checkout: Path, *more_paths: Path) -> dict[str, str]:
    """Environment of a process that imports the package from a checkout."""
    values = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "PYTEST_ADDOPTS")}
    values["PYTHONPATH"] = os.pathsep.join(map(str, (checkout / "src", *more_paths)))
    return values
