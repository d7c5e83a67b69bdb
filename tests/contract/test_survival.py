"""Implementations that crash, hang, eat memory or answer with nonsense: a verdict each, and the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conformance import checks
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.registry import CHECKS, reject
from conformance.contract.fence import Crash, Subject
from conformance.contract.remote import host
from conformance.contract.remote.errors import Died, Elsewhere, NotTried, TimedOut
from conformance.contract.remote.host import ForeignAdapter
from conformance.contract.remote.process import Limits
from conformance.contract.remote.where import Where, seconds, size
from conformance.findings.finding import Outcome
from conformance.findings.place import Place
from conformance.findings.violation import Violation
from conformance.problem import BlockSizes, Problem
from conformance.problems.mask_json import Blocks
from conformance.runs.journal import Journal, JournalError, read
from conformance.search import search
from conformance.search.search import Profile, evaluate, run_check
from reference.masks import Causal
from tests.commands.command_line import COMMAND, Run, environment
from tests.contract import misbehaving

checks.load_all()
MISBEHAVING = str(Path(misbehaving.__file__))
FEW = Profile(
    examples=3, heavy_examples=2, broad_examples=2, numeric_examples=0, shrinks=4, variants=False
)
TWO_HEADS = Problem(
    4,
    4,
    (Blocks(("a2", "0r"), 2, 2),),
    BlockSizes(2, 2),
    heads=2,
    kv_heads=2,
    head_dim=8,
    head_dim_v=8,
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is tried, and little may be lost."""
    monkeypatch.setitem(search.PROFILES, "quick", FEW)
    monkeypatch.setattr(search, "LOSSES", 2)


def judged(adapter: Any, check: str) -> Outcome:
    subject = Subject(adapter, adapter.describe())
    return run_check(CHECKS[check], subject, FEW, seed=0)


DEATHS = {
    "Exit": ("Died: mask_info ended the process: exit status 3", "exit status 3 in mask_info"),
    "Segfault": ("Died: mask_info ended the process: SIGSEGV", "SIGSEGV in string_at"),
    "Abort": ("Died: mask_info ended the process: SIGABRT", "SIGABRT in change"),
    "Killed": ("Died: mask_info ended the process: SIGKILL", "SIGKILL in mask_info"),
    "Hang": ("TimedOut: no answer from mask_info within", "timeout in change"),
    "Eat": ("OutOfMemory: mask_info used more memory than the limit", "memory in mask_info"),
}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", DEATHS)
def test_the_end_of_the_process_is_a_verdict(said: Run, name: str) -> None:
    limits = {"Hang": ["--timeout", "0.5"], "Eat": ["--memory", "400M"]}.get(name, ["--isolate"])
    clauses = ("--clause", "LABEL-1", "--clause", "CONV-1")
    found = said("run", f"{MISBEHAVING}:{name}", *clauses, "-n", "1", "--json", "r.json", *limits)
    assert found.code == 1
    report = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert report["errors"] == []
    assert report["clauses"] == {"CONV-1": "conforms", "LABEL-1": "violates"}
    (finding,) = [f for o in report["outcomes"] for f in o["findings"]]
    message, signature = DEATHS[name]
    assert finding["kind"] == "crash"
    assert message in finding["actual"]
    assert finding["signature"] == signature
    assert f" {limits[0]}" in found.out.split("replay:")[1]
    if name == "Exit":
        assert "last words" in finding["detail"]
    if name == "Segfault":
        assert "in change" in finding["detail"]
    assert not Path("r.jsonl").exists()


@pytest.mark.usefixtures("few")
def test_what_an_implementation_prints_is_no_answer(said: Run) -> None:
    found = said(
        "run", f"{MISBEHAVING}:Noise", "--clause", "LABEL-1", "--clause", "LABEL-3", "-n", "1", "--isolate"
    )  # fmt: skip
    assert found.code == 0
    assert "garbage" not in found.out + found.err


def test_leaving_is_an_exception_like_others() -> None:
    adapter = ForeignAdapter(f"{MISBEHAVING}:Leave", None, Limits())
    adapter.describe()
    prepared = adapter.prepare(TWO_HEADS)
    with pytest.raises(Elsewhere, match="enough") as caught:
        prepared.mask_info("fwd")
    assert type(caught.value).__name__ == "SystemExit"
    assert caught.value.function == "change"
    adapter.stop()


def check_of(method: str) -> str:
    """Some check that calls a method for problems with several heads."""
    wanted = {
        "mask_info": "LABEL-1",
        "schedule": "SCHED-1",
        "forward": "FWD-1",
        "backward": "BWD-1",
    }
    return next(name for name, check in CHECKS.items() if check.clause_id == wanted[method])


