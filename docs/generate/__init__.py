"""Pages that are made when the site is built, from the same sources as everything else.

Nothing here is installed with the package. `docs.generate.hooks` is what MkDocs calls; most other modules write
Markdown and know nothing of MkDocs.
"""
