"""`python -m vecspaces` is the command `vecspaces`."""

from __future__ import annotations

from vecspaces.cli import main

# The guard keeps a worker that was started with spawn from running the command again.
if __name__ == "__main__":
    main()
