#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FFCV, from a file of its own that is written before the measuring: its "jpg" mode encodes the
pictures anew, at quality 93 here, so it decodes other files and gives other pictures. OpenCV's area
filter. Time to the first batch includes its just-in-time compiling.
"""

from __future__ import annotations

import os

import measure
import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import (
    CenterCropRGBImageDecoder,
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip
from ffcv.writer import DatasetWriter
from PIL import Image


class Pixels:
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB")), label


def written(options):
    os.makedirs(options.cache, exist_ok=True)
    path = os.path.join(options.cache, "pictures.beton")
    if not os.path.exists(path):
        fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=93), "label": IntField()}
        writer = DatasetWriter(path + ".part", fields, num_workers=1)
        writer.from_indexed_dataset(Pixels(measure.samples(options)))
        os.rename(path + ".part", path)
    return path


def make(options):
    size = (measure.SIZE, measure.SIZE)
    if options.train:
        image = [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip()]
    else:
        image = [CenterCropRGBImageDecoder(size, ratio=measure.SIZE / measure.SHORT_SIDE)]
    path = written(options)
    rows = np.array(measure.repeated(options, list(range(len(measure.samples(options))))))
    loader = Loader(path, batch_size=options.batch_size, num_workers=options.workers,
                    os_cache=True, indices=rows,
                    order=OrderOption.RANDOM if options.train else OrderOption.SEQUENTIAL,
                    pipelines={"image": image, "label": [IntDecoder()]})
    for images, labels in loader:
        if options.dtype == "f32":
            images = measure.normalised(images)
        yield images, labels.reshape(-1)


if __name__ == "__main__":
    written(measure.options())
    measure.run("ffcv", make)
