"""Starts the process of an implementation, sends it requests, watches its time and memory, and ends it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from conformance.contract.protocol import AdapterError
from conformance.contract.remote.errors import Died, Fatal, OutOfMemory, TimedOut
from conformance.contract.remote.limits import Limits as Limits
from conformance.contract.remote.wire import dumps, loads
from conformance.contract.settings import temporary_folder
from conformance.packages import ROOT

#: The packages that a worker in another interpreter needs.
PACKAGES = ("spec", "reference", "conformance")

#: Seconds between two checks of the memory of a worker.
TICK = 0.05

#: How many of the last bytes of its standard output and of its standard error are kept.
TAIL = 8192

#: Seconds that a hanging worker gets to write its stack.
LAST_WORDS = 0.3


class Tail:
    """Reads a stream in the background and keeps its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._kept = b""
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while data := os.read(stream.fileno(), 65536):
                self._kept = (self._kept + data)[-TAIL:]

    def text(self) -> str:
        """What was kept, once the stream has ended (or is held open by a grandchild)."""
        self._thread.join(timeout=0.5)
        return self._kept.decode("utf-8", "replace").strip()


def private_copy(folder: Path) -> Path:
    """Copies `PACKAGES` into a folder, for an interpreter that must see nothing else from here."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def executable(python: str) -> str:
    """Finds the interpreter of a path, which may be a virtual environment.

    Raises:
      AdapterError: there is none.
    """
    path = Path(python).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    found = shutil.which(path) if path.parts[:-1] else shutil.which(python)
    if found is None:
        raise AdapterError(f"--python {python}: no such interpreter or virtual environment")
    return os.path.abspath(found)


class Process:
    """A worker.

    Args:
      python: interpreter.
      root: folder with our packages.
      folder: for the files of large arrays.
      limits: on its time and memory.
    """

    def __init__(self, python: str, root: Path, folder: Path, limits: Limits) -> None:
        self.limits = limits
        self.folder = str(folder)
        self._number = 0
        self._unread = b""
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        start = root / "conformance" / "contract" / "remote" / "start.py"
        arguments = [str(start), str(root), str(theirs_in), str(theirs_out), self.folder]
        try:
            self._process = subprocess.Popen(
                [python, *arguments, str(limits.memory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs_in, theirs_out),
                env={k: v for k, v in os.environ.items() if k != "PYTHONHOME"},
                start_new_session=True,
            )
        except OSError as error:
            for descriptor in (ours_in, ours_out):
                os.close(descriptor)
            raise AdapterError(f"--python {python}: cannot be run: {error.strerror}") from error
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._in, self._out = ours_in, os.fdopen(ours_out, "wb", buffering=0)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout, self._stderr = Tail(self._process.stdout), Tail(self._process.stderr)
        self.end = weakref.finalize(self, _end, self._process, self._in, self._out)

    def ask(
        self,
        request: dict[str, Any],
        phase: str,
        seconds: float,
        edit: Callable[[Any], Any] | None = None,
    ) -> dict[str, Any]:
        """Sends a request and returns its reply.

        Args:
          request: without its ``id``.
          phase: the method that is called, for error messages.
          seconds: how long to wait.
          edit: changes the compiled arrays that the worker sends, before it runs them.

        Raises:
          Fatal: the process ended, or had to be ended.
          AdapterError: the interpreter cannot run a worker.
        """
        self._number += 1
        self._send({"id": self._number, **request})
        deadline = time.monotonic() + seconds
        while True:
            reply = self._message(phase, seconds, deadline)
            if "cannot" in reply:
                self.end()
                raise AdapterError(str(reply["cannot"]))
            if reply.get("id") != self._number:
                continue
            if "edit" not in reply:
                return reply
            before = time.monotonic()
            self._answer_edit(reply["edit"], edit)
            deadline += time.monotonic() - before

    def _answer_edit(self, info: Any, edit: Callable[[Any], Any] | None) -> None:
        assert edit is not None
        try:
            answer = {"edited": edit(info)}
        except BaseException:
            self.end()  # it waits for arrays that will not come
            raise
        self._send(answer)

    def _send(self, message: dict[str, Any]) -> None:
        data = dumps(message, self.folder).encode("utf-8") + b"\n"
        with contextlib.suppress(BrokenPipeError):  # reading will notice that the process has ended
            while data:
                data = data[self._out.write(data) or 0 :]

    def _message(self, phase: str, seconds: float, deadline: float) -> dict[str, Any]:
        """Reads the next message; skips lines that the implementation wrote to the same pipe."""
        while True:
            line = self._line(phase, seconds, deadline)
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict) and "cannot" in found:
                    return found
                message = loads(line)
                if isinstance(message, dict):
                    return message

    def _line(self, phase: str, seconds: float, deadline: float) -> bytes:
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._in], [], [], TICK)
            if readable:
                data = os.read(self._in, 1 << 20)
                if not data:
                    raise self._died(phase)
                self._unread += data
            elif self._process.poll() is not None:
                raise self._died(phase)
            if self.resident() > self.limits.memory:
                raise self._ended(
                    OutOfMemory,
                    f"{phase} used more memory than the limit of {_size(self.limits.memory)}",
                    "memory",
                    phase,
                )
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process.pid, signal.SIGUSR1)
                time.sleep(LAST_WORDS)
                raise self._ended(
                    TimedOut, f"no answer from {phase} within {seconds:g} s", "timeout", phase
                )
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def resident(self) -> int:
        """Resident memory of the process in bytes; 0 where the system does not tell."""
        try:
            text = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii")
        except OSError:
            return 0
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _died(self, phase: str) -> Fatal:
        """The error for a process that ended by itself."""
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:  # it only closed its pipe
            self.end()
            code = self._process.wait()
        cause = f"exit status {code}" if code >= 0 else f"signal {-code}"
        with contextlib.suppress(ValueError):  # real-time signals have no name
            cause = signal.Signals(-code).name if code < 0 else cause
        return self._ended(Died, f"{phase} ended the process: {cause}", cause, phase)

    def _ended(self, kind: type[Fatal], message: str, cause: str, phase: str) -> Fatal:
        self.end()
        stderr, stdout = self._stderr.text(), self._stdout.text()
        stack = _stack(stderr)
        function = stack[-1].rpartition(" in ")[2] if stack else phase
        wrote = stderr or stdout or "(it wrote nothing to its standard error)"
        return kind(message, function, "\n".join([wrote, *stack, message]), ended=cause)


def _stack(stderr: str) -> list[str]:
    """The Python stack that faulthandler wrote, innermost frame last, without frames of the suite."""
    _, _, rest = stderr.rpartition("(most recent call first):\n")
    frames = itertools.takewhile(lambda line: line.startswith("  File "), rest.split("\n"))
    return [
        line
        for line in frames
        if f"{os.sep}conformance{os.sep}contract{os.sep}remote{os.sep}" not in line
    ][::-1]


def _size(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"


def _end(process: subprocess.Popen[bytes], pipe: int, out: IO[bytes]) -> None:
    """Kills a process and everything that it started, and closes our ends of the pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    os.close(pipe)
    with contextlib.suppress(OSError):
        out.close()


def temporary() -> Path:
    """Makes a private folder for one adapter, inside the folder of the run if there is one."""
    return Path(tempfile.mkdtemp(prefix="splash-conformance-", dir=temporary_folder()))


def is_own(python: str) -> bool:
    """Whether an interpreter is the one that runs the suite, with the same packages."""
    return os.path.abspath(python) == os.path.abspath(sys.executable)
