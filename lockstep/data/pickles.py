"""The python version of CIFAR: pickles with an array of pixels and lists of labels, read without executing anything.

A pickle is a program that may call any function by its name. Here no name reaches a function: the few that a pickled
numpy array needs get stand-ins that only note down what they were given, every other name is refused, and so is every
instruction that an array, a dictionary or a list does not need.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.data.records import CIFAR10, CIFAR100, PIXELS, Kind, Records
from lockstep.errors import UserError

_INSTRUCTIONS = """
    PROTO FRAME STOP MARK POP POP_MARK PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET
    NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4
    STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8
    TUPLE EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 LIST EMPTY_LIST APPEND APPENDS DICT EMPTY_DICT SETITEM SETITEMS
    GLOBAL STACK_GLOBAL REDUCE BUILD
"""

_ARRAY_MODULES = (
    "numpy",
    "numpy.core.multiarray",
    "numpy._core.multiarray",
    "numpy.core.numeric",
    "numpy._core.numeric",
)
_NAMES = {(module, name) for module in _ARRAY_MODULES for name in ("ndarray", "dtype", "_reconstruct", "_frombuffer")}
_NAMES.add(("_codecs", "encode"))

_TYPES = {"u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8"}


class _Type:
    """What stands in for the type of an array's numbers."""

    __slots__ = ("code",)

    def __init__(self, code: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """A pickle says more about a type than is needed."""


class _Array:
    """What stands in for an array: shape, type, whether columns come first, and bytes, as the pickle gave them."""

    __slots__ = ("state",)

    def __init__(self, *state: Any) -> None:
        self.state = state

    def __setstate__(self, state: Any) -> None:
        self.state = tuple(state)[1:]  # after the version of the format


class _Name:
    """What stands in for a function or a class of the allowed names."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *given: Any) -> Any:
        if self._name == "dtype":
            return _Type(given[0])
        if self._name == "_reconstruct":
            return _Array()
        if self._name == "_frombuffer":
            data, kind, shape, order = given
            return _Array(shape, kind, order == "F", data)
        if self._name == "encode" and len(given) == 2 and given[1] == "latin1":
            return str(given[0]).encode("latin1")
        raise pickle.UnpicklingError(f"{self._name} is called in an unknown way")

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError(f"{self._name} is changed")


class _Forbidden(pickle.UnpicklingError):
    pass


class _Reader(pickle._Unpickler):
    """Python's own implementation: unlike the faster one it reserves no memory because a damaged file asks for it."""

    dispatch = {  # noqa: RUF012
        code: function
        for code, function in pickle._Unpickler.dispatch.items()
        if code in {getattr(pickle, name)[0] for name in _INSTRUCTIONS.split()}
    }

    def _load_bytes(self) -> None:
        """A bytearray, whose memory Python would reserve before it looks whether there is so much to read."""
        self.append(self.read(int.from_bytes(self.read(8), "little")))  # type: ignore[attr-defined]

    dispatch[pickle.BYTEARRAY8[0]] = _load_bytes  # type: ignore[assignment]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise _Forbidden(f"{module}.{name}")
        return _Name(name)


def load(data: bytes, name: str) -> dict[str, Any]:
    """The dictionary in a pickle of any protocol; byte strings are the keys that Python 2 wrote."""
    try:
        found = _Reader(io.BytesIO(data), encoding="bytes").load()
        plain = {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in found.items()}
    except _Forbidden as forbidden:
        raise UserError(
            f"{name} asks Python to call {forbidden}, which no CIFAR file does: nothing of it was executed; download "
            "it again, from a place that you trust"
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
        what = str(error) or type(error).__name__
        raise UserError(f"{name} is no pickle of CIFAR, or is damaged ({what}): download it again") from None
    return plain


def kind_of(found: dict[str, Any]) -> Kind | None:
    """Which data set a loaded pickle belongs to."""
    if "data" not in found:
        return None
    return CIFAR100 if "fine_labels" in found else CIFAR10 if "labels" in found else None


def to_records(found: dict[str, Any], name: str) -> tuple[Records, Kind]:
    """The samples of a loaded pickle, as binary records."""
    kind = kind_of(found)
    if kind is None:
        raise UserError(f"{name} has no `data` with `labels` or `fine_labels`: it is no data file of CIFAR")
    pixels = _array(found["data"], f"{name}, `data`")
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise UserError(
            f"{name}: `data` is {pixels.dtype} of shape {pixels.shape}, not bytes of shape (n, {PIXELS}): download it "
            "again"
        )
    if not len(pixels):
        raise UserError(f"{name} holds no images: download it again")
    records = np.empty((len(pixels), kind.record), dtype=np.uint8)
    keys = ("labels",) if kind is CIFAR10 else ("coarse_labels", "fine_labels")
    for position, key in enumerate(keys):
        records[:, position] = _labels(found.get(key), key, len(pixels), kind.limits[position], name)
    records[:, len(keys) :] = pixels
    return records, kind


def class_names(found: dict[str, Any], key: str) -> tuple[str, ...] | None:
    """The names in `batches.meta` and `meta`."""
    names = found.get(key)
    if not isinstance(names, list) or not all(isinstance(one, str | bytes) for one in names):
        return None
    return tuple(one.decode("latin1") if isinstance(one, bytes) else one for one in names)


def _labels(given: Any, key: str, count: int, limit: int, name: str) -> npt.NDArray[np.uint8]:
    values = _array(given, f"{name}, `{key}`").tolist() if isinstance(given, _Array) else given
    if not isinstance(values, list) or len(values) != count:
        has = len(values) if isinstance(values, list) else "no"
        raise UserError(f"{name} has {count} images and {has} `{key}`: it is damaged; download it again")
    for number, label in enumerate(values):
        if type(label) is not int or not 0 <= label < limit:
            what = label if type(label) is int and abs(label) < 10**9 else type(label).__name__
            raise UserError(
                f"{name}, record {number}: {key[:-1].replace('_', ' ')} {what} is out of range 0 to {limit - 1}; it is "
                "damaged: download it again"
            )
    return np.array(values, dtype=np.uint8)


def _array(given: Any, name: str) -> npt.NDArray[Any]:
    """The array that a stand-in stands for."""
    try:
        shape, kind, is_fortran, data = given.state
        code = kind.code.decode("latin1") if isinstance(kind.code, bytes) else kind.code
        if code not in _TYPES or not all(type(side) is int and side >= 0 for side in shape):
            raise ValueError(f"an array of {str(code)[:20]!r}")
        data = data.encode("latin1") if isinstance(data, str) else data
        if math.prod(shape) * int(code[1]) != len(data):
            raise ValueError(f"shape {str(shape)[:60]} with {len(data)} bytes")
        flat = np.frombuffer(data, dtype=np.dtype(f"<{code}"))
        return flat.reshape(shape, order="F" if is_fortran else "C")
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"{name} is no array of numbers ({error}): download the file again") from None
