"""LitData, which reads data only after it has converted them: the files in chunks of its own, decoded by Pillow.

Its own JPEG decoder is torchvision's, whose build has to fit that of torch; bytes and Pillow work everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path


def _same(data: bytes) -> bytes:
    return data


def convert(files: list[bytes], directory: Path) -> Callable[[], Iterator[bytes]]:
    """Write the chunks, and return what reads all files again, in their order."""
    # Left to itself, it empties the folders `data` and `chunks` of the temporary directory, whoever they belong to.
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(directory.with_name("litdata-data"))
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(directory.with_name("litdata-chunks"))
    import litdata  # type: ignore[import-not-found, import-untyped, unused-ignore]

    litdata.optimize(
        fn=_same, inputs=files, output_dir=str(directory), chunk_bytes="64MB", num_workers=1, verbose=False
    )
    dataset = litdata.StreamingDataset(str(directory), shuffle=False)
    return lambda: (bytes(data) for data in dataset)
