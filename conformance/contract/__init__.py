"""The contract: what an implementation promises, and how the suite calls it.

In here: the adapter protocol, the loader of adapters, the forms that answers must have, the fence that turns crashes
and hangs into verdicts, the smoke test, settings, and `remote`, which runs an implementation in another process. Comes
in: problems. Goes out: a `Subject` whose answers have the right form, or a violation that says what was wrong.
"""
