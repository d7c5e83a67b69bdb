"""Observes a Pallas kernel from outside: what every grid step fetches, computes and writes.

Comes in: a function that calls Pallas kernels, and its arguments. Goes out: the steps of each kernel as a
`reference.schedule.Schedule`, read from its jaxpr, its index maps and its body without trusting any array of the
implementation.
"""
