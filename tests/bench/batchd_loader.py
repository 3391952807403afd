#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""batchd over shared memory. The daemon is a child of this process, so that its CPU time and memory
count; its start and the listing of the folder count as time to the first batch. The variant
`isolated` decodes in processes.
"""

from __future__ import annotations

import contextlib
import pathlib
import sys

import measure

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python_client" / "src"), str(ROOT / "tests" / "integration")]

from daemon import Daemon  # noqa: E402

import batchd  # noqa: E402
from batchd import transforms as T  # noqa: E402


def columns(options):
    image = [T.DecodeImage()]
    if options.train:
        image += [T.RandomResizedCrop(measure.SIZE), T.RandomHorizontalFlip()]
    else:
        image += [T.Resize(measure.SHORT_SIDE), T.CenterCrop(measure.SIZE)]
    if options.dtype == "f32":
        image += [T.ToTensor(), T.Normalize()]
    return {"image": image, "label": T.Label()}


def make(options):
    with contextlib.ExitStack() as stack:
        address = options.address
        if not address:
            isolation = "process" if options.variant == "isolated" else "none"
            flags = (f"--cpus={options.workers}", f"--decode-isolation={isolation}")
            address = stack.enter_context(Daemon((options.data,), *flags)).address
        loader = stack.enter_context(batchd.Loader(
            batchd.ImageFolder(options.data), columns(options), batch_size=options.batch_size,
            shuffle=options.train, last_batch="drop", rank=options.rank,
            world_size=options.world_size, address=address))
        for batch in loader.steps(2**40):
            yield batch["image"].numpy(), batch["label"].numpy()


if __name__ == "__main__":
    measure.run("batchd", make)
