"""`python -m wane.cli` is `wane`."""

from wane.cli import main

main()
