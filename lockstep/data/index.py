"""What a set of shards holds: for every sample its shard, offset, size and label, however the shards are laid out.

The columns are arrays, which may be mapped from a file: 1.28 million samples fit in some 70 MB. The readers of the
layouts are in files of their own, `lockstep.data.indexing` makes an index with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lockstep.data import fingerprint
from lockstep.data.layouts import counted, shown
from lockstep.data.order import Layout
from lockstep.data.storage import Object, Range

WINDOW = 16
"""Shards that are shuffled together where nobody chose another number, and each holds several classes."""


@dataclass(frozen=True)
class Index:
    """Samples in the order of shards, and within a shard in the order of its bytes."""

    shards: tuple[Object, ...]
    """Where images are files of their own, a shard is the folder of a class, and its URL ends with a slash."""
    shard: npt.NDArray[np.int32]
    """The number of each sample's shard."""
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    label: npt.NDArray[np.int32]
    name_ends: npt.NDArray[np.int64]
    """Where the name of each sample ends in `names`."""
    names: npt.NDArray[np.uint8]
    """The names of all samples in UTF-8, one after the other."""
    groups: tuple[int, ...]
    """How many samples are shuffled as one shard: those of a tar, also of one inside another, or of a folder."""
    num_classes: int
    class_names: tuple[str, ...] | None = None
    num_taken: int = 0
    """Shards that are in here; a tar of tars counts as those inside it, and folders count as shards."""
    num_found: int = 0
    """Shards that there were before `key_prefix` chose some of them: "13 of 1000 shards"."""
    passed_over: int = 0
    """Members of shards, or files, that are no images."""
    path: Path | None = None
    """Where it is kept on this host."""

    def __len__(self) -> int:
        return len(self.shard)

    def name(self, sample: int) -> str:
        """How errors call a sample: its shard, and its name in there."""
        member = shown(self.member(sample))
        url = self.shards[int(self.shard[sample])].url
        if url.endswith("/"):
            return url + member
        return f"{url}, {member}" if member else url

    def member(self, sample: int) -> str:
        """The name of a sample in its shard; bytes that are no UTF-8 are as in the names of files."""
        start = int(self.name_ends[sample - 1]) if sample else 0
        return self.names[start : int(self.name_ends[sample])].tobytes().decode(errors="surrogateescape")

    def place(self, sample: int) -> tuple[Object, Range]:
        """Where the bytes of a sample are: in a shard, or all of a file in a folder, whose tag nobody knows."""
        shard, size = self.shards[int(self.shard[sample])], int(self.size[sample])
        if shard.url.endswith("/"):
            return Object(shard.url + self.member(sample), size, ""), (0, size)
        first = int(self.offset[sample])
        return shard, (first, first + size)

    def fingerprint(self) -> str:
        """Of all that is in here but where shards lie: no image is read."""
        columns = (self.shard, self.offset, self.size, self.label, self.name_ends, self.names)
        return fingerprint.of_arrays(*columns, np.array(self.groups, dtype=np.int64))

    @property
    def shards_taken(self) -> str:
        """In words: "13 of 1000 shards"."""
        if self.num_taken < self.num_found:
            return f"{self.num_taken} of {self.num_found} shards"
        return counted(self.num_taken, "shard")

    def layout(self, window: int | None) -> int | Layout:
        """What the order of samples depends on besides the seed and the epoch.

        Where nobody chose a window and a shard is a class, steps would see the few classes of a window: all samples are
        shuffled as one.
        """
        if window is None and self._is_sorted_by_class:
            return len(self)
        return Layout(self.groups, window or WINDOW)

    @property
    def _is_sorted_by_class(self) -> bool:
        """Whether no group holds two classes, as folders and the tars of synsets do not."""
        sizes = np.array(self.groups, dtype=np.int64)
        first = np.cumsum(sizes) - sizes
        return bool((np.minimum.reduceat(self.label, first) == np.maximum.reduceat(self.label, first)).all())
