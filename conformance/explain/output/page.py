"""A study as a self-contained HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from conformance.explain.costs.layouts import LAYOUTS
from conformance.explain.costs.memory import CHIPS, SIZES, SMEM_BESIDES
from conformance.explain.costs.study import Question, Study
from conformance.explain.output.advice import Remark
from conformance.explain.output.encode import Encoded, encoded
from conformance.explain.output.report import to_json
from conformance.explain.output.wording import beside, count, listing, problem_facts, share, size
from conformance.reports.html.page import render

TEMPLATE = Path(__file__).parent / "templates" / "explain.html.j2"

#: Label of a remark, by kind.
WORDS = {"good": "Good", "cost": "Costs", "limit": "Does not fit", "try": "Try"}


def page(found: Study, said: list[Remark]) -> str:
    """The page.

    Raises:
      ValueError: the mask has too many blocks for a page.
    """
    question, report = found.question, to_json(found, said)
    kernels = [
        [[s for s in report[kernel] if s["layout"] == layout][-1] for kernel in ("forward", "dkv")]
        for layout in LAYOUTS
    ]
    parts = encoded(question)
    return render(
        TEMPLATE,
        question=question,
        facts=" · ".join(problem_facts(question)),
        said=said,
        words=WORDS,
        report=report,
        kernels=kernels,
        left_out=listing([f"{side:,}" for side in parts.left_out]) if parts.left_out else "",
        smem_limit=max(chip.smem for chip in CHIPS),
        model=_script(model(question, parts)),
        size=size,
        share=share,
        beside=beside,
        count=count,
    )


def model(question: Question, parts: Encoded) -> dict[str, Any]:
    """The data that the scripts of the page use."""
    return {
        "q_len": question.q_len,
        "kv_len": question.kv_len,
        "base": [parts.q_sizes[0], parts.kv_sizes[0]],
        "q_sizes": parts.q_sizes,
        "kv_sizes": parts.kv_sizes,
        "block": [
            max(question.block_q, parts.q_sizes[0]),
            max(question.block_kv, parts.kv_sizes[0]),
        ],
        "codes": parts.codes,
        "pictures": parts.pictures,
        "cells": list(parts.cells),
        "computed": question.expr.computable,
        "heads": question.heads.q,
        "kv_heads": question.heads.kv,
        "head_dim": question.head_dim,
        "itemsize": SIZES[question.dtype],
        "smem_limit": max(chip.smem for chip in CHIPS),
        "smem_besides": SMEM_BESIDES,
    }


def _script(data: dict[str, Any]) -> Markup:
    """JSON that is safe inside a script element."""
    return Markup(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"))


def write_page(found: Study, said: list[Remark], path: Path) -> None:
    """Writes the page.

    Raises:
      ValueError: the mask has too many blocks for a page.
      OSError: the file cannot be written.
    """
    path.write_text(page(found, said), encoding="utf-8")
