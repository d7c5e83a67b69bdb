"""The commands of ``splash-conformance``, one module each.

A module has ``HELP`` (one line), ``EXAMPLES`` (of the help page), ``configure(parser)`` and ``execute(arguments)``,
which returns the exit code. The name of the module is the name of the command.
"""
