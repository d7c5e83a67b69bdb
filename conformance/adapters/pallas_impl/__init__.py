"""The adapter of `pallas_impl`, this project's own splash attention."""
