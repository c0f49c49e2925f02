"""The store of torchrun, where ranks leave a note for each other: the only engine code that imports torch."""

from __future__ import annotations

from datetime import timedelta


class Store:
    """A connection to the store that listens on MASTER_PORT; OSError if it cannot be reached."""

    def __init__(self, address: str, port: int, seconds: float) -> None:
        from torch._C._distributed_c10d import TCPStore

        timeout = timedelta(seconds=seconds)
        try:
            self._store = TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timeout)
        except RuntimeError as error:
            raise ConnectionError(f"torchrun's store on {address}:{port}: {_first_line(error)}") from None

    def put(self, key: str, value: str) -> None:
        try:
            self._store.set(key, value)
        except RuntimeError as error:
            raise ConnectionError(f"torchrun's store: {_first_line(error)}") from None

    def get(self, key: str) -> str | None:
        """None as long as nobody has put anything there."""
        try:
            return self._store.get(key).decode() if self._store.check([key]) else None
        except RuntimeError as error:
            raise ConnectionError(f"torchrun's store: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
