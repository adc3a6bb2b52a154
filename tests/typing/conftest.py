"""The programs here are read by type checkers (`.ci/types`), and never imported."""

collect_ignore = ["wrong_programs.py"]
