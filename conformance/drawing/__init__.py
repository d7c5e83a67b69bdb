"""Which problems a check tries: domains, fixed vectors and Hypothesis strategies.

Comes in: what a check is about and what an implementation declares. Goes out: fixed problems that every run tries
first, and strategies that draw more of the same domain. Only structure is drawn; arrays come from regime and seed.
"""