@pytest.mark.parametrize("method", ["mask_info", "schedule", "forward", "backward"])
@pytest.mark.parametrize(
    "name", ["Nothing", "Text", "OtherKind", "Flattened", "Fractional", "Objects"]
)
def test_answers_of_a_wrong_form_are_wrong_values(name: str, method: str) -> None:
    made = getattr(misbehaving, name)()
    change = made.change
    made.change = lambda called, answer: change(called, answer) if called == method else answer
    subject = Subject(made, made.describe())
    found = evaluate(CHECKS[check_of(method)], subject, TWO_HEADS)
    assert found is not None
    assert found.kind == "value"
    right = Subject(ReferenceAdapter(), made.describe())
    assert evaluate(CHECKS[check_of(method)], right, TWO_HEADS) is None


@pytest.mark.parametrize("name", ["Nothing", "Text", "Flattened", "Fractional", "Objects"])
def test_answers_of_a_wrong_form_come_through_from_another_process(name: str) -> None:
    adapter = ForeignAdapter(f"{MISBEHAVING}:{name}", None, Limits())
    subject = Subject(adapter, adapter.describe())
    with pytest.raises(Violation) as caught:
        subject.mask_info(TWO_HEADS, "fwd")
    with pytest.raises(Violation) as again:
        Subject(getattr(misbehaving, name)(), subject.description).mask_info(TWO_HEADS, "fwd")
    assert str(caught.value) == str(again.value)
    adapter.stop()


@pytest.mark.parametrize("isolate", [False, True])
def test_an_answer_for_another_problem_is_a_wrong_value(isolate: bool) -> None:
    adapter = Where(isolate=isolate).open(f"{MISBEHAVING}:OtherProblem")
    subject = Subject(adapter, adapter.describe())
    for method in ("mask_info", "forward"):
        check = CHECKS[check_of(method)]
        assert evaluate(check, subject, TWO_HEADS.but(heads=1, kv_heads=1)) is None
        found = evaluate(check, subject, TWO_HEADS.but(heads=1, kv_heads=1, masks=(Causal(),)))
        assert found is not None
        assert found.kind == "value"
    host.close(adapter)


def test_a_method_that_was_promised_and_is_missing_is_a_crash() -> None:
    found = judged(misbehaving.NoMethods(), check_of("mask_info"))
    assert {finding.signature for finding in found.findings} == {"AttributeError in __getattr__"}
    assert "no attribute 'mask_info'" in found.findings[0].actual
    found = judged(misbehaving.NoMethods(), "check_full_mask")
    assert "no attribute 'mask'" in found.findings[0].actual


def test_a_method_that_keeps_hanging_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HANGS_IN_A_ROW", 1)
    adapter = ForeignAdapter(f"{MISBEHAVING}:Hang", None, Limits(timeout=0.1))
    subject = Subject(adapter, adapter.describe())
    with pytest.raises(Crash) as caught:
        subject.mask_info(TWO_HEADS, "fwd")
    assert isinstance(caught.value.error, TimedOut)
    with pytest.raises(NotTried):
        subject.mask_info(TWO_HEADS, "dkv")
    # Without a verdict: nothing was tried that could be wrong.
    found = run_check(CHECKS[check_of("mask_info")], subject, FEW, seed=0)
    assert found.status == "error"
    assert "is not called again" in found.reason
    assert subject.prepare(TWO_HEADS).mask(0).shape == (4, 4)  # other methods go on
    adapter.stop()


def test_a_crash_is_no_rejection() -> None:
    died = Died("mask ended the process: SIGSEGV", "mask", "", ended="SIGSEGV")

    def call() -> None:
        raise died

    with pytest.raises(Violation, match="an error that names mask"):
        reject(Place("mask", "argument"), ("mask",), call)


def test_a_worker_ends_with_its_adapter() -> None:
    adapter = ForeignAdapter("reference", None, Limits())
    adapter.describe()
    assert adapter._process is not None
    process = adapter._process._process
    assert process.poll() is None
    adapter.stop()
    assert process.poll() == -signal.SIGKILL
    assert adapter.prepare(TWO_HEADS).mask_info("fwd").direction == "fwd"  # another one is started
    folder = adapter._folder
    host.close(adapter)
    assert not folder.exists()


