"""The caller's side of a vector env: the only owner of mutable state."""
