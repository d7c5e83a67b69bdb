"""``compare``: several implementations side by side, and the smallest problem behind every difference."""
