"""Where an `EnvGroup` runs: in the caller's process, in worker processes, or in actors of a cluster."""
