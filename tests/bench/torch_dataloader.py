#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DataLoader with worker processes. Variants: pil (Pillow, the usual ImageNet recipe) and
io (torchvision.io.decode_image, transforms on tensors).
"""

from __future__ import annotations

import measure
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import InterpolationMode, v2

torch.set_num_threads(1)


def transforms(options):
    bilinear = {"interpolation": InterpolationMode.BILINEAR, "antialias": True}
    if options.train:
        steps = [v2.RandomResizedCrop(measure.SIZE, **bilinear), v2.RandomHorizontalFlip()]
    else:
        steps = [v2.Resize(measure.SHORT_SIDE, **bilinear), v2.CenterCrop(measure.SIZE)]
    if options.variant == "pil":
        steps.append(v2.PILToTensor())
    if options.dtype == "f32":
        steps.append(v2.ToDtype(torch.float32, scale=True))
        steps.append(v2.Normalize(measure.MEAN, measure.STD))
    return v2.Compose(steps)


class Pictures(Dataset):
    def __init__(self, options):
        self.samples = measure.repeated(options, measure.samples(options))
        self.transform = transforms(options)
        self.load = self.load_pil if options.variant == "pil" else self.load_io

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        return self.transform(self.load(path)), label

    @staticmethod
    def load_pil(path):
        with open(path, "rb") as file:
            return Image.open(file).convert("RGB")

    @staticmethod
    def load_io(path):
        return decode_image(read_file(path), mode=ImageReadMode.RGB)


def make(options):
    pictures = Pictures(options)
    sampler = None
    if options.world_size > 1:
        sampler = DistributedSampler(pictures, options.world_size, options.rank, options.train)
    loader = DataLoader(pictures, batch_size=options.batch_size, sampler=sampler,
                        shuffle=options.train and sampler is None, num_workers=options.workers)
    for images, labels in loader:
        yield images.numpy(), labels.numpy()


if __name__ == "__main__":
    measure.run("torch", make)
