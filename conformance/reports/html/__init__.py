"""Reports as single HTML files that need nothing else: no network, no other file."""
