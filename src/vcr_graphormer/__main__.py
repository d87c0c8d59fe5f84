"""`python -m vcr_graphormer` is the command `vcr-graphormer`."""

from .cli import main

if __name__ == "__main__":
    main()
