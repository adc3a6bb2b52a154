"""The caller's side: the only owner of mutable state."""
