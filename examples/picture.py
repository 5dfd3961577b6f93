"""Draw the picture of the README: an episode of the cast-and-surge baseline, and the plume as it is at its end.

python examples/picture.py [PATH]

The animation docs/images/walk.gif is another episode of the same baseline:

gpf evaluate --policy cast-and-surge --scenario paper --seed 4 --episodes 1 --animation docs/images/walk.gif
"""

import sys
from pathlib import Path

from PIL import Image

from gpf.navigation import CastAndSurge
from gpf.navigation.evaluate import film
from gpf.navigation.seeds import TUNING
from gpf.plume import Scenario


def main() -> None:
    """Walk one episode and keep its last frame."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/plume.png")
    *_, last = film(CastAndSurge(), Scenario.preset("paper"), TUNING + 6, every=10_000, pixels=640)
    picture = Image.fromarray(last)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
