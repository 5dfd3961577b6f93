"""`gpf view`: runs, plumes and navigators on a local web page."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from gpf.cli.names import check_policy, is_baseline
from gpf.cli.options import Positional
from gpf.cli.shared import check_writable

PACKAGES = ("starlette", "uvicorn", "websockets")


@dataclass
class View:
    """Show runs, plumes and navigators on a local web page. Needs the extra view.

    Without folders it shows those below runs/. The page is for this machine only, unless --host says otherwise.
    """

    folders: Positional[tuple[Path, ...]] = ()
    """Folders of runs, finished or running, or folders of them."""
    port: int = 8642
    """Port; a free one is taken if it is in use, or for 0."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 shows the page to everybody in the network who has its token."""
    record: Path | None = None
    """Write one self-contained HTML file (.html, below 2 MB) and serve nothing: the run that is given, or, with
    --policy, an episode."""
    policy: str | None = None
    """For --record: who flies the episode. A baseline, a navigator of the zoo (zoo:turbulent), or a run folder."""
    scenario: str = "turbulent"
    """For --record with --policy: the world ({presets}), or own for the one that the navigator was trained in."""
    seed: int = 0
    """For --record with --policy: which episode, as gpf evaluate counts them."""

    def __call__(self) -> None:
        """Serve the page until Ctrl-C, or write a recording."""
        for package in PACKAGES:
            if importlib.util.find_spec(package) is None:
                raise ValueError(f"gpf view needs {package}: pip install 'gpf-networks[view]'")
        if self.record is not None:
            self._record(self.record)
            return
        if self.policy is not None:
            raise ValueError("--policy is for --record; on the page it is chosen there")
        from gpf.viewer.serve import serve

        folders = self.folders or tuple(path for path in (Path("runs"),) if path.is_dir())
        serve(folders, self.port, self.host, lambda line: print(line, flush=True))

    def _record(self, path: Path) -> None:
        if path.suffix != ".html":
            raise ValueError(f"record must be a path that ends in .html, got {str(path)!r}")
        check_writable(path, "--record")
        if self.policy is not None:
            check_policy(self.policy)
            from gpf.viewer.flying import Pilot
            from gpf.viewer.record_episodes import record_episode

            make = Pilot.classical if is_baseline(self.policy) else lambda name: Pilot.trained(name, name)
            size = record_episode(path, make(self.policy), self.scenario, self.seed)
        elif len(self.folders) == 1:
            if not self.folders[0].is_dir():
                raise ValueError(f"{self.folders[0]} is not a folder; --record takes the folder of a run")
            from gpf.viewer.record_runs import record_run

            size = record_run(self.folders[0], path)
        else:
            raise ValueError(f"--record takes one run, or --policy for an episode; got {len(self.folders)} folders")
        print(f"written: {path} ({size / 1e6:.2f} MB)")
