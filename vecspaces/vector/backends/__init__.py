"""Where an `EnvGroup` runs: in the caller's process, in workers, or in actors of a cluster."""
