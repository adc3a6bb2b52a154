"""The caller's side of a vector env: rows, tickets, workers, and what their replies change."""
