"""`python -m gpf` is `gpf`."""

from gpf.cli import main

main()
