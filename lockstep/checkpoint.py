"""Checkpoints: safetensors and JSON in a directory of their own, written under another name, synced, then renamed.

    checkpoints/step-000000100/{model.safetensors, optimizer.safetensors, checkpoint.json}

With a moving average there is an `average.safetensors` as well, with a script of the user's own that keeps more than
model and optimizer a `script.safetensors`. `checkpoint.json` holds the step, the digests and the
checksum of the other files; a checkpoint whose files do not match it is not used. Reading the JSON and finding the
newest good one needs no torch, so the supervisor does it too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import strictjson
from lockstep.config import Checkpoints
from lockstep.digest import digest, entries_of_file, entries_of_tensors
from lockstep.errors import UserError
from lockstep.rounds import EVERY_STEP, Rounds
from lockstep.state import State, state_digest
from lockstep.strictjson import number

if TYPE_CHECKING:
    from torch import Tensor

FORMAT_VERSION = 1
FILES = ("model.safetensors", "optimizer.safetensors")
AVERAGE = "average.safetensors"
"""Only where weights are averaged."""
SCRIPT = "script.safetensors"
"""Only where a script of the user's own is trained: schedulers and the like."""
OPTIONAL = (AVERAGE, SCRIPT)
ALL_FILES = (*FILES, *OPTIONAL, "checkpoint.json")
PIN_TRIES = 5
"""How often all checkpoints may vanish between being listed and being pinned."""


class Damaged(Exception):  # noqa: N818
    """A checkpoint that must not be used; the message names file and fault."""


@dataclass(frozen=True)
class Info:
    """What `checkpoint.json` says."""

    path: Path
    step: int
    digest: str
    state_digest: str
    best: dict[str, Any] | None
    evaluated: int
    """The last step that was evaluated; -1 for none."""
    tally: list[list[float]]
    """Loss and hits of the steps since the last row of metrics."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Of metrics, since the checkpoint before."""


@dataclass(frozen=True)
class Snapshot:
    """What is written: the state after so many steps, and what is known of evaluations."""

    step: int
    state: State
    best: dict[str, Any] | None
    evaluated: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    def digest(self) -> str:
        return digest(entries_of_tensors(self.state.model.items()))

    def state_digest(self) -> str:
        state = self.state
        parts = (state.model.items(), state.optimizer.items(), state.average.items())
        return state_digest(*parts, self.step, state.script.items())

    def files(self) -> dict[str, dict[str, Tensor]]:
        """What goes into which file."""
        files = dict(zip(FILES, (self.state.model, self.state.optimizer), strict=True))
        optional = {AVERAGE: self.state.average, SCRIPT: self.state.script}
        return files | {name: tensors for name, tensors in optional.items() if tensors}


def is_due(config: Checkpoints, done: int, steps_per_epoch: float, rounds: Rounds = EVERY_STEP) -> bool:
    """Whether a checkpoint is planned when `done` steps are done: every so many steps, or at the end of epochs."""
    if rounds.is_due(config.every_steps, done):
        return True
    interval = config.every_epochs * steps_per_epoch
    return interval > 0 and math.floor(done / interval) > math.floor(rounds.before(done) / interval)


def to_keep(entries: list[dict[str, Any]], keep: int, needed_steps: set[int]) -> list[dict[str, Any]]:
    """Of checkpoints in the order of their writing: the newest few, and those that are needed for another reason."""
    return [entry for at, entry in enumerate(entries) if at >= len(entries) - keep or entry["step"] in needed_steps]


def remove_leftovers(root: Path, owner: str = "*") -> None:
    """What killed writers left behind, or one of them; only while they do not write."""
    for path in root.glob(f".step-*.{owner}"):
        shutil.rmtree(path, ignore_errors=True)


def directory_name(step: int) -> str:
    return f"step-{step:09d}"


