"""The report of a run as JUnit XML, for continuous integration."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from conformance.report import Run
from conformance.text import outcome_text


def write_junit(run: Run, path: Path) -> None:
    """Writes the report as JUnit XML, one test case a check."""
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
