#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tf.data. Variants: accurate (integer DCT, antialias) and official (TensorFlow's own ImageNet
recipe: fast DCT and no antialias, so other pictures). In train both decode only the crop.
"""

from __future__ import annotations

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import measure  # noqa: E402
import tensorflow as tf  # noqa: E402


class Recipe:
    def __init__(self, options):
        self.options = options
        self.accurate = options.variant != "official"
        self.dct = "INTEGER_ACCURATE" if self.accurate else "INTEGER_FAST"

    def resize(self, picture, height, width):
        return tf.image.resize(picture, (height, width), method="bilinear", antialias=self.accurate)

    def train(self, data):
        is_jpeg = tf.io.is_jpeg(data)  # the folder has a PNG
        shape = tf.cond(is_jpeg, lambda: tf.io.extract_jpeg_shape(data),
                        lambda: tf.shape(tf.io.decode_png(data, channels=3)))
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape, bounding_boxes=tf.zeros((1, 0, 4)), aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0), max_attempts=10, use_image_if_no_bounding_boxes=True)
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        picture = tf.cond(
            is_jpeg,
            lambda: tf.io.decode_and_crop_jpeg(data, window, channels=3, dct_method=self.dct),
            lambda: tf.slice(tf.io.decode_png(data, channels=3), begin, size))
        return tf.image.random_flip_left_right(self.resize(picture, measure.SIZE, measure.SIZE))

    def evaluate(self, data):
        picture = tf.io.decode_jpeg(data, channels=3, dct_method=self.dct)  # reads a PNG too
        height, width = tf.shape(picture)[0], tf.shape(picture)[1]
        short = tf.minimum(height, width)
        height, width = measure.SHORT_SIDE * height // short, measure.SHORT_SIDE * width // short
        top, left = (tf.cast(tf.round((side - measure.SIZE) / 2), tf.int32)
                     for side in (height, width))
        return tf.slice(self.resize(picture, height, width), tf.stack([top, left, 0]),
                        (measure.SIZE, measure.SIZE, 3))

    def __call__(self, path, label):
        data = tf.io.read_file(path)
        picture = self.train(data) if self.options.train else self.evaluate(data)
        if self.options.dtype == "f32":
            picture = (picture / 255.0 - tf.constant(measure.MEAN)) / tf.constant(measure.STD)
        else:
            picture = tf.saturate_cast(tf.round(picture), tf.uint8)
        return tf.ensure_shape(picture, (measure.SIZE, measure.SIZE, 3)), label


def make(options):
    samples = measure.samples(options)
    data = tf.data.Dataset.from_tensor_slices(
        ([path for path, _ in samples], [label for _, label in samples]))
    if options.train:
        data = data.shuffle(len(samples))
    data = data.repeat().map(Recipe(options), num_parallel_calls=options.workers,
                             deterministic=not options.train)
    threads = tf.data.Options()
    threads.threading.private_threadpool_size = options.workers
    yield from data.batch(options.batch_size).prefetch(2).with_options(threads).as_numpy_iterator()


if __name__ == "__main__":
    measure.run("tfdata", make)
