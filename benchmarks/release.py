"""Build a release in dist/, and use it as a user would: from the wheel, in a fresh environment, away from the checkout.

    python benchmarks/release.py [--skip-tutorial] [--own-index]

Builds sdist and wheel, checks them with twine, installs the wheel into a new environment, evaluates a navigator of the
zoo, runs every example with `--quick`, writes dist/sbom.json (CycloneDX) and dist/licences.md (of gpf and its
dependencies), and types the tutorial. Versions are those of constraints.txt. Nothing is published.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

from documents import ROOT

from gpf import __version__
from gpf.reports.tables import markdown_table

DIST = ROOT / "dist"
LICENCES = """
import importlib.metadata, json
print(json.dumps([
    [d.metadata["Name"], d.version, d.metadata["License-Expression"] or d.metadata["License"] or "",
     [c for c in d.metadata.get_all("Classifier") or [] if c.startswith("License")]]
    for d in importlib.metadata.distributions()
]))
"""


class Environment:
    """A new virtual environment, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        venv.create(folder / "environment", with_pip=True)
        self.bin = folder / "environment" / "bin"
        hidden = ("PYTHONPATH", "VIRTUAL_ENV")
        self.variables = {name: value for name, value in os.environ.items() if name not in hidden}

    def run(self, *command: str | Path) -> str:
        """Run a program of the environment; returns what it prints, and stops the release if it fails."""
        begun = time.monotonic()
        program, *arguments = map(str, command)
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.work, env=self.variables, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{done.stdout}\nfailed: {' '.join([program, *arguments])}")
        shown = " ".join([program, *(Path(one).name for one in arguments)])
        print(f"  {time.monotonic() - begun:5.0f} s  {shown[:100]}", flush=True)
        return done.stdout

    def install(self, *packages: str | Path) -> None:
        """Install packages, at the versions of constraints.txt."""
        constraints = ("--constraint", ROOT / "constraints.txt")
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *constraints, *packages)


def build() -> Path:
    """Build sdist and wheel, and check them; returns the wheel."""
    for old in [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")]:
        old.unlink()
    subprocess.run([sys.executable, "-m", "build", "--outdir", DIST, ROOT], check=True, stdout=subprocess.DEVNULL)
    made = [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")]
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *made], check=True)
    (wheel,) = DIST.glob("*.whl")
    if missing := lacking(wheel):
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
    for one in made:
        print(f"{one.name}: {one.stat().st_size / 1000:.0f} kB")
    return wheel


def lacking(wheel: Path) -> list[str]:
    """Files of src/gpf that a wheel does not have."""
    inside = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "src/gpf"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in tracked.stdout.splitlines() if name.removeprefix("src/") not in inside]


def needs(example: Path) -> list[str]:
    """The packages that an example needs besides gpf, from the line `Needs: ...` of its docstring."""
    found = re.search(r"^Needs: (.+)$", example.read_text(), re.MULTILINE)
    return found[1].removesuffix('"""').split() if found else []


def run_examples(environment: Environment) -> None:
    """Run those that need nothing but gpf, and then the others."""
    examples = sorted((ROOT / "examples").glob("*.py"), key=lambda path: (bool(needs(path)), path.name))
    for path in examples:
        if packages := needs(path):
            environment.install(*packages)
        environment.run("python", shutil.copy(path, environment.work), "--quick")


def licence(stated: str, classifiers: list[str]) -> str:
    """A licence in a few words: what is stated if it is short, and the classifiers otherwise."""
    named = ", ".join(one.split(" :: ")[-1] for one in classifiers)
    first = stated.strip().splitlines()[0] if stated.strip() else ""
    short = 0 < len(first) < 60 and not first.startswith("Copyright")
    return first if short else named or first[:60] or "not stated"


def write_bill(environment: Environment) -> None:
    """Write the bill of materials and the licences of everything that the wheel brings."""
    bill = ("environment", environment.bin / "python", "--output-reproducible", "--output-file", DIST / "sbom.json")
    subprocess.run([sys.executable, "-m", "cyclonedx_py", *bill], check=True)
    found = json.loads(environment.run("python", "-c", LICENCES))
    rows = [[name, version, licence(*rest)] for name, version, *rest in sorted(found, key=lambda row: row[0].lower())]
    text = f"# Licences\n\nWhat gpf-networks {__version__} installs, without extras.\n\n"
    (DIST / "licences.md").write_text(text + markdown_table(["package", "version", "licence"], rows) + "\n")
    written = (DIST / "sbom.json").read_text()
    if "file://" in written:
        sys.exit("sbom.json names a file of this machine")
    print(f"sbom.json: {len(json.loads(written)['components'])} components")
    if unknown := [row[0] for row in rows if row[2] == "not stated"]:
        print(f"licences.md: not stated by {', '.join(unknown)}")


def main() -> None:
    """Do all of it, and stop at the first thing that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skip-tutorial", action="store_true", help="do not type the tutorial, which takes minutes")
    parser.add_argument(
        "--own-index", action="store_true", help="type it with torch from where pip is configured to look"
    )
    arguments = parser.parse_args()
    wheel = build()
    torch = re.search(r"^torch==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert torch is not None
    with tempfile.TemporaryDirectory() as temporary:
        environment = Environment(Path(temporary, "a fresh environment"))
        print("in a fresh environment:")
        environment.install(torch[0])
        # By name, because an installed path would be in the bill of materials.
        environment.install("--find-links", wheel.parent.as_uri(), f"gpf-networks=={__version__}")
        write_bill(environment)
        assert __version__ in environment.run("gpf", "--version")
        print(environment.run("gpf", "evaluate", "zoo:reference", "--episodes", "200"))
        run_examples(environment)
    if not arguments.skip_tutorial:
        options = ["--wheels", str(DIST), *(["--own-index"] if arguments.own_index else [])]
        subprocess.run([sys.executable, str(ROOT / "benchmarks" / "tutorial.py"), *options], check=True)
    print(f"gpf-networks {__version__} is ready in {DIST.relative_to(ROOT)}/")


if __name__ == "__main__":
    main()
