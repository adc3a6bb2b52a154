"""The worker's side: environments stepped into their rows, without processes."""
