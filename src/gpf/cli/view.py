"""`gpf view`: runs, plumes and navigators on a local web page."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from gpf.cli.options import Positional

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

    def __call__(self) -> None:
        """Serve the page until Ctrl-C."""
        for package in PACKAGES:
            if importlib.util.find_spec(package) is None:
                raise ValueError(f"gpf view needs {package}: pip install 'gpf-networks[view]'")
        from gpf.viewer.serve import serve

        folders = self.folders or tuple(path for path in (Path("runs"),) if path.is_dir())
        serve(folders, self.port, self.host, lambda line: print(line, flush=True))
