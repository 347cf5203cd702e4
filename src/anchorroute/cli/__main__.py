"""`python -m anchorroute.cli`: the command line without its script on the path."""

from anchorroute.cli import main

main()
