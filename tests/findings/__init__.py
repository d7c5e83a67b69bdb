"""Findings as data, and the words that they get."""
