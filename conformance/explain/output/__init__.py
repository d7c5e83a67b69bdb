"""A `Study` as people and programs read it: advice, terminal, JSON, HTML page, picture.

Nothing here computes a cost; `advice` compares the figures of the study and says what they mean.
"""
