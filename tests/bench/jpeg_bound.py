#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What libjpeg-turbo allows on the same cores, without a loader: jpeg_bound.cc, built with
-DBATCHD_BENCH=ON. Variants: whole (W: decoding whole files that lie in memory, and nothing else)
and crop (the recipe in the shortest way known here: read, decode the crop only, resize, flip).
"""

from __future__ import annotations

import json
import os
import subprocess

import measure


def main() -> None:
    options = measure.options()
    mode = "whole" if options.variant == "whole" else options.recipe
    program = os.environ["BATCHD_JPEG_BOUND"]
    rows = [str(n * options.batch_size) for n in (options.warm, options.batches)]
    done = subprocess.run([program, options.data, mode, str(options.workers), *rows,
                           options.dtype],
                          check=True, stdout=subprocess.PIPE, text=True)
    seen = json.loads(done.stdout)
    print(json.dumps({
        "entry": f"bound:{options.variant}", "recipe": options.recipe, "dtype": options.dtype,
        "workers": options.workers, "images": seen["images"],
        "images_s": seen["images"] / seen["wall_s"],
        "cpu_s_per_1000": 1000 * seen["cpu_s"] / seen["images"],
        "pss_mb": None, "imports_pss_mb": None, "first_batch_s": None, "handoff_us": None}))


if __name__ == "__main__":
    main()