def test_a_worker_ends_when_the_suite_is_killed(home: Path) -> None:
    script = (
        "import os, signal\n"
        "from conformance.contract.remote.host import ForeignAdapter\n"
        "from conformance.contract.remote.process import Limits\n"
        "adapter = ForeignAdapter('reference', None, Limits())\n"
        "adapter.describe()\n"
        "print(adapter._process._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = str(Path(host.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    pid = int(done.stdout)
    for _ in range(100):
        try:
            state = (
                Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
            )
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the worker outlives the suite")


def test_without_isolation_the_check_has_the_verdict(said: Run) -> None:
    clauses = ("--clause", "LABEL-1", "--clause", "CONV-1")
    found = said("run", f"{MISBEHAVING}:Segfault", *clauses, "-n", "2", "--json", "r.json")
    assert found.code == 1
    report = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert report["clauses"] == {"CONV-1": "conforms", "LABEL-1": "violates"}
    assert report["errors"] == []
    (finding,) = [f for o in report["outcomes"] for f in o["findings"]]
    assert finding["kind"] == "crash"
    assert "--isolate" in finding["actual"]
    assert Problem.from_json(finding["problem"]).heads > 1


@pytest.mark.usefixtures("few")
def test_a_killed_run_is_resumed(said: Run, home: Path) -> None:
    arguments = (
        "run",
        f"{MISBEHAVING}:Hang",
        "--clause",
        "CONV-1",
        "--clause",
        "LABEL-1",
        "-n",
        "1",
    )
    process = subprocess.Popen([*COMMAND, *arguments, "--json", "r.json"], env=environment())
    for _ in range(600):
        if Path("hanging").exists():
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    header, outcomes = read(Path("r.jsonl"))
    assert header["clauses"] == ["CONV-1", "LABEL-1"]
    assert [(o.clause, o.status) for o in outcomes] == [("CONV-1", "conforms")]
    # What the journal says is believed, so it was not run again.
    marked = outcomes[0].to_json() | {"examples": 12345}
    with Path("r.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"clause": "LABEL-1", "chec')
    text = Path("r.jsonl").read_text(encoding="utf-8")
    first, _, torn = text.split("\n")
    Path("r.jsonl").write_text(f"{first}\n{json.dumps(marked)}\n{torn}", encoding="utf-8")
    found = said(*arguments, "--resume", "r.jsonl", "--timeout", "0.2", "--json", "r.json")
    assert found.code == 1
    report = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert report["clauses"] == {"CONV-1": "conforms", "LABEL-1": "violates"}
    assert {o["clause"]: o["examples"] for o in report["outcomes"]}["CONV-1"] == 12345
    assert not Path("r.jsonl").exists()


@pytest.mark.usefixtures("few")
def test_a_finished_journal_has_nothing_left_to_run(said: Run, home: Path) -> None:
    arguments = ("run", "reference", "--clause", "CONV-1", "-n", "1")
    header = {
        "implementation": "reference", "version": "1", "profile": "quick", "seed": 0,
        "clauses": ["CONV-1"], "expectations": True, "python": None,
        "device": "auto", "shard": "1/1",
    }  # fmt: skip
    journal = Journal(Path("j.jsonl"), header, resume=False)
    journal.add(Outcome("CONV-1", "check_mask_shape", "01_conventions", "conforms", examples=7))
    journal.close(finished=False)
    found = said(*arguments, "--resume", "j.jsonl")
    assert found.code == 0
    assert "1 check, 7 problems" in found.out
    journal = Journal(Path("j.jsonl"), header | {"seed": 1}, resume=False)
    journal.close(finished=False)
    found = said(*arguments, "--resume", "j.jsonl")
    assert found.code == 2
    assert "j.jsonl: is of a run with seed=1, not 0" in found.err
    found = said(*arguments, "--resume", "nothing.jsonl")
    assert found.code == 2
    assert "nothing.jsonl: cannot be read" in found.err


@pytest.mark.parametrize(
    "text", ["", "[]\n", "{}\n", '{"format": 9}\n', '{"format": 1}\n{"a": 1}\n']
)
def test_other_files_are_no_journals(tmp_path: Path, text: str) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(JournalError, match="not a journal"):
        read(path)


def test_limits_have_units() -> None:
    assert size("512M") == 512 * 2**20
    assert size("1.5 GiB") == 3 * 2**29
    assert size("100") == 100
    assert seconds("2.5") == 2.5
    for text in ("", "0", "x", "-1G", "5Z"):
        with pytest.raises(Exception, match="must be a size"):
            size(text)
    for text in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(Exception, match="must be a positive number of seconds"):
            seconds(text)


def test_limits_mean_isolation() -> None:
    assert not Where().apart
    assert Where(timeout=1.0).apart
    assert Where(memory=1).apart
    assert Where(isolate=True).apart
    assert str(Where(python="a b", timeout=2.0)) == "'--python=a b' --timeout=2.0"
