"""Implementations that run in a process of their own, in this or in another Python interpreter."""
