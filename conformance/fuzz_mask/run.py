"""Judges a class stage by stage: first the class itself, then an implementation that is given its masks."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from conformance.adapters.shared.user_masks import as_library_mask
from conformance.contract.fence import Subject
from conformance.contract.load import LoadError
from conformance.fuzz_mask.arguments.settings import small_settings, tiny_settings
from conformance.fuzz_mask.arguments.source import Source
from conformance.fuzz_mask.case import Case, Judge
from conformance.fuzz_mask.cases import cases, pairs
from conformance.fuzz_mask.class_checks import (
    DECLARED_MEANING,
    IN_KERNEL,
    judge_of_oracle,
    judges_of_class,
    judges_of_pairs,
)
from conformance.fuzz_mask.class_subject import ClassSubject
from conformance.fuzz_mask.compiled import OtherCauses, judges_of
from conformance.fuzz_mask.errors import own_trace
from conformance.fuzz_mask.faults import fault_of, fault_of_constructor
from conformance.fuzz_mask.hunt import Hunt
from conformance.fuzz_mask.outcome import NOT_ASKED_FOR, FuzzRun, Stage, StageName, Status
from conformance.fuzz_mask.problems import ProblemCase, compiler_problems, numeric_problems
from conformance.search import known_deviations as expectation


@dataclass(frozen=True)
class Effort:
    """How much to try, in masks, pairs or problems.

    Attributes:
      masks: for the class itself, and the same number of pairs.
      functions: for mask functions inside kernels.
      compiled: for compiled arrays.
      kernels: for the steps of kernels.
      attention: for attention and gradients.
      shrinks: for shrinking each finding that needs no kernel.
      heavy_shrinks: for shrinking each of the others.
    """

    masks: int
    functions: int
    compiled: int
    kernels: int
    attention: int
    shrinks: int
    heavy_shrinks: int


EFFORTS: dict[str, Effort] = {
    "quick": Effort(150, 8, 60, 6, 4, 300, 15),
    "ci": Effort(600, 24, 300, 24, 12, 600, 40),
    "deep": Effort(5000, 100, 3000, 100, 40, 2000, 100),
}

STAGES: dict[StageName, str] = {
    "class": "the class itself",
    "compiled": "compiled arrays",
    "kernels": "steps of the kernels",
    "attention": "attention and gradients",
}


class Fuzzing:
    """The judgement of one class, stage by stage.

    Args:
      run: receives the results.
      source: of the masks.
      subject: the implementation that is given its masks.
      oracle: the predicate of the author and its name; None without one.
      effort: how much to try; None takes that of the profile.
      stages: names of the `STAGES` to run.
      keep_going: run later stages although an earlier one found something.
      say: called with the title of each stage.
    """

    def __init__(
        self,
        run: FuzzRun,
        source: Source,
        subject: Subject,
        oracle: tuple[Any, str] | None = None,
        *,
        effort: Effort | None = None,
        stages: Collection[str] = tuple(STAGES),
        keep_going: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.run = run
        self.source = source
        self.subject = subject
        self.of_class = ClassSubject(source.name)
        self.oracle = oracle
        self.keep_going = keep_going
        self.say = say
        self.effort = effort or EFFORTS[run.profile]
        self.stages = stages
        self.others = OtherCauses()
        self.square: set[bool] = set()
        self.unseeing: Case | None = None
        self.given_as: set[str] = set()

    def execute(self) -> None:
        """Runs all stages.

        Raises:
          LoadError: no mask could be made at all.
        """
        start = time.perf_counter()
        self.run.stages = {name: Stage(title) for name, title in STAGES.items()}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._stage("class", self._judge_class)
                for name in ("compiled", "kernels", "attention"):
                    self._stage(name, lambda stage, name=name: self._judge_compiled(name, stage))  # type: ignore[misc]
        except KeyboardInterrupt:
            self.run.complete = False
        self._finish()
        self.run.seconds = time.perf_counter() - start

    def _stage(self, name: StageName, judge: Callable[[Stage], None]) -> None:
        stage = self.run.stages[name]
        if name not in self.stages:
            stage.reason = NOT_ASKED_FOR
            return
        if self.run.of("required") and not self.keep_going:
            stage.reason = "something above is wrong"
            return
        self.say(stage.title)
        start = time.perf_counter()
        judge(stage)
        stage.seconds = time.perf_counter() - start

    def _judge_class(self, stage: Stage) -> None:
        effort, source, subject = self.effort, self.source, self.of_class
        judges = judges_of_class(subject)
        if self.oracle is not None:
            judges[DECLARED_MEANING] = judge_of_oracle(*self.oracle)
        light = [name for name in judges if name != IN_KERNEL]
        noted = cases(source, subject, small_settings()).map(self._noted)
        tiny = cases(source, subject, tiny_settings())
        self._hunt(stage, noted, judges, light, effort.masks, effort.shrinks, tiny)
        if not source.counts.made:
            raise LoadError(self._nothing_made())
        in_kernel = [IN_KERNEL] if IN_KERNEL in judges else []
        self._hunt(stage, noted, judges, in_kernel, effort.functions, effort.heavy_shrinks, tiny)
        mixed = pairs(source, subject, st.one_of(tiny_settings(), small_settings()))
        few, of_pairs = pairs(source, subject, tiny_settings()), judges_of_pairs(subject)
        self._hunt(stage, mixed, of_pairs, of_pairs, effort.masks, effort.shrinks, few)
        for raised in self.source.counts.raised.values():
            self.run.faults.append(fault_of_constructor(raised, self.source, self.run.command))
        _settle(stage)

    def _noted(self, case: Case) -> Case:
        """Records what the notes of the report say about the masks."""
        try:
            shape, whole = case.shape, case.whole
        except Exception:
            return case
        self.square.add(shape[0] == shape[1])
        smaller = self.unseeing is None or case.size < self.unseeing.size
        if smaller and not whole.any(axis=1).all():
            self.unseeing = case
        return case

    def _given(self, case: ProblemCase) -> ProblemCase:
        """Records whether the implementation gets masks of the class in a wrapper."""
        if not self.given_as and self.subject.description.offers("masks"):
            plain = case.problem.but(masks=case.masks[:1])
            try:
                kind = type(self.subject.adapter.prepare(plain).mask(0))
            except Exception:
                return case
            if kind.__module__ == as_library_mask.__module__:
                name = self.run.implementation
                self.given_as.add(f"not a mask of {name}, so it is given to {name} in a wrapper")
        return case

    def _judge_compiled(self, name: str, stage: Stage) -> None:
        subject, effort = self.subject, self.effort
        deviations = expectation.load(subject.description)
        judges = judges_of(name, subject, deviations, self.others)
        if not judges:
            stage.status, stage.reason = "n/a", f"{self.run.implementation} does not declare it"
            return
        description = subject.description
        if name == "attention":
            problems = numeric_problems(self.source, description)
        else:
            problems = compiler_problems(self.source, description, name == "kernels")
        problems = problems.map(self._given)
        examples = getattr(effort, name)
        shrinks = effort.shrinks if name == "compiled" else effort.heavy_shrinks
        self._hunt(stage, problems, judges, judges, examples, shrinks)
        if examples and not self.source.counts.made:
            raise LoadError(self._nothing_made())
        if not stage.cases:
            block_q, block_kv = description.kernel_block_multiples
            stage.status = "n/a"
            stage.reason = (
                f"no mask whose lengths are multiples of {block_q} and {block_kv} was made: write the strategy as a "
                "function of the shape"
            )
        elif not stage.clauses:
            stage.status, stage.reason = "n/a", "nothing left to judge, see above"
        _settle(stage)

    def _hunt(
        self,
        stage: Stage,
        drawn: st.SearchStrategy[Any],
        judges: Mapping[str, Judge],
        wanted: Any,
        examples: int,
        shrinks: int,
        tiny: st.SearchStrategy[Any] | None = None,
    ) -> None:
        if examples < 1 or not wanted:
            return
        seed, module = self.run.seed, self.source.module
        done = Hunt(judges, wanted, examples=examples, seed=seed, module=module)
        done.run(drawn, tiny, shrinks)
        stage.cases += done.cases
        for name in done.judged:
            if judges[name].clause:
                stage.clauses.setdefault(judges[name].clause, "conforms")
        for found, _ in done.smallest.values():
            self.run.faults.append(fault_of(found, self.source, self.run.command))
            if found.kind != "advice" and found.judge.clause:
                stage.clauses[found.judge.clause] = "violates"
            elif found.kind != "advice":
                stage.status = "violates"

    def _nothing_made(self) -> str:
        counts = self.source.counts
        name = self.source.name
        if counts.raised:
            raised = min(counts.raised.values(), key=lambda r: len(self.source.text(r.arguments)))
            text = own_trace(raised.error, self.source.file)
            return f"{name} cannot be made: {self.source.text(raised.arguments)} fails:\n{text}"
        reasons = "".join(f"\n  {n} times, such as: {text}" for text, n in counts.reasons().items())
        return (
            f"{name} refused all {counts.discarded} combinations of arguments that were tried:{reasons}\n"
            f"{self.source.advice()}"
        )

    def _finish(self) -> None:
        run, counts = self.run, self.source.counts
        run.made, run.refused = counts.made, counts.discarded
        run.reasons = counts.reasons()
        reasons = {item.id: item.reason for item in expectation.load(self.subject.description)}
        run.elsewhere += [
            f"known deviation {name} ({found.clause}): {reasons[name]}"
            for name, found in self.others.known.items()
        ]
        run.elsewhere += [
            f"{found.clause} ({name}): {found.where}: expected {found.expected}, got {found.actual}"
            for name, found in self.others.shared.items()
        ]
        if counts.made:
            run.notes += self._notes()

    def _notes(self) -> list[str]:
        source, description = self.source, self.subject.description
        notes = list(self.given_as)
        if self.oracle is None:
            notes.append(
                "values were judged for consistency only, not for what they should mean: pass "
                "--oracle path.py:function(q_ids, kv_ids, **parameters)"
            )
        if source.left_at_default:
            names = ", ".join(source.left_at_default)
            notes.append(
                f"left at their defaults, because their annotations say too little: {names}"
            )
        if self.square == {True} and not source.calls:
            notes.append("only square masks were made: others are untested")
        if self.unseeing is not None:
            what = (
                f"{description.name} makes them zero"
                if description.offers("empty_rows:zero")
                else f"{description.name} leaves their output undefined"
            )
            notes.append(f"some rows see nothing, as in {self.unseeing.expr.text}: {what}")
        return notes


def _settle(stage: Stage) -> None:
    """Sets the verdict of a stage that ran."""
    wrong = stage.status == "violates" or "violates" in stage.clauses.values()
    verdict: Status = "violates" if wrong else "conforms"
    if stage.status != "n/a":
        stage.status = verdict
