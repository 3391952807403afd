#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One of paper.py's trainers: takes batches from an entry of tests/bench until its standard input
ends, and writes how many rows it has had into a shared file. Torch is loaded, whatever the entry,
as it is in a trainer.

    trainer.py KIND COUNTS OPTIONS...    KIND: batchd, spdl, torch; OPTIONS: those of measure.py
    trainer.py KIND-paths COUNTS OPTIONS...    one shuffled epoch of paths and labels, undecoded;
                                               KIND may also be nothing
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import pathlib
import struct
import sys
import threading

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]

import measure  # noqa: E402
import torch  # noqa: E402, F401  resident in every trainer

MODULES = {"batchd": "batchd_loader", "spdl": "spdl_pipeline", "torch": "torch_dataloader"}


def paths_of_torch(options):
    """ImageFolder keeps a list of (path, label); each look-up writes to reference counts, so that
    worker after worker gets pages of its own.
    """
    from torch.utils.data import DataLoader, Dataset, DistributedSampler

    class Paths(Dataset):
        samples = measure.samples(options)

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            path, label = self.samples[index]
            return len(path), label

    data = Paths()
    sampler = DistributedSampler(data, options.world_size, options.rank, shuffle=True)
    for _, labels in DataLoader(data, batch_size=1024, sampler=sampler,
                                num_workers=options.workers, persistent_workers=True):
        yield labels
    yield from held_by(data)


def paths_of_spdl(options):
    import numpy as np
    from spdl.pipeline import PipelineBuilder

    samples = measure.samples(options)
    order = np.random.default_rng(0).permutation(len(samples))[options.rank :: options.world_size]
    batches = np.array_split(order, -(-len(order) // 1024))
    pipeline = (PipelineBuilder().add_source(batches)
                .pipe(lambda rows: [(len(samples[i][0]), samples[i][1]) for i in rows],
                      concurrency=options.workers)
                .add_sink(2).build(num_threads=options.workers))
    with pipeline.auto_stop():
        yield from pipeline
    yield from held_by(samples)


def paths_of_batchd(options):
    import batchd_loader  # noqa: F401  sets the path to the client

    import batchd
    from batchd import transforms as T

    with batchd.Loader(batchd.ImageFolder(options.data), {"label": T.Label()}, batch_size=1024,
                       shuffle=True, last_batch="partial", rank=options.rank,
                       world_size=options.world_size, address=options.address) as loader:
        for batch in loader:
            yield batch["label"].numpy()
        yield from held_by(loader)


def paths_of_nothing(_options):
    """A trainer with Torch and no data: what the others' memory is compared with."""
    yield from held_by(None)


def held_by(_owner):
    """Keeps the loader's data until the generator is closed."""
    while True:
        yield None


def take_epoch(batches) -> int:
    rows = 0
    for labels in batches:
        if labels is None:
            return rows
        rows += len(labels)
    raise RuntimeError("the epoch does not end with held_by")


def main() -> None:
    kind, counts, *rest = sys.argv[1:]
    options = measure.options(rest)
    with open(counts, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    ended = threading.Event()
    # Not sys.stdin: a worker that is forked while another thread reads it cannot close it.
    threading.Thread(target=lambda: (os.read(0, 1), ended.set()), daemon=True).start()
    with contextlib.ExitStack() as stack:
        if kind.endswith("-paths"):
            batches = globals()[f"paths_of_{kind.removesuffix('-paths')}"](options)
            stack.callback(batches.close)
            struct.pack_into("<q", shared, 8 * options.rank, take_epoch(batches))
            print("epoch", flush=True)
            ended.wait()
            return
        batches = importlib.import_module(MODULES[kind]).make(options)
        stack.callback(batches.close)
        rows = 0
        for number, (images, _) in enumerate(batches):
            measure.touch(images)
            rows += len(images)
            struct.pack_into("<q", shared, 8 * options.rank, rows)
            if number + 1 == options.warm:
                print("warm", flush=True)
            if ended.is_set():
                return


if __name__ == "__main__":
    main()
