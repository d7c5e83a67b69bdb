"""Which numbers of source code the search may draw.

Hypothesis draws now and then a number that it finds in the source of imported modules. Which modules are imported
depends on the machine, on the number of processes and on what was asked for, and the same seed would not try the
same problems everywhere. So a search draws numbers of the modules that it names, and of no others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

from hypothesis.internal.conjecture import providers


@contextlib.contextmanager
def only_of(*modules: ModuleType) -> Iterator[None]:
    """Inside, Hypothesis draws numbers of these modules and of no others.

    Args:
      modules: read from their files. Versions of Hypothesis that read no source are left as they are.
    """
    if not hasattr(providers, "_get_local_constants"):
        yield
        return
    from hypothesis.internal import constants_ast  # it reads source, so it has this

    found = constants_ast.Constants()
    for module in modules:
        found |= constants_ast.constants_from_module(module)
    # What is permitted for a strategy is remembered there, for all searches of the process.
    remembered: Any = type(providers.CONSTANTS_CACHE)(1024)
    with (
        mock.patch.object(providers, "_get_local_constants", return_value=found),
        mock.patch.object(providers, "CONSTANTS_CACHE", remembered),
    ):
        yield
