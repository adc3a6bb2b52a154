"""Arguments, batched spaces, seeds, and the slots of a rollout."""
