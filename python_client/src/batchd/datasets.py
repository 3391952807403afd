# SPDX-License-Identifier: Apache-2.0
"""What the samples are. The daemon reads the data; these classes only name them."""

from __future__ import annotations

import os

from batchd.operation import Operation


class ImageFolder(Operation):
    """Pictures in one folder per class, in torchvision's order and with its class numbers.

    A relative path is taken from this process's working folder, not the daemon's.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        super().__init__("ImageFolder", {"root": os.path.abspath(os.path.expanduser(root))})


class Named(Operation):
    """A dataset that the configuration of a shared daemon names."""

    def __init__(self, name: str) -> None:
        super().__init__(name, {})
