"""The adapter of the splash attention of tokamax and of its forks."""
