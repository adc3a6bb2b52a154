"""`python -m vecspaces` is the command `vecspaces`."""

from __future__ import annotations

import os
import sys

from vecspaces.cli import main

# The guard keeps a worker that was started with spawn from running the command again.
if __name__ == "__main__":
    # `python -m` puts the working folder first on the import path, so that files in it replace
    # installed modules. It is removed, or moved to the end if it contains vecspaces itself.
    if not sys.flags.safe_path:
        here = sys.path.pop(0)
        if os.path.dirname(os.path.dirname(os.path.abspath(__file__))) == here:
            sys.path.append(here)
    main()
