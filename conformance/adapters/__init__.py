"""Adapters of the implementations that are supported out of the box; only they import an implementation."""
