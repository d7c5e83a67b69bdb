"""Reports of the shards of one run, put together into the report of that run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from conformance.findings.coverage import Coverage, add
from conformance.runs.report import ReportError, Run, read

#: What reports of one run have in common, with the words for it.
COMMON: dict[str, Callable[[Run], object]] = {
    "implementation": lambda run: run.implementation,
    "version of the implementation": lambda run: run.version,
    "set of features": lambda run: sorted(run.features),
    "profile": lambda run: run.profile,
    "seed": lambda run: run.seed,
    "set of clauses": lambda run: sorted(set(run.clauses)),
    "selection of checks": lambda run: run.selection,
}


class MergeError(ValueError):
    """Reports cannot be merged; the message names a file and the reason."""


def merge(paths: Sequence[Path], command: str, partial: bool = False) -> tuple[Run, list[str]]:
    """One report out of those of all shards.

    Args:
      paths: the reports.
      command: what is written into the report as its command.
      partial: shards may be missing; then the report is marked as incomplete.

    Returns:
      The run, and notes on what deserves attention.

    Raises:
      MergeError: a report cannot be read, is of another run, or is there twice; or a shard is missing.
    """
    try:
        runs = {path: read(path) for path in paths}
    except ReportError as error:
        raise MergeError(str(error)) from None
    if len(runs) < len(paths):
        raise MergeError(f"{max(paths, key=paths.count)}: is given twice")
    (first_path, first), *others = runs.items()
    for path, run in others:
        _check_common(first_path, first, path, run)
    missing = _missing(runs)
    if missing and not partial:
        raise MergeError(
            f"{first_path}: is shard {first.shard}, but shards {_numbers(missing)} are missing; "
            "--partial goes on without them"
        )
    notes = _notes(runs)
    if missing:
        notes.append(f"shards {_numbers(missing)} of {first.shard.of} are missing")
    merged = Run(
        implementation=first.implementation,
        version=first.version,
        profile=first.profile,
        seed=first.seed,
        command=command,
        features=first.features,
        started=min(run.started for run in runs.values()),
        clauses=first.clauses,
        outcomes=[outcome for run in runs.values() for outcome in run.outcomes],
        errors=[f"shard {run.shard}: {error}" for run in runs.values() for error in run.errors],
        complete=not missing and all(run.complete for run in runs.values()),
        seconds=sum(run.seconds for run in runs.values()),
        replays={key: path for run in runs.values() for key, path in run.replays.items()},
        reasons=first.reasons,
        where=first.where,
        foreign=_joined([run.foreign for run in runs.values()]),
        selection=first.selection,
        coverage=_sum(run.coverage for run in runs.values()),
        environment=_joined([run.environment for run in runs.values()]),
    )
    lost = first.selection.checks - len(merged.outcomes)
    if lost and merged.complete and not merged.errors:
        raise MergeError(
            f"{first_path}: of the {first.selection.checks} checks {lost} have no outcome"
        )
    merged.sort()
    return merged, notes


def _check_common(first_path: Path, first: Run, path: Path, run: Run) -> None:
    """Checks that two reports belong to one run.

    Raises:
      MergeError: they do not.
    """
    for words, value in COMMON.items():
        wanted, found = (value(one) for one in (first, run))
        if wanted != found:
            raise MergeError(f"{path}: {words} is {found}, but in {first_path} it is {wanted}")
    if run.shard.of != first.shard.of:
        raise MergeError(f"{path}: is shard {run.shard}, but {first_path} is {first.shard}")


def _missing(runs: Mapping[Path, Run]) -> list[int]:
    """Numbers of the shards that no report is about.

    Raises:
      MergeError: two reports are about one shard or one check.
    """
    shards: dict[int, Path] = {}
    checks: dict[str, Path] = {}
    total = 1
    for path, run in runs.items():
        total = run.shard.of
        before = shards.setdefault(run.shard.number, path)
        if before != path:
            raise MergeError(f"{path}: is shard {run.shard}, and so is {before}")
        for outcome in run.outcomes:
            before = checks.setdefault(outcome.check, path)
            if before != path:
                raise MergeError(f"{path}: has an outcome of {outcome.check}, and so has {before}")
    return [number for number in range(1, total + 1) if number not in shards]


def _numbers(numbers: Sequence[int]) -> str:
    """Numbers as text, e.g. ``2, 5…7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] + 1 == number:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}…{b}" for a, b in parts)


def _notes(runs: Mapping[Path, Run]) -> list[str]:
    """Shards that were interrupted, and versions in which the machines differ."""
    notes = [
        f"{path}: shard {run.shard} was interrupted"
        for path, run in runs.items()
        if not run.complete
    ]
    (first_path, first), *others = runs.items()
    for path, run in others:
        mine, theirs = run.environment | run.foreign, first.environment | first.foreign
        notes += [
            f"{path}: {name} is {mine.get(name)}, but in {first_path} it is {theirs.get(name)}"
            for name in sorted(mine.keys() | theirs.keys())
            if name != "platform" and mine.get(name) != theirs.get(name)
        ]
    return notes


def _sum(parts: Iterable[Coverage]) -> Coverage:
    """Problems that several machines have tried."""
    total: Coverage = {}
    for part in parts:
        add(total, part)
    return total


def _joined(found: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Versions of several machines; where they differ, all of them."""
    names = dict.fromkeys(name for versions in found for name in versions)
    return {
        name: ", ".join(sorted({versions[name] for versions in found if name in versions}))
        for name in names
    }
