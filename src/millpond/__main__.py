"""`python -m millpond` is `millpond`."""

from millpond.cli.main import main

main()
