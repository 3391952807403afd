# SPDX-License-Identifier: Apache-2.0
"""A trainer that writes down what it gets, and after its death goes on where its log ends.

Arguments: address, folder, log, rank, world size, transport, file with the epoch to end before.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

import job
from rows import rows_of

# A step of training. Without it the daemon would be asked for nothing but its top speed.
STEP_SECONDS = 0.03


def epochs_wanted(path: pathlib.Path) -> float:
    return int(path.read_text()) if path.exists() else float("inf")


def main(address: str, root: str, log_path: str, rank: int, world_size: int, transport: str,
         end_path: str) -> None:
    lines = pathlib.Path(log_path).read_bytes().splitlines()
    with open(log_path, "ab", buffering=0) as log, job.loader(
            address, root, rank, world_size, columns=job.COLUMNS_SMALL,
            transport=transport) as loader:
        if lines:
            loader.load_state_dict(json.loads(lines[-1])["state"])
        while loader.epoch < epochs_wanted(pathlib.Path(end_path)):
            for batch in loader:
                # What counts is what the trainer has made its own: rows and state in one write, as
                # a checkpoint has them.
                line = {"rows": rows_of(batch, job.G, rank, world_size), "state": batch.state}
                os.write(log.fileno(), json.dumps(line).encode() + b"\n")
                time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    address, root, log_path, rank, world_size, transport, end_path = sys.argv[1:]
    main(address, root, log_path, int(rank), int(world_size), transport, end_path)
