"""Started by `conformance.contract.remote.process` in another interpreter: makes its worker ready.

Arguments: folder that holds our packages, file descriptors of requests and replies, folder for arrays, bytes of memory.
Every Python 3 must be able to read this file, so that it can say that it is too old.
"""

import json
import os
import sys
from importlib.machinery import FileFinder, SourceFileLoader


def strict_zip(*iterables: object, **options: bool) -> object:
    """``zip`` with the option ``strict``, which Python 3.9 does not have."""
    ended = object()
    iterators = [iter(iterable) for iterable in iterables]  # type: ignore[call-overload]
    while iterators:
        values = [next(iterator, ended) for iterator in iterators]
        if any(value is ended for value in values):
            if options.get("strict") and not all(value is ended for value in values):
                raise ValueError("zip() arguments have different lengths")
            return
        yield tuple(values)


def provide_zip(root: str) -> None:
    """Gives our own modules, and no others, a ``zip`` with the option ``strict``."""

    class Loader(SourceFileLoader):
        def exec_module(self, module: object) -> None:
            module.__dict__["zip"] = strict_zip
            super().exec_module(module)  # type: ignore[arg-type]

    def hook(path: str) -> FileFinder:
        if not path.startswith(root):
            raise ImportError(path)
        return FileFinder(path, (Loader, [".py"]))

    sys.path_hooks.insert(0, hook)


def start() -> None:
    """Serves, or says on the pipe of replies why not."""
    root, requests, replies, folder, memory = sys.argv[1:6]
    sys.argv[1:] = []
    sys.path[0] = root  # the folder of this file holds no top-level module
    try:
        if sys.version_info < (3, 9):
            raise ImportError("Python %d.%d is too old" % sys.version_info[:2])
        if sys.version_info < (3, 10):
            provide_zip(root)
        # Here: it needs the path above, a new enough Python and NumPy, or else raises an ImportError.
        from conformance.contract.remote.worker import main

        main(int(requests), int(replies), folder, int(memory))
    except ImportError as error:
        message = {"cannot": "%s: Python 3.9 and NumPy 1.22, or later, are needed" % error}
        os.write(int(replies), (json.dumps(message) + "\n").encode("utf-8"))


if __name__ == "__main__":
    start()
