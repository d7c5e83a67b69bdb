"""The worker: runs an adapter in a process of its own and answers requests, one JSON line each.

Runs on Python 3.9 with the standard library, NumPy 1.22 and the implementation. Requests and replies have pipes of
their own, so that the implementation may write anything to its standard output. `conformance.contract.remote.process`
starts it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import platform
import resource
import signal
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

from conformance.contract.load import load
from conformance.contract.memory_maps import ROOM
from conformance.contract.protocol import AdapterError
from conformance.contract.remote.errors import is_refusal
from conformance.contract.remote.wire import dumps, loads

#: How many prepared problems, and masks, are kept: the most recent ones.
KEEP = 1024

#: Distributions whose versions a report names.
REPORTED = ("numpy", "jax", "jaxlib", "libtpu", "tokamax")

OLDEST_NUMPY = (1, 22)

#: Option of Linux's ``prctl``: the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1


class Refused(Exception):
    """The suite failed to edit arrays; the request is abandoned."""


class Worker:
    """Answers requests until their pipe is closed.

    Args:
      requests, replies: file descriptors.
      folder: where files of large arrays are written.
    """

    def __init__(self, requests: int, replies: int, folder: str) -> None:
        self.requests = os.fdopen(requests, "rb")
        self.replies = os.fdopen(replies, "wb", buffering=0)
        self.folder = folder
        self.adapter: Any = None
        self.prepared: OrderedDict[int, tuple[str, Any]] = OrderedDict()
        self.masks: OrderedDict[int, Any] = OrderedDict()

    def send(self, message: dict[str, Any]) -> None:
        """Writes one line."""
        data = dumps(message, self.folder).encode("utf-8") + b"\n"
        while data:
            data = data[self.replies.write(data) or 0 :]

    def serve(self) -> None:
        """Answers every request, with its ``id`` and the key of the problem that the answer is for."""
        operations: dict[str, Callable[[dict[str, Any]], Any]] = {
            "open": self.open,
            "prepare": self.prepare,
            "call": self.call,
            "make_mask": self.make_mask,
            "use_mask": self.use_mask,
        }
        for line in self.requests:
            request = loads(line)
            target = request.get("target") or request.get("mask", {}).get("target", {"key": ""})
            reply: dict[str, Any] = {"id": request["id"], "key": target["key"]}
            ROOM.make()
            try:
                value = operations[request["op"]](request)
                if "token" in target:
                    reply["key"] = self.prepared[target["token"]][0]
                self.send({**reply, "value": value})
            except BaseException as error:
                self.send({**reply, "error": failure(error)})

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads the adapter; returns its description and the versions that it runs on."""
        self.adapter = load(request["impl"])
        return {"description": self.adapter.describe(), "environment": environment()}

    def target(self, target: dict[str, Any]) -> Any:
        """The prepared problem that a request is about; prepares it if this process has not yet."""
        token = target["token"]
        if token not in self.prepared:
            keep(self.prepared, token, (target["key"], self.adapter.prepare(target["problem"])))
        self.prepared.move_to_end(token)
        return self.prepared[token][1]

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Prepares a problem; returns the names of the methods of the result."""
        prepared = self.target(request["target"])
        return {
            "methods": methods_of(prepared),
            "directions": getattr(prepared, "directions", None),
        }

    def call(self, request: dict[str, Any]) -> Any:
        """Calls a method of a prepared problem."""
        method = getattr(self.target(request["target"]), request["method"])
        keywords = dict(request["keywords"])
        if request["edit"]:
            keywords["edit"] = lambda info: self.edited(request["id"], info)
        return method(*request["arguments"], **keywords)

    def edited(self, number: int, info: Any) -> Any:
        """Asks the suite to edit compiled arrays."""
        self.send({"id": number, "edit": info})
        reply = loads(self.requests.readline())
        if "edited" not in reply:
            raise Refused("the suite could not edit the arrays")
        return reply["edited"]

    def mask(self, mask: dict[str, Any]) -> Any:
        """The mask object that a request is about; makes it if this process has not yet."""
        prepared = self.target(mask["target"])
        token = mask["token"]
        if token not in self.masks:
            keep(self.masks, token, prepared.mask(mask["head"]))
        self.masks.move_to_end(token)
        return self.masks[token]

    def make_mask(self, request: dict[str, Any]) -> None:
        """Makes a mask object."""
        self.mask(request["mask"])

    def use_mask(self, request: dict[str, Any]) -> Any:
        """Applies one operation to a mask object."""
        mask, use = self.mask(request["mask"]), request["use"]
        if use == "index":
            return mask[request["index"]]
        if use == "equal":
            return bool(mask == self.mask(request["other"]))
        if use == "hash":
            return hash(mask)
        return getattr(mask, request["name"])


def keep(store: OrderedDict[int, Any], token: int, value: Any) -> None:
    """Stores a value; beyond `KEEP` values drops the least recently used."""
    store[token] = value
    while len(store) > KEEP:
        store.popitem(last=False)


def methods_of(prepared: Any) -> list[str]:
    """Names of public methods, without evaluating a property."""
    own = {name: getattr(type(prepared), name, None) for name in dir(type(prepared))}
    own.update(getattr(prepared, "__dict__", {}))
    return sorted(name for name, value in own.items() if name[:1] != "_" and callable(value))


def failure(error: BaseException) -> dict[str, str]:
    """An exception as plain data."""
    frames = traceback.extract_tb(error.__traceback__)
    last = f"{type(error).__name__}: {error}"
    return {
        "type": type(error).__name__,
        "message": str(error),
        "function": frames[-1].name if frames else "",
        "trace": "".join(traceback.format_list(frames[-3:])) + last,
        "adapter": "yes" if isinstance(error, AdapterError) else "",
        "refusal": "yes" if is_refusal(error) else "",
    }


def environment() -> dict[str, str]:
    """Python, platform and the versions of `REPORTED`."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in REPORTED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def limit_memory(size: int) -> None:
    """Limits the address space to ``size`` bytes (0: no limit) where the suite cannot watch the process."""
    if size and not os.path.isdir("/proc/self"):
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def main(requests: int, replies: int, folder: str, memory: int) -> None:
    """Serves until the pipe of requests is closed.

    Raises:
      ImportError: NumPy is too old.
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # writes the stack of a hanging process
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for descriptor in (requests, replies):
        os.set_inheritable(descriptor, False)
    found = tuple(int(part) for part in np.__version__.split(".")[:2])
    if found < OLDEST_NUMPY:
        raise ImportError(f"NumPy {np.__version__} is too old")
    limit_memory(memory)
    Worker(requests, replies, folder).serve()
