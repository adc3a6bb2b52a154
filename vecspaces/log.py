"""The logger `vecspaces`: what happens to workers and environments in long runs."""

import logging

log = logging.getLogger("vecspaces")
