"""What labelled blocks cost: steps, fetches, scalar and vector memory, in the layouts of jax, tokamax and pallas_impl.

`study` is the entry point: it takes a `Question` and returns a `Study`, plain numbers for `conformance.explain.output`.
"""
