#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python client behind the tests of tests/behaviour: a command a line on stdin, an answer a
line on stdout, both JSON. client_driver.cc is the same for the other client; clients.py says what
the commands are.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import json
import logging
import os
import pathlib
import sys
import threading
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from rows import batch_digest  # noqa: E402

import batchd  # noqa: E402
from batchd.operation import Operation  # noqa: E402

SHUFFLES = {"none": False, "feistel": True, "torch": "torch"}


class Driver:
    def __init__(self) -> None:
        self.loaders: dict[int, batchd.Loader] = {}
        self.held: dict[int, batchd.Batch] = {}
        self.last_held = 0
        self.log: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.log.append(record.getMessage())
        logging.getLogger("batchd").addHandler(handler)
        logging.getLogger("batchd").setLevel("INFO")

    def do(self, command: dict[str, Any]) -> dict[str, Any]:
        loader = self.loaders.get(command.pop("loader", 0))
        arguments = () if loader is None else (loader,)
        return getattr(self, command.pop("do"))(*arguments, **command) or {}

    def open(self, options: dict[str, Any]) -> dict[str, Any]:
        root = options.pop("root", None)
        dataset = options.pop("dataset", "x")
        columns = {name: [Operation(*operation) for operation in operations]
                   for name, operations in options.pop("columns")}
        if "shuffle" in options:
            options["shuffle"] = SHUFFLES[options["shuffle"]]
        if "max_bad_share" in options:
            options["max_bad_samples"] = float(options.pop("max_bad_share"))
        loader = batchd.Loader(batchd.ImageFolder(root) if root else dataset, columns, **options)
        number = len(self.loaders) + 1
        self.loaders[number] = loader
        return {"loader": number}

    def next(self, loader: batchd.Loader, hold: bool = False, drop: int = 0,
             when: str = "") -> dict[str, Any]:
        if drop:
            # Another thread lets go of a batch while next() waits, when somebody opens the FIFO.
            dropper = threading.Thread(target=self.drop_when, args=(drop, when))
            dropper.start()
        batch = next(loader.steps(1))
        answer = self.describe(batch)
        if hold:
            answer["batch"] = self.hold(batch)
        if drop:
            dropper.join()
        return answer

    def next_in_threads(self, loader: batchd.Loader, count: int) -> dict[str, Any]:
        """Each batch is read and given back by one of four threads, while this takes the next."""
        def read(index: int, batch: batchd.Batch) -> int:
            digest = batch_digest(batch)
            if index % 3 == 0:
                batch.release()
            return digest

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            results = []
            for index in range(count):
                if index >= 4:
                    results[index - 4].result()
                results.append(pool.submit(read, index, next(loader.steps(1))))
            return {"digests": [result.result() for result in results]}

    def drop_when(self, batch: int, fifo: str) -> None:
        with open(fifo) as signal:
            signal.read()
        del self.held[batch]

    def describe(self, batch: batchd.Batch) -> dict[str, Any]:
        return {"epoch": batch.epoch, "step": batch.step, "rows": batch.rows,
                "valid_rows": batch.valid_rows,
                "last_in_epoch": batch.state["epoch"] > batch.epoch,
                "ids": batch.sample_ids.tolist(), "row_status": batch.row_status.tolist(),
                "digest": batch_digest(batch), "state": batch.state}

    def hold(self, batch: batchd.Batch) -> int:
        self.last_held += 1
        self.held[self.last_held] = batch
        return self.last_held

    def digest(self, loader: batchd.Loader, batch: int) -> dict[str, Any]:
        return {"digest": batch_digest(self.held[batch])}

    def release(self, loader: batchd.Loader, batch: int) -> None:
        self.held[batch].release()

    def drop(self, loader: batchd.Loader, batch: int) -> None:
        del self.held[batch]

    def copy(self, loader: batchd.Loader, batch: int) -> dict[str, Any]:
        return {"batch": self.hold(self.held[batch].copy())}

    def state(self, loader: batchd.Loader) -> dict[str, Any]:
        return {"state": loader.state_dict()}

    def load_state(self, loader: batchd.Loader, state: Any, strict: bool = True) -> None:
        loader.load_state_dict(state, strict)

    def set_epoch(self, loader: batchd.Loader, epoch: int) -> None:
        loader.set_epoch(epoch)

    def peek(self, loader: batchd.Loader, count: int) -> dict[str, Any]:
        return {"batches": [self.describe(batch) for batch in loader.peek(count)]}

    def classes(self, loader: batchd.Loader) -> dict[str, Any]:
        return {"names": loader.classes}

    def names_of(self, loader: batchd.Loader, ids: list[int]) -> dict[str, Any]:
        return {"names": loader.name_of(ids)}

    def about(self, loader: batchd.Loader) -> dict[str, Any]:
        return {"steps": len(loader), "samples": loader.num_samples,
                "epoch": loader.state_dict()["epoch"], "reconnects": loader.reconnects,
                "transport": loader.transport, "text": repr(loader), "log": self.log,
                "columns": {name: [spec.type_name, spec.shape]
                            for name, spec in loader.columns.items()}}

    def fork(self, loader: batchd.Loader, stay: str = "", bare: bool = False) -> dict[str, Any]:
        """What a forked child sees: the kind of error of each call. Then it tries to give all back;
        with `stay` it lives on until somebody opens that FIFO. `bare`: Python sees no fork.
        """
        read_end, write_end = os.pipe()
        child = ctypes.PyDLL(None).fork() if bare else os.fork()
        if child == 0:
            kinds = []
            for call in (lambda: next(loader.steps(1)), lambda: loader.name_of([1]), loader.peek):
                try:
                    call()
                except batchd.BatchdError as error:
                    kinds.append(type(error).__name__)
            if not stay:
                for batch in self.held.values():
                    batch.release()
                loader.close()
            os.write(write_end, json.dumps(kinds).encode())
            os.close(write_end)
            if stay:
                pathlib.Path(stay).read_text()
            os._exit(0)
        os.close(write_end)
        with open(read_end, "rb") as answer:
            kinds = json.loads(answer.read())
        assert stay or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return {"kinds": kinds}

    def close(self, loader: batchd.Loader) -> None:
        loader.close()


def error_json(error: Exception) -> dict[str, Any]:
    kind = type(error).__name__ if isinstance(error, batchd.BatchdError) else "Argument"
    answer = {"kind": kind, "code": getattr(error, "code", ""), "message": str(error),
              "field": getattr(error, "field", "")}
    for name in ("reason", "ordinal", "sample_name", "next_state", "held_slots",
                 "slab_size_bytes"):
        if hasattr(error, name):
            answer[name] = getattr(error, name)
    return {"error": answer}


def main() -> None:
    driver = Driver()
    for line in sys.stdin:
        try:
            answer = driver.do(json.loads(line))
        except (batchd.BatchdError, ValueError, TypeError) as error:
            answer = error_json(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
