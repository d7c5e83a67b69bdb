"""A database of failing examples that runs share, where one is configured.

``splash-conformance run IMPL --database DIR`` keeps what Hypothesis found to fail in a folder, and tries that
first the next time: another seed, profile or machine finds it again at once. The setting is an environment
variable, so that worker processes inherit it. Without it the same seed tries the same problems everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

VARIABLE = "SPLASH_CONFORMANCE_DATABASE"


def want(folder: Path | None) -> None:
    """Asks for a database, in this process and in those that it starts; None leaves the setting as it is.

    Raises:
      ValueError: it is a file, or cannot be made.
    """
    chosen = folder or wanted()
    if chosen is None:
        return
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--database {chosen}: cannot be used: {error.strerror}") from None
    os.environ[VARIABLE] = str(chosen.resolve())


def wanted() -> Path | None:
    """The folder that was asked for; None if there is none."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


def examples(check: str, implementation: str) -> ExampleDatabase | None:
    """The failing examples of a check on an implementation of any version; None without a database.

    Args:
      check: its name.
      implementation: as it calls itself.
    """
    folder = wanted()
    if folder is None:
        return None
    return Shelf(DirectoryBasedExampleDatabase(folder), f"{implementation}/{check}/".encode())


class Shelf(ExampleDatabase):
    """The part of a database whose keys begin in one way: Hypothesis takes all checks for one test.

    Args:
      database: the whole of it.
      prefix: of the keys.
    """

    def __init__(self, database: ExampleDatabase, prefix: bytes) -> None:
        super().__init__()
        self._database = database
        self._prefix = prefix

    def save(self, key: bytes, value: bytes) -> None:
        self._database.save(self._prefix + key, value)

    def fetch(self, key: bytes) -> Iterable[bytes]:
        return self._database.fetch(self._prefix + key)

    def delete(self, key: bytes, value: bytes) -> None:
        self._database.delete(self._prefix + key, value)
