"""The documentation site: its pages, and what generates the rest of them."""
