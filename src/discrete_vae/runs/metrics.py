"""The log of a run's metrics: JSON lines that survive a kill at any moment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.atomic import naming, write_bytes
from discrete_vae.runs.json_files import MetricsSchema, check_fields, parse_json, to_json
from discrete_vae.runs.regular_files import read_regular


class MetricsLog:
    """Appends records to a file of JSON lines and reads them back.

    A kill may tear the last line: reading ignores it, the next append removes it. Only `sync` makes the lines
    survive a power cut; call it before a checkpoint is saved.

    Args:
        path: The file; it need not exist yet, its folder must.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = MetricsLog(Path(folder, "metrics.jsonl"))
        ...     log.append({"step": 1, "elbo": -90.0})
        ...     log.append({"step": 2, "elbo": -85.0})
        ...     log.drop_after(1)
        ...     log.read()
        [{'step': 1, 'elbo': -90.0}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record as one line.

        Args:
            record: Strings and finite numbers; its ``step``, a non-negative integer, counts the steps done.

        Raises:
            InvalidInputError: If the step is missing or a value is something else; nothing is written.
            OSError: If the line cannot be written; names the file.
        """
        check_fields("record", record, MetricsSchema, repair="Give the step, and finite numbers.")
        line = (to_json("record", record) + "\n").encode()
        self._check_own()
        with naming(self.path):
            self._remove_torn_line()
            with self.path.open("ab") as file:
                file.write(line)

    def read(self) -> list[dict[str, Any]]:
        """All complete records, in the order of the file; none if there is no file.

        Raises:
            InvalidInputError: If a complete line is damaged; names it. If the file cannot be read.
        """
        return [self._parse(line, number) for number, line in enumerate(self._complete_lines(), start=1)]

    def drop_after(self, step: int) -> None:
        """Forget what was logged beyond a step, as a run does that continues from that step's checkpoint.

        A torn or damaged tail, which a power cut can leave, is dropped with it. Nothing is written if there
        is nothing to drop.

        Args:
            step: The last step to keep, at least 0.

        Raises:
            InvalidInputError: If a damaged line stands before a line that is kept.
        """
        _check_step("step", step)
        self._check_own()
        if not self.path.exists():
            return
        kept: list[bytes] = []
        damage: InvalidInputError | None = None
        for number, line in enumerate(self._complete_lines(), start=1):
            try:
                record = self._parse(line, number)
            except InvalidInputError as error:
                damage = damage or error
                continue
            if record["step"] <= step:
                if damage is not None:
                    raise damage
                kept.append(line)
        content = b"".join(line + b"\n" for line in kept)
        if content != self._content():
            write_bytes(self.path, content)

    def sync(self) -> None:
        """Ask the system to store the lines; does nothing if there is no file."""
        if self.path.exists():
            self._check_own()
            with naming(self.path), self.path.open("ab") as file:
                os.fsync(file.fileno())

    def _check_own(self) -> None:
        """Refuse to write through a link: the line would be in another file."""
        if self.path.is_symlink():
            received, repair = "a link", "Put the file that it leads to in its place, or remove it."
            raise InvalidInputError(str(self.path), "must be a file of the run", received, repair)

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        name, repair = f"{self.path}, line {number},", "Remove the line, or restore the file from a copy."
        try:
            record = parse_json(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            received = repr(line[:60].decode(errors="replace"))
            raise InvalidInputError(name, "must be a JSON object with a step", received, repair)
        check_fields(name.removesuffix(","), record, MetricsSchema, repair=repair)
        return record

    def _complete_lines(self) -> list[bytes]:
        return self._content().split(b"\n")[:-1]  # what follows the last line end is torn, or nothing

    def _content(self) -> bytes:
        if not self.path.exists():
            return b""
        try:
            return read_regular(self.path)
        except OSError as error:
            received = error.strerror or str(error)
            repair = "Check its permissions, or restore the file from a copy."
            raise InvalidInputError(str(self.path), "must be a readable file", received, repair) from None

    def _remove_torn_line(self) -> None:
        if not self.path.exists() or self.path.stat().st_size == 0:
            return
        with self.path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)


def _check_step(name: str, step: object) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise InvalidInputError(
            name, "must be a non-negative integer", repr(step), "Give the number of steps done."
        )
