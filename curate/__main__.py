"""`python -m curate` is `curate`."""

from curate.cli.main import main

main()
