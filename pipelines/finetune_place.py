"""Where a fine-tuning writes: its output and record, and a folder beside them while it runs.

my.safetensors          the weights, with their labels and preprocessing
my.safetensors.json     what made them
my.safetensors.run/     what an unfinished run goes on from; gone when it is finished
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from curate.errors import BusyError, UsageError
from curate.files import (
    hold,
    make_folder,
    printable,
    remove_leftovers,
    sha256_file,
    storage_errors,
    sync_folder,
    write_json,
)

_LOCK = "finetune"

# What a run's files are known by.
_RUN = ("run", "settings", "photos", "made_by")
_RECORD = (*_RUN, "fingerprint", "classifier", "history", "accuracy", "refused")


class Place:
    """The files of one output.

    Args:
        output: the safetensors file to be made; its folder must exist.
        force: whether what another run left there may be overwritten.

    Attributes:
        record_path: the record beside the output.
        folder: of the unfinished run.
        state: the file in it that keeps where the training stands.
        weights: the file in it that becomes the output.

    Raises:
        UsageError: the output cannot be a file of weights, or its folder is absent.
    """

    def __init__(self, output: Path, force: bool) -> None:
        self.output, self._force = output, force
        if output.suffix != ".safetensors":
            raise UsageError(f"--output {printable(output)}: its name must end in .safetensors")
        if not output.parent.is_dir():
            raise UsageError(f"--output {printable(output)}: its folder does not exist")
        if "?" in str(output) or printable(output) != str(output):
            raise UsageError(
                f"--output {printable(output)}: a model's name could not hold it; leave out "
                "question marks, and write UTF-8"
            )
        if output.is_dir():
            raise UsageError(f"--output {printable(output)} is a folder")
        self.record_path = output.with_name(f"{output.name}.json")
        self.folder = output.with_name(f"{output.name}.run")
        self.state = self.folder / "state.safetensors"
        self.weights = self.folder / "weights.safetensors"
        self._run_path = self.folder / "run.json"
        self._verdicts_path = self.folder / "verdicts.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other commands off; the folder is gone afterwards if nothing was written to it.

        Raises:
            BusyError: another command makes this output.
            StorageError: the disk is full or refuses.
        """
        make_folder(self.folder)
        try:
            with hold(self.folder / _LOCK, "curate models finetune"):
                try:
                    remove_leftovers(self.folder)
                    yield
                finally:
                    if not self._run_path.is_file():
                        shutil.rmtree(self.folder, ignore_errors=True)
        except BusyError as error:
            told = str(error).replace("this workspace", printable(self.output))
            raise BusyError(told) from None

    def finished(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """The record of a finished run with these settings, whose output is whole.

        Raises:
            UsageError: something else is in the output's place, and must not be overwritten.
        """
        record = _read(self.record_path, _RECORD)
        if not self.output.exists():
            if self.record_path.exists() and record is None:
                raise UsageError(
                    f"{printable(self.record_path)} is in the place of the record: move it away, "
                    "or choose another --output"
                )
            return None
        if record is not None and sha256_file(self.output) != record["fingerprint"]:
            record = None
        if record is not None and record["settings"] == settings:
            return record
        if not self._is_half_published():
            why = "is not of this run"
            if record is not None:
                why = f"was made with {_difference(record['settings'], settings)}"
            self.refuse(why)
        return None

    def refuse(self, what: str) -> None:
        """Refuse to overwrite the output, unless it was forced."""
        if not self._force:
            raise UsageError(
                f"{printable(self.output)} {what}: choose another --output, or give --force"
            )

    def begin(self, settings: Mapping[str, Any]) -> None:
        """See to it that what is in the folder is of a run with these settings, or nothing.

        Raises:
            UsageError: it is of another one, and must not be dropped.
        """
        run = _read(self._run_path, _RUN)
        if run is not None and run["settings"] == settings:
            return
        if run is not None and not self._force:
            raise UsageError(
                f"{printable(self.folder)} holds an unfinished run with "
                f"{_difference(run['settings'], settings)}: give its command to go on with it, "
                "or --force to begin anew"
            )
        self.clear()

    def enter(
        self,
        run: Mapping[str, Any],
        made_by: Mapping[str, Any],
        verdicts: Mapping[str, tuple[str, str] | None],
    ) -> list[Any]:
        """Write down which run is under way, what computes, and what was said of the photos.

        Args:
            run: `run`, `settings` and `photos`.
            made_by: what computes now.
            verdicts: SHA-256 to what was said (see `labelled.look`).

        Returns:
            All that has computed for this run, each once.

        Raises:
            UsageError: an unfinished run of the same settings began with other photos.
        """
        before = _read(self._run_path, _RUN)
        if before is not None and before["run"] != run["run"]:
            if not self._force:
                raise UsageError(
                    f"{printable(self.folder)} holds an unfinished run that began with other "
                    "photos: bring them back, or give --force to begin anew"
                )
            self.clear()
            before = None
        if before is None:
            write_json(self._verdicts_path, {"verdicts": dict(verdicts)})
        makers: list[Any] = [] if before is None else before["made_by"]
        if dict(made_by) not in makers:
            makers = [*makers, dict(made_by)]
            write_json(self._run_path, {**run, "made_by": makers})
        return makers

    def verdicts(self) -> dict[str, tuple[str, str] | None]:
        """What an earlier look said of photos, by SHA-256 (see `labelled.look`)."""
        told = _read(self._verdicts_path, ("verdicts",)) or {"verdicts": {}}
        return {sha: tuple(said) if said else None for sha, said in told["verdicts"].items()}

    def publish(self, record: Mapping[str, Any]) -> None:
        """Put the finished weights and then their record in their places, and drop the folder."""
        written = self.folder / "record.json"
        write_json(written, record)
        with storage_errors(printable(self.output)):
            self.weights.replace(self.output)
            written.replace(self.record_path)
            sync_folder(self.output.parent)
        self.clear()

    def clear(self) -> None:
        """Empty the folder; what says that a run is under way goes first."""
        self._run_path.unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if path.stem != _LOCK:
                path.unlink(missing_ok=True)

    def _is_half_published(self) -> bool:
        """Whether a kill came between the output's rename and the record's."""
        run = _read(self._run_path, _RUN)
        return run is not None and _run_of(self.output) == run["run"]


def _read(path: Path, needs: Sequence[str]) -> dict[str, Any] | None:
    """A JSON object that has these keys; None where there is none."""
    # Records are this project's own; whatever else stands there is not.
    with suppress(OSError, ValueError, RecursionError):
        told = json.loads(path.read_bytes())
        if isinstance(told, dict) and all(key in told for key in needs):
            return told
    return None


def _run_of(output: Path) -> str | None:
    from curate.models.told import read_told

    with suppress(UsageError):
        told = read_told(output)
        return told.run if told else None
    return None


def _difference(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """The first setting that differs: "epochs 10, not 5"."""
    for key in sorted({*theirs, *ours}):
        one, other = theirs.get(key), ours.get(key)
        if one != other:
            if isinstance(one, dict) and isinstance(other, dict):
                return _difference(one, other)
            return f"{key.replace('_', '-')} {one}, not {other}"
    return "the same settings"
