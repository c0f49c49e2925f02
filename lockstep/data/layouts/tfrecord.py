"""ImageNet as TFRecords (`train-00000-of-01024`): the image of a record is found in it, and read from there later.

A record is its length, a checksum of that, the data, and a checksum of those. The data are a `tf.train.Example`, which
protobuf parses. Where a field lies only the whole record tells, so shards are read through, once.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from lockstep.data.layouts import MAX_LABEL, Scan, base_name, columns, encoded, shown
from lockstep.data.layouts.rangefile import Pace, RangeFile
from lockstep.data.storage import Object, Storage
from lockstep.errors import UserError

NAME = re.compile(r".*-\d{5}-of-\d{5}(\.tfrecords?)?|.*\.tfrecords?")
MAX_RECORD = 64 << 20
THROUGH = Pace(skip=MAX_RECORD, block=4 << 20, header=4 << 20)

IMAGE, LABEL, FILENAME = "image/encoded", "image/class/label", "image/filename"


def is_tfrecord(base: str) -> bool:
    return NAME.fullmatch(base) is not None and not base.startswith("._")


def scan(storage: Storage, shard: Object) -> Scan:
    """The images of a shard; labels 1 to 1000 of the files become 0 to 999, and 0 there is no image's."""
    names: list[bytes] = []
    offsets: list[int] = []
    sizes: list[int] = []
    labels: list[int] = []
    for number, (start, data) in enumerate(_records(storage, shard)):
        title = f"{shard.url}, record {number}"
        image, label, name = _parse(data, title)
        if not 1 <= label <= MAX_LABEL + 1:
            raise UserError(
                f"{title}: label {label} is out of range, which begins at 1 in ImageNet's TFRecords (0 is the "
                "background, of which there are no images): correct it"
            )
        names.append(encoded(name or f"record {number}"))
        offsets.append(start + data.find(image))
        sizes.append(len(image))
        labels.append(label - 1)
    return columns(base_name(shard.url), names, offsets, sizes, labels)


def _records(storage: Storage, shard: Object) -> Iterator[tuple[int, bytes]]:
    """Where the data of each record begin, and the data, whose checksums are right."""
    checksum = _checksum()
    file = RangeFile(storage, shard, pace=THROUGH)
    position = number = 0
    while position < shard.size:
        title = f"{shard.url}, record {number}"
        header = file.contents(position, 12)
        if len(header) < 12:
            raise UserError(f"{title} is cut off: copy the shard again")
        length, of_length = struct.unpack("<QI", header)
        if checksum(header[:8]) != of_length:
            raise UserError(f"{title}: its length does not have its checksum, this is no TFRecord or damaged; {_AGAIN}")
        if length > MAX_RECORD:
            raise UserError(f"{title} has {length} bytes, and at most {MAX_RECORD} are read: make its image smaller")
        data = file.contents(position + 12, length + 4)
        if len(data) < length + 4:
            raise UserError(f"{title} is cut off after {len(data)} of {length + 4} bytes: copy the shard again")
        if checksum(data[:length]) != struct.unpack("<I", data[length:])[0]:
            raise UserError(f"{title}: its data do not have their checksum; {_AGAIN}")
        yield position + 12, data[:length]
        position += length + 16
        number += 1


_AGAIN = "copy the shard again"


def _parse(data: bytes, title: str) -> tuple[bytes, int, str]:
    """The encoded image, its label, and the name of its file if there is one."""
    from google.protobuf.message import DecodeError

    try:
        example = _example()()
        example.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError):
        raise UserError(f"{title} is no tf.train.Example; give ImageNet's TFRecords") from None
    features = example.features.feature
    images = list(features[IMAGE].bytes_list.value) if IMAGE in features else []
    labels = list(features[LABEL].int64_list.value) if LABEL in features else []
    if len(images) != 1 or not images[0] or len(labels) != 1:
        raise UserError(f"{title} has not one {IMAGE} and one {LABEL} as ImageNet's TFRecords have: give those")
    names = list(features[FILENAME].bytes_list.value) if FILENAME in features else []
    name = names[0][:255].decode(errors="replace") if names else ""
    return images[0], labels[0], shown(name)


@cache
def _example() -> Any:
    """tf.train.Example, as tensorflow/core/example/{example,feature}.proto define it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="lockstep/example.proto", package="lockstep", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, kind in (("Bytes", kinds.TYPE_BYTES), ("Float", kinds.TYPE_FLOAT), ("Int64", kinds.TYPE_INT64)):
        values = file.message_type.add(name=f"{name}List").field
        values.add(name="value", number=1, type=kind, label=kinds.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("Bytes", "Float", "Int64"), start=1):
        field = feature.field.add(name=f"{name.lower()}_list", number=number, oneof_index=0)
        field.type, field.label, field.type_name = kinds.TYPE_MESSAGE, kinds.LABEL_OPTIONAL, f".lockstep.{name}List"
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL, type_name=".lockstep.Feature"
    )
    features.field.add(
        name="feature",
        number=1,
        type=kinds.TYPE_MESSAGE,
        label=kinds.LABEL_REPEATED,
        type_name=".lockstep.Features.FeatureEntry",
    )
    example = file.message_type.add(name="Example")
    example.field.add(
        name="features", number=1, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL, type_name=".lockstep.Features"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("lockstep.Example"))


def _checksum() -> Callable[[bytes], int]:
    """CRC-32C, masked as TFRecords have it."""
    try:
        import google_crc32c
    except ImportError:
        raise UserError("TFRecords need google-crc32c: pip install 'lockstep-train[imagenet]'") from None

    def masked(data: bytes) -> int:
        value = int(google_crc32c.value(data))
        return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF

    return masked
