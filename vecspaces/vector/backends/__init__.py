"""Backends: in the caller's process, in worker processes, or in actors of a Ray cluster."""
