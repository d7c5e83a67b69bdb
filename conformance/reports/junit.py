"""The report of a run as JUnit XML, for continuous integration."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from conformance.findings.finding import Outcome
from conformance.findings.printed import outcome_text
from conformance.runs.report import Run


def write_junit(run: Run, path: Path) -> None:
    """Writes the report as JUnit XML, one test case a check."""
    errors = list(run.errors)
    if not run.complete:
        errors.append("interrupted: this report is partial")
    unjudged = sum(outcome.status == "error" for outcome in run.outcomes)
    suite = ET.Element(
        "testsuite",
        name=f"splash-conformance {run.implementation} {_printable(run.version)}",
        tests=str(len(run.outcomes)),
        failures=str(sum(o.status == "violates" for o in run.outcomes)),
        errors=str(len(errors) + unjudged),
        skipped=str(sum(o.status in ("n/a", "known deviation") for o in run.outcomes)),
        time=f"{run.seconds:.3f}",
    )
    if run.started:
        suite.set("timestamp", run.started.removesuffix("+00:00"))
    for outcome in run.outcomes:
        _add(suite, outcome, run)
    for error in errors:
        case = ET.SubElement(suite, "testcase", classname="harness", name="error")
        ET.SubElement(case, "error", message=_printable(error))
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _add(suite: ET.Element, outcome: Outcome, run: Run) -> None:
    """One test case."""
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"{outcome.chapter}.{outcome.clause}",
        name=outcome.check,
        time=f"{outcome.seconds:.3f}",
    )
    replays = {n: path for (check, n), path in run.replays.items() if check == outcome.check}
    if outcome.status == "violates":
        failure = ET.SubElement(case, "failure", message=f"{outcome.clause} is violated")
        failure.text = _printable(outcome_text(outcome, run.implementation, replays))
    elif outcome.status == "error":
        ET.SubElement(case, "error", message=_printable(outcome.reason))
    elif outcome.status == "n/a":
        ET.SubElement(case, "skipped", message=f"n/a: {outcome.reason}")
    elif outcome.status == "known deviation":
        ids = sorted({f.deviation for f in outcome.findings if f.deviation})
        ET.SubElement(case, "skipped", message=f"known deviation: {', '.join(ids)}")


def _printable(text: str) -> str:
    """Text without the control characters that XML forbids."""
    return "".join(c for c in text if c in "\n\t" or ord(c) >= 32)
