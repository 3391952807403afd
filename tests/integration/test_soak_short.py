# SPDX-License-Identifier: Apache-2.0
"""The short form of tests/soak/flat_memory.py: too few batches to judge memory by a slope, enough
to see files and threads that are left over.
"""

from __future__ import annotations

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))

import flat_memory


def test_files_and_threads_stay_as_many_over_4000_batches():
    result = flat_memory.watch(4_000)

    print(json.dumps(result))
    assert flat_memory.leftovers(result) == []
