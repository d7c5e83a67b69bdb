"""Schemas of all JSON that commands write: ``python -m conformance.commands.schemas`` generates their files.

``--check`` fails if a file is stale.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from conformance.compare import comparison_form
from conformance.explain.output import report_form as explain_form
from conformance.fuzz_mask import outcome as fuzz_mask_form
from conformance.runs import report_form

#: What has ``SCHEMA_FILE`` and ``schema()``.
FORMS = (report_form, comparison_form, explain_form, fuzz_mask_form)


def texts() -> dict[Path, str]:
    """What the schema files must hold."""
    return {
        form.SCHEMA_FILE: json.dumps(form.schema(), indent=1, ensure_ascii=False) + "\n"
        for form in FORMS
    }


def stale() -> list[Path]:
    """Files that differ from what their types say."""
    return [
        path
        for path, text in texts().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Writes or checks the files; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.commands.schemas", description=__doc__
    )
    parser.add_argument("--check", action="store_true", help="fail if a file is stale")
    if parser.parse_args(argv).check:
        for path in stale():
            print(f"{path.name} is stale; run: python -m conformance.commands.schemas")
        return 1 if stale() else 0
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
