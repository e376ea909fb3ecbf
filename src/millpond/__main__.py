"""`python -m millpond` is the same as `millpond`."""

from millpond.cli.main import main

main()