def write(root: Path, snapshot: Snapshot, owner: str = "0") -> Info:
    """Write a checkpoint below `root`; when this returns, it is complete and on disk. No two owners have one name."""
    from safetensors.torch import save_file

    root.mkdir(parents=True, exist_ok=True)
    target = root / directory_name(snapshot.step)
    temporary = root / f".{target.name}.{owner}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        files = snapshot.files()
        for name, tensors in files.items():
            save_file(tensors, temporary / name)
        document = {
            "version": FORMAT_VERSION,
            "step": snapshot.step,
            "digest": snapshot.digest(),
            "state_digest": snapshot.state_digest(),
            "best": snapshot.best,
            "evaluated": snapshot.evaluated,
            "tally": snapshot.state.tally,
            "rows": snapshot.rows,
            "files": {name: _checksum(temporary / name) for name in files},
        }
        (temporary / "checkpoint.json").write_text(strictjson.dumps(document, indent=2) + "\n")
        return place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def place(temporary: Path, target: Path) -> Info:
    """Give a complete checkpoint its name, after it has reached the disk."""
    for name in files_of(temporary):
        _sync(temporary / name)
    _sync(temporary)
    if target.exists():
        # A step that was redone has the same bits, unless the old ones were found to be wrong, or have been damaged.
        try:
            there = verify(target)
            if there.state_digest == read_info(temporary).state_digest:
                return there
        except Damaged:
            pass
        shutil.rmtree(target)
    temporary.rename(target)
    _sync(target.parent)
    return read_info(target)


def files_of(path: Path) -> tuple[str, ...]:
    """The names of a checkpoint's files, `checkpoint.json` included."""
    files = _read_document(path).get("files")
    optional = [name for name in OPTIONAL if isinstance(files, dict) and name in files]
    return (*FILES, *optional, "checkpoint.json")


