"""Pytest plugin: collects the checks and runs them against one implementation.

Loaded by name, never automatically::

    pytest -p conformance.runs.plugin --pyargs conformance.checks --splash-impl jax -n 2

Ordinary pytest selection (``-k``, node ids, ``-x``) works. ``splash-conformance run`` uses this plugin.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance import checks
from conformance.checks.registry import Check
from conformance.contract.fence import Subject
from conformance.contract.protocol import Adapter, AdapterError, Description
from conformance.contract.remote.where import Where, add_options
from conformance.contract.suggest import did_you_mean
from conformance.findings.finding import Outcome
from conformance.findings.printed import outcome_text
from conformance.runs.journal import read
from conformance.runs.selection import Part, parse_part
from conformance.runs.shards import part_of, selected
from conformance.search.known_deviations import Deviation, ExpectationError
from conformance.search.known_deviations import load as load_expectations
from conformance.search.last_problem import Trail
from conformance.search.search import PROFILES, run_check
from spec import all_clauses

PROPERTY = "splash_outcome"

#: New objects after which garbage is looked for, by generation.
GARBAGE = (100_000, 50, 50)


class CheckFailed(Exception):
    """A check found a violation; its outcome is the report."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__(f"{outcome.clause} is violated")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the ``--splash-*`` options."""
    group = parser.getgroup("splash", "splash attention conformance")
    group.addoption("--splash-impl", metavar="IMPL", help="implementation to judge (required)")
    group.addoption(
        "--splash-profile", default="quick", choices=sorted(PROFILES), help="how much to try"
    )
    group.addoption("--splash-seed", type=int, default=0, help="seed of the search (default 0)")
    group.addoption(
        "--splash-clause", action="append", default=[], metavar="ID", help="only these clauses"
    )
    group.addoption("--splash-no-expectations", action="store_true", help="ignore known deviations")
    group.addoption(
        "--splash-done", type=Path, metavar="FILE", help="leave out the checks of a journal"
    )
    group.addoption(
        "--splash-shard",
        type=parse_part,
        default=Part(),
        metavar="I/N",
        help="only this part of them",
    )
    group.addoption("--splash-trail", type=Path, metavar="DIR", help="note there what is tried")
    add_options(group.addoption, "--splash-")


class Session:
    """What all checks of one process share: the implementation and its known deviations."""

    def __init__(self, config: pytest.Config) -> None:
        impl = config.getoption("--splash-impl")
        if not impl:
            raise pytest.UsageError(
                "--splash-impl is required: a shipped name, module:attribute or file.py:attribute"
            )
        for name in config.getoption("--splash-clause"):
            if name not in all_clauses():
                hint = did_you_mean(name, all_clauses())
                raise pytest.UsageError(f"--splash-clause {name}: no such clause{hint}")
        try:
            adapter = Where.of(config.option, "splash_").open(impl)
            description = described(adapter, impl)
            self.deviations: list[Deviation] = (
                []
                if config.getoption("--splash-no-expectations")
                else load_expectations(description)
            )
        except (AdapterError, ExpectationError) as error:
            raise pytest.UsageError(str(error)) from error
        self.subject = Subject(adapter, description)
        self.profile = PROFILES[config.getoption("--splash-profile")]
        self.seed = int(config.getoption("--splash-seed"))
        folder: Path | None = config.getoption("--splash-trail")
        self.trail = None if folder is None else Trail(folder)
        # Compiling makes many objects that live on; looking for garbage among them takes a tenth of a run.
        gc.freeze()
        gc.set_threshold(*GARBAGE)


def described(adapter: Adapter, impl: str) -> Description:
    """What an adapter declares.

    Raises:
      AdapterError: ``describe()`` raises or returns something else.
    """
    try:
        description = adapter.describe()
    except AdapterError:
        raise
    except Exception as error:
        raise AdapterError(
            f"{impl!r}: describe() raises {type(error).__name__}: {error}"
        ) from error
    if not isinstance(description, Description):
        raise AdapterError(
            f"{impl!r}: describe() must return a Description, not {type(description).__name__}"
        )
    return description


SESSION = pytest.StashKey[Session]()


def session_of(config: pytest.Config) -> Session:
    """The shared session, made on first use."""
    if SESSION not in config.stash:
        config.stash[SESSION] = Session(config)
    return config.stash[SESSION]


def pytest_sessionstart(session: pytest.Session) -> None:
    """A wrong implementation or clause is one error before anything runs."""
    if session.config.getoption("--splash-impl"):
        session_of(session.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Checks without an implementation cannot run."""
    if any(isinstance(item, CheckItem) for item in items):
        session_of(config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects the files of `conformance.checks`, and nothing else."""
    home = Path(checks.__file__).parent
    if file_path.parent == home and file_path.stem in checks.MODULES:
        made: pytest.Collector = CheckFile.from_parent(parent, path=file_path)
        return made
    return None


class CheckFile(pytest.File):
    """One chapter of checks."""

    def collect(self) -> Iterator[pytest.Item]:
        """The checks of the file, restricted to the wanted clauses and the wanted shard."""
        option = self.config.getoption
        chosen = selected(option("--splash-clause"))
        mine = part_of(chosen, PROFILES[option("--splash-profile")], option("--splash-shard"))
        journal: Path | None = option("--splash-done")
        done = {outcome.check for outcome in read(journal)[1]} if journal else set()
        for check in mine:
            here = check.module.rsplit(".", 1)[1] == self.path.stem
            if here and check.name not in done:
                yield CheckItem.from_parent(self, name=check.name, check=check)


class CheckItem(pytest.Item):
    """One check, as a pytest item."""

    def __init__(self, *, check: Check, **more: Any) -> None:
        super().__init__(**more)
        self.check = check
        # Heavy checks of one domain draw the same problems: in one process they share their kernels.
        self.add_marker(pytest.mark.xdist_group(check.domain.group or check.name))
        self.extra_keyword_matches.add(check.clause_id)  # for -k

    def runtest(self) -> None:
        """Runs the check and turns its verdict into pytest's."""
        session = session_of(self.config)
        outcome = run_check(
            self.check,
            session.subject,
            session.profile,
            session.seed,
            session.deviations,
            session.trail,
        )
        self.user_properties.append((PROPERTY, json.dumps(outcome.to_json())))
        if outcome.status == "n/a":
            pytest.skip(f"n/a: {outcome.reason}")
        if outcome.status in ("violates", "error"):
            raise CheckFailed(outcome)
        if outcome.stale:
            raise CheckFailed(outcome)
        if outcome.status == "known deviation":
            ids = sorted({f.deviation for f in outcome.findings if f.deviation})
            pytest.xfail(f"known deviation: {', '.join(ids)}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The violation as a report, other errors as pytest shows them."""
        if isinstance(excinfo.value, CheckFailed):
            impl = str(self.config.getoption("--splash-impl"))
            return outcome_text(excinfo.value.outcome, impl)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        """Where the check stands, and what it judges."""
        return self.path, None, f"{self.check.clause_id}: {self.check.name}"
