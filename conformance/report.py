"""Reports of a run: the table in the terminal, JSON, JUnit."""

from __future__ import annotations

import json
import platform
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from conformance.verdict import Finding, Outcome
from spec import all_clauses
from spec.clauses import chapter_files, chapter_title

SCHEMA = 1
COLUMNS = ("conforms", "violates", "known deviation", "n/a", "error", "undefined")
STYLES = {
    "conforms": "green",
    "violates": "bold red",
    "known deviation": "yellow",
    "error": "magenta",
}


@dataclass
class Run:
    """Everything that a run found out.

    Attributes:
      implementation, version: what was judged.
      profile, seed: how.
      command: what repeats the run.
      outcomes: one a check.
      errors: failures of the harness or the adapter, one line each.
      complete: False after an interruption.
      seconds: wall time.
      replays: replay file by (check, number of the finding).
      reasons: what is known about a deviation, by its id.
      where: where the implementation ran, as on the command line.
      foreign: the versions of the interpreter that it ran in, if that was another.
    """

    implementation: str
    version: str
    profile: str
    seed: int
    command: str
    outcomes: list[Outcome] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    complete: bool = True
    seconds: float = 0.0
    replays: dict[tuple[str, int], str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    where: str = ""
    foreign: dict[str, str] = field(default_factory=dict)

    def clause_status(self) -> dict[str, str]:
        """Verdict of every clause: the worst of its checks."""
        order = ("violates", "error", "known deviation", "conforms", "n/a")
        found: dict[str, str] = {}
        for outcome in self.outcomes:
            before = found.get(outcome.clause)
            if before is None or order.index(outcome.status) < order.index(before):
                found[outcome.clause] = outcome.status
        return found

    @property
    def exit_code(self) -> int:
        """0 conforms, 1 violation, 2 harness or adapter error, 3 stale expectation."""
        if self.errors or not self.complete or any(o.status == "error" for o in self.outcomes):
            return 2
        if any(o.status == "violates" for o in self.outcomes):
            return 1
        return 3 if any(o.stale for o in self.outcomes) else 0

    def to_json(self) -> dict[str, Any]:
        """The canonical report, plain data."""
        return {
            "schema": SCHEMA,
            "implementation": self.implementation,
            "version": self.version,
            "profile": self.profile,
            "seed": self.seed,
            "command": self.command,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "environment": environment(),
            **({"foreign_environment": self.foreign} if self.foreign else {}),
            "exit_code": self.exit_code,
            "clauses": self.clause_status(),
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
            "errors": self.errors,
            "replays": {f"{check}#{n}": path for (check, n), path in self.replays.items()},
        }


def environment() -> dict[str, str]:
    """Python, platform and the versions that results depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("splash-conformance", "numpy", "hypothesis", "jax", "jaxlib", "libtpu", "tokamax"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def chapter_table(run: Run) -> Table:
    """Chapters against verdicts, in clauses."""
    table = Table(title=f"{run.implementation} {run.version}", title_justify="left")
    table.add_column("chapter", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    status = run.clause_status()
    totals: Counter[str] = Counter()
    for path in chapter_files():
        mine = [c for c in all_clauses().values() if c.chapter == path.stem]
        counts = Counter(
            "undefined" if not c.is_checkable else status[c.id]
            for c in mine
            if not c.is_checkable or c.id in status
        )
        if any(c.id in status for c in mine):
            totals += counts
            table.add_row(chapter_title(path), *_cells(counts))
    table.add_section()
    table.add_row("all", *_cells(totals))
    return table


def _cells(counts: Counter[str]) -> list[str]:
    return [
        f"[{STYLES.get(c, 'dim')}]{counts[c]}[/]" if counts[c] else "[dim]·[/]" for c in COLUMNS
    ]


def quality_table(findings: Iterable[Finding]) -> Table | None:
    """Figures of quality clauses above the best possible."""
    table = Table(title="figures (never a failure)", title_justify="left")
    for column in ("clause", "what", "measured", "best", "problem"):
        table.add_column(column)
    for item in findings:
        table.add_row(item.clause, item.where, item.actual, item.expected, item.blocks())
    return table if table.row_count else None


def print_run(run: Run, console: Console) -> None:
    """Prints violations, known deviations, figures, errors and the table of chapters."""
    for group in grouped(run, lambda f: not f.deviation):
        print_group(group, run, console)
    for group in grouped(run, lambda f: bool(f.deviation)):
        print_group(group, run, console)
    figures = quality_table(f for o in run.outcomes for f in o.findings if f.kind == "quality")
    if figures is not None:
        console.print()
        console.print(figures)
    for name in sorted({name for o in run.outcomes for name in o.stale}):
        console.print(f"[yellow]stale expectation[/] {name}: its fixed problem no longer fails")
    unjudged = [f"{o.clause} ({o.check}): {o.reason}" for o in run.outcomes if o.status == "error"]
    for error in [*run.errors, *unjudged]:
        console.print("error:", error, style="magenta", markup=False)
    console.print()
    console.print(chapter_table(run))
    print_summary(run, console)


@dataclass(frozen=True)
class Group:
    """Findings with one cause: the smallest stands for all.

    Attributes:
      finding: the smallest.
      replay: its replay file.
      clauses: all clauses that are touched.
    """

    finding: Finding
    replay: str
    clauses: tuple[str, ...]


def grouped(run: Run, wanted: Callable[[Finding], bool]) -> list[Group]:
    """Findings by cause: a known deviation or a crash is one cause whatever clause it was met in."""
    groups: dict[object, list[tuple[Finding, str]]] = {}
    for outcome in run.outcomes:
        for n, finding in enumerate(outcome.findings):
            if finding.kind == "quality" or not wanted(finding):
                continue
            own = (finding.clause, finding.check)
            cause = finding.deviation or (finding.signature if finding.kind == "crash" else own)
            replay = run.replays.get((outcome.check, n), "")
            groups.setdefault(cause, []).append((finding, replay))
    result = []
    order = list(all_clauses())
    for members in groups.values():
        # Equally small problems: the clause that stands first in the specification speaks for all.
        finding, replay = min(members, key=lambda m: (m[0].size[:3], order.index(m[0].clause)))
        clauses = tuple(sorted({f.clause for f, _ in members}, key=order.index))
        result.append(Group(finding, replay, clauses))
    return result


def print_group(group: Group, run: Run, console: Console) -> None:
    """Prints the smallest finding of a cause, and what else the cause touches."""
    from conformance.text import finding_text

    text = finding_text(group.finding, run.implementation, group.replay, run.where)
    others = [clause for clause in group.clauses if clause != group.finding.clause]
    if others:
        text += f"\n  also in:  {clause_ranges(others)}"
    reason = run.reasons.get(group.finding.deviation)
    if reason:
        text += f"\n  known:    {reason}"
    style = "yellow" if group.finding.deviation else ""
    console.print()
    console.print(text, markup=False, highlight=False, style=style, soft_wrap=True)


def clause_ranges(ids: Sequence[str]) -> str:
    """Clause ids with neighbours joined, e.g. ``LABEL-1…5, DATA-3``."""
    parts: list[list[Any]] = []
    for clause_id in ids:
        name, number = clause_id.rsplit("-", 1)
        if parts and parts[-1][0] == name and parts[-1][2] + 1 == int(number):
            parts[-1][2] = int(number)
        else:
            parts.append([name, int(number), int(number)])
    return ", ".join(f"{n}-{a}" if a == b else f"{n}-{a}…{b}" for n, a, b in parts)


def print_summary(run: Run, console: Console) -> None:
    """The last lines: how much was tried, what came out, whether it is complete."""
    problems = sum(o.examples for o in run.outcomes)
    console.print(
        f"{len(run.outcomes)} checks, {problems} problems, {run.seconds:.1f} s "
        f"(profile {run.profile}, seed {run.seed})"
    )
    if not run.complete:
        console.print("[bold yellow]interrupted: this report is partial[/]")
    console.print(f"{run.implementation} {run.version} {verdict(run)}")


def verdict(run: Run) -> str:
    """The last line: what the exit code means, with known deviations counted."""
    words = {
        0: "[green]conforms[/]",
        1: "[bold red]does not conform[/]",
        2: "[magenta]could not be judged completely[/]",
        3: "[yellow]has stale expectations[/]",
    }
    known = {f.deviation for o in run.outcomes for f in o.findings if f.deviation}
    if not known:
        return words[run.exit_code]
    clauses = sum(status == "known deviation" for status in run.clause_status().values())
    text = f"{len(known)} known deviations ({clauses} clauses)"
    if run.exit_code == 0:
        return f"[yellow]conforms apart from {text}[/]"
    return f"{words[run.exit_code]}, besides {text}"


def write_json(run: Run, path: Path) -> None:
    """Writes the canonical report."""
    path.write_text(json.dumps(run.to_json(), indent=1) + "\n", encoding="utf-8")


def write_junit(run: Run, path: Path) -> None:
    """Writes the report as JUnit XML, one test case a check."""
    from conformance.text import outcome_text

    suite = ET.Element(
        "testsuite",
        name=f"splash-conformance {run.implementation} {run.version}",
        tests=str(len(run.outcomes)),
        failures=str(sum(o.status == "violates" for o in run.outcomes)),
        errors=str(len(run.errors)),
        skipped=str(sum(o.status in ("n/a", "known deviation") for o in run.outcomes)),
        time=f"{run.seconds:.3f}",
    )
    for outcome in run.outcomes:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"{outcome.chapter}.{outcome.clause}",
            name=outcome.check,
            time=f"{outcome.seconds:.3f}",
        )
        if outcome.status == "violates":
            failure = ET.SubElement(case, "failure", message=f"{outcome.clause} is violated")
            failure.text = _printable(outcome_text(outcome, run.implementation))
        elif outcome.status == "n/a":
            ET.SubElement(case, "skipped", message=f"n/a: {outcome.reason}")
        elif outcome.status == "known deviation":
            ids = sorted({f.deviation for f in outcome.findings if f.deviation})
            ET.SubElement(case, "skipped", message=f"known deviation: {', '.join(ids)}")
    for error in run.errors:
        case = ET.SubElement(suite, "testcase", classname="harness", name="error")
        ET.SubElement(case, "error", message=_printable(error))
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _printable(text: str) -> str:
    """Text without the control characters that XML forbids."""
    return "".join(c for c in text if c in "\n\t" or ord(c) >= 32)


def console_for(stream: Any = None) -> Console:
    """A console that respects NO_COLOR; into a pipe it writes plain text of a fixed width."""
    stream = stream or sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 110)
