#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SPDL: threads in the trainer's process, a task a batch as in its own ImageNet example, since a
task a picture pays its event loop for each. FFmpeg decodes; crop and scale run on its YUV planes.
"""

from __future__ import annotations

import math
import random

import measure
import numpy as np
import spdl.io
import torch
from spdl.pipeline import PipelineBuilder

torch.set_num_threads(1)


def train_box(width, height):
    """RandomResizedCrop's box, left, top, width, height: SPDL has no such operation."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


def filters(options, width, height):
    size = measure.SIZE
    if options.train:
        left, top, w, h = train_box(width, height)
        flip = ",hflip" if random.random() < 0.5 else ""
        return (f"crop={w}:{h}:{left}:{top}:exact=1,scale={size}:{size}:flags=bilinear{flip},"
                "format=pix_fmts=rgb24")
    w, h, left, top = measure.eval_geometry(width, height)
    return (f"scale={w}:{h}:flags=bilinear,format=pix_fmts=rgb24,"
            f"crop={size}:{size}:{left}:{top}:exact=1")


def make(options):
    samples = measure.samples(options)

    def batches_of_samples():
        """Lists of samples without an end; each epoch is shuffled over all ranks at once."""
        epoch, row_count = 0, options.batch_size * options.world_size
        order = np.empty(0, np.int64)
        while True:
            while len(order) < row_count:
                more = np.arange(len(samples))
                if options.train:
                    np.random.default_rng(epoch).shuffle(more)
                order = np.concatenate((order, more))
                epoch += 1
            yield [samples[i] for i in order[options.rank : row_count : options.world_size]]
            order = order[row_count:]

    def decode(path):
        packets = spdl.io.demux_image(path)
        return spdl.io.decode_packets(
            packets, filter_desc=filters(options, packets.width, packets.height))

    def decode_batch(items):
        frames = [decode(path) for path, _ in items]
        images = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        if options.dtype == "f32":
            images = measure.normalised(images)
        return torch.from_numpy(images), torch.tensor([label for _, label in items])

    pipeline = (PipelineBuilder()
                .add_source(batches_of_samples())
                .pipe(decode_batch, concurrency=options.workers,
                      output_order="completion" if options.train else "input")
                .add_sink(2)
                .build(num_threads=options.workers))
    with pipeline.auto_stop():
        for images, labels in pipeline:
            yield images.numpy(), labels.numpy()


if __name__ == "__main__":
    measure.run("spdl", make)
