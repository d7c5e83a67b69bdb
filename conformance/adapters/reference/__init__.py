"""The adapter of the reference itself: for testing the suite, and as an example of a full adapter."""