def _checksum(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_info(path: Path) -> Info:
    """Read `checkpoint.json`; Damaged if it does not say what it must."""
    document = _read_document(path)
    try:
        return Info(
            path=path,
            step=int(document["step"]),
            digest=str(document["digest"]),
            state_digest=str(document["state_digest"]),
            best=document["best"],
            evaluated=int(document["evaluated"]),
            tally=[list(map(number, counts)) for counts in document.get("tally", [])],
            rows=[
                {name: number(value) for name, value in row.items()}
                for row in document.get("rows", [])
                if isinstance(row["step"], int)
            ],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{path / 'checkpoint.json'} lacks {error}") from None


def _read_document(path: Path) -> dict[str, Any]:
    file = path / "checkpoint.json"
    try:
        document = json.loads(file.read_text())
    except FileNotFoundError:
        raise Damaged(f"{file} is missing") from None
    except (OSError, ValueError) as error:
        raise Damaged(f"{file} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise Damaged(f"{file} is not a JSON object")
    if document.get("version") != FORMAT_VERSION:
        raise UserError(
            f"{file} has format version {document.get('version')!r}, this Lockstep reads {FORMAT_VERSION}: "
            "use the version of Lockstep that wrote it, or a newer one"
        )
    return document


def verify(path: Path) -> Info:
    """Compare every file with its checksum."""
    info = read_info(path)
    files = _read_document(path).get("files")
    for name in files_of(path)[:-1]:
        if not isinstance(files, dict) or name not in files:
            raise Damaged(f"{path / 'checkpoint.json'} has no checksum of {name}")
        try:
            if _checksum(path / name) != files[name]:
                raise Damaged(f"{path / name} is damaged: its checksum differs")
        except FileNotFoundError:
            raise Damaged(f"{path / name} is missing") from None
        except OSError as error:
            raise Damaged(f"{path / name} cannot be read: {error}") from None
    return info


def newest_good(root: Path, up_to: int | None = None) -> tuple[Info | None, list[str]]:
    """The newest checkpoint (of step `up_to` or earlier) whose files are all right, and what is wrong with the newer
    ones."""
    listed = _listed(root, None)
    return _first_good([path for path in listed if up_to is None or path.name <= directory_name(up_to)])


def carried_rows(root: Path, after: int, up_to: int) -> list[dict[str, Any]]:
    """Rows of metrics that checkpoints carry, of steps in between, in order and each once."""
    found: dict[int, dict[str, Any]] = {}
    for path in _listed(root, None):
        with suppress(Damaged):
            found |= {row["step"]: row for row in read_info(path).rows if after < row["step"] <= up_to}
    return [found[step] for step in sorted(found)]


def _first_good(listed: list[Path]) -> tuple[Info | None, list[str]]:
    problems: list[str] = []
    for path in listed:
        try:
            return verify(path), problems
        except Damaged as damage:
            problems.append(str(damage))
    return None, problems


def describe_damage(problems: list[str], is_another_good: bool) -> list[str]:
    """What a user is told of checkpoints that were passed over, the newest first, when training goes on."""
    used = "an older checkpoint is used" if is_another_good else "there is no older one, so training starts at step 0"
    then = [*["the one before it is tried"] * (len(problems) - 1), used]
    return [f"warning: {problem}; {what}" for problem, what in zip(problems, then, strict=False)]


def steps_of(root: Path) -> list[int]:
    """The steps of which there are checkpoints, good or not."""
    return sorted(int(path.name.removeprefix("step-")) for path in root.glob("step-*"))


@contextmanager
def pinned(root: Path, step: int | None = None) -> Iterator[tuple[Info | None, list[str]]]:
    """As `newest_good`, or that of one step, under a name of its own: training that goes on meanwhile may delete what
    it has written."""
    try:
        directory = Path(tempfile.mkdtemp(prefix=".pinned-", dir=root.parent))
    except OSError:  # nobody writes here, so nothing vanishes
        yield _first_good(_listed(root, step))
        return
    try:
        for _ in range(PIN_TRIES):
            listed = _listed(root, step)
            found, problems = _pin(listed, directory)
            if found is not None or problems or not listed:
                break
        yield found, problems
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _listed(root: Path, step: int | None) -> list[Path]:
    return sorted(root.glob("step-*" if step is None else directory_name(step)), reverse=True)


def _pin(listed: list[Path], directory: Path) -> tuple[Info | None, list[str]]:
    """The first of these that is good, and what is wrong with those before it that have not just gone."""
    problems: list[str] = []
    for path in listed:
        pin = directory / path.name
        try:
            _link(path, pin)
            return verify(pin), problems
        except (Damaged, FileNotFoundError) as damage:
            shutil.rmtree(pin, ignore_errors=True)
            if path.exists():
                problems.append(str(damage).replace(str(pin), str(path)))
    return None, problems


def _link(path: Path, pin: Path) -> None:
    pin.mkdir()
    for file in path.iterdir():
        try:
            os.link(file, pin / file.name)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without hard links
            shutil.copy(file, pin)


def digest_of_files(info: Info) -> str:
    """The digest, computed from the stored weights and not taken from the JSON."""
    return digest(entries_of_file(info.path / FILES[0]))


def load(path: Path, expected: dict[str, Tensor]) -> State:
    """The state; a UserError if it is that of another model."""
    from safetensors.torch import load_file

    model = load_file(path / FILES[0])
    for name in sorted(set(expected) ^ set(model)):
        where = "only the model" if name in expected else "only the checkpoint"
        raise UserError(f"{path} is a checkpoint of another model: {where} has {name!r}")
    for name, tensor in expected.items():
        if model[name].shape != tensor.shape:
            raise UserError(
                f"{path} is a checkpoint of another model: {name!r} has shape {tuple(model[name].shape)} there and "
                f"{tuple(tensor.shape)} here"
            )
    average, script = (load_file(path / name) if name in files_of(path) else {} for name in OPTIONAL)
    return State(model, load_file(path / FILES[1]), read_info(path).tally, average, script)
