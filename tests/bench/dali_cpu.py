#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA DALI without a GPU: its own threads, and a decoder that skips rows and blocks outside the
crop. Its arithmetic and its rounding of sizes are its own.
"""

from __future__ import annotations

import measure
import numpy as np
from nvidia.dali import fn, pipeline_def, types

LINEAR = {"interp_type": types.INTERP_LINEAR, "antialias": True}


def train_picture(data):
    picture = fn.decoders.image_random_crop(
        data, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10,
        adjust_orientation=False, output_type=types.RGB)
    return fn.resize(picture, size=(measure.SIZE, measure.SIZE), **LINEAR)


def eval_picture(data):
    picture = fn.decoders.image(data, adjust_orientation=False, output_type=types.RGB)
    return fn.resize(picture, resize_shorter=measure.SHORT_SIDE, **LINEAR)


def finish(options, picture):
    """Flip, crop, values: one operator, which is faster than several for uint8 too."""
    size = (measure.SIZE, measure.SIZE)
    if options.dtype == "u8" and not options.train:
        return fn.crop(picture, crop=size, rounding="truncate")
    values = {"dtype": types.UINT8, "output_layout": "HWC", "mean": [0.0] * 3, "std": [1.0] * 3}
    if options.dtype == "f32":
        values = {"dtype": types.FLOAT, "output_layout": "CHW",
                  "mean": [255 * v for v in measure.MEAN], "std": [255 * v for v in measure.STD]}
    return fn.crop_mirror_normalize(picture, crop=size, rounding="truncate",
                                    mirror=fn.random.coin_flip() if options.train else 0, **values)


def make(options):
    samples = measure.samples(options)

    @pipeline_def(batch_size=options.batch_size, num_threads=options.workers, device_id=None,
                  prefetch_queue_depth=2)
    def pipeline():
        data, label = fn.readers.file(
            files=[path for path, _ in samples], labels=[label for _, label in samples],
            random_shuffle=options.train, initial_fill=1024, shard_id=options.rank,
            num_shards=options.world_size)
        return finish(options, (train_picture if options.train else eval_picture)(data)), label

    built = pipeline()
    built.build()
    while True:
        images, labels = built.run()
        yield np.asarray(images.as_tensor()), np.asarray(labels.as_tensor()).reshape(-1)


if __name__ == "__main__":
    measure.run("dali", make)
