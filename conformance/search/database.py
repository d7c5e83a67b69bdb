"""A database of failing examples that runs share, where one is configured.

``splash-conformance run IMPL --database DIR`` keeps what Hypothesis found to fail in a folder, and tries that
first the next time: another seed, profile or machine finds it again at once. Without it the same seed tries the
same problems everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from conformance.contract.settings import requested_database


def examples(check: str, implementation: str) -> ExampleDatabase | None:
    """The failing examples of a check on an implementation of any version; None without a database.

    Args:
      check: its name.
      implementation: as it calls itself.
    """
    folder = requested_database()
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
