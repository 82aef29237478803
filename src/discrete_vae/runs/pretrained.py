"""A model alone, without a run: a folder with its weights in safetensors and its config in JSON, with their sums."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from discrete_vae._version import __version__
from discrete_vae.config import ModelConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes
from discrete_vae.runs.checkpoints import MODEL_PREFIX, load_tensors, save_tensors
from discrete_vae.runs.hub import fetch_snapshot, is_hub_name
from discrete_vae.runs.io import (
    is_temporary,
    publish_directory,
    read_json,
    remove_temporaries,
    sha256_bytes,
    sha256_file,
    to_json,
    write_json,
)
from discrete_vae.runs.run_directory import RunDirectory, check_config
from discrete_vae.system import unicode_path, without_links

WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
FORMAT = 1
_DTYPES = {
    str(each).removeprefix("torch."): each
    for each in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
}
_RESTORE = "Restore the folder from a copy."


@dataclass(frozen=True, eq=False, repr=False)
class SavedModel(ShowsShapes):
    """A model as it lies in a folder.

    Attributes:
        config: What it is built from.
        dtype: In which its networks compute.
        own: Names of the parts that are modules of the user's own, which no config describes.
        tensors: Its state by name, on the CPU.
        source: Where it is from, for messages.
    """

    config: ModelConfig
    dtype: torch.dtype
    own: tuple[str, ...]
    tensors: dict[str, Tensor]
    source: str

    def check_parts(self, **given: object) -> None:
        """Check that the user's own parts are given, and no others.

        Args:
            given: A module or None for each part that may be the user's own.

        Raises:
            InvalidInputError: If one is missing or not wanted.
        """
        for name, part in given.items():
            if part is None and name in self.own:
                rule, repair = (
                    "must be given: the model was saved with one of your own",
                    f"Add {name}=module.",
                )
                raise InvalidInputError(name, rule, "None", repair)
            if part is not None and name not in self.own:
                rule = "must be left out: the model was saved with the config's"
                raise InvalidInputError(name, rule, f"a {type(part).__name__}", f"Leave out {name}.")


def write_model(
    path: str | Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    own: tuple[str, ...],
) -> Path:
    """Write a model's folder, whole or not at all; one that holds a saved model gives way.

    Args:
        path: The folder; ``~`` is the home directory.
        config: What the model was built from.
        tensors: Its state by name.
        dtype: In which its networks compute.
        own: Names of the parts that are no part of the config.

    Returns:
        The folder.

    Raises:
        InvalidInputError: If the path is a file, or a folder that holds anything but a saved model.
        OSError: If the disk is full or refuses.
    """
    folder = without_links("path", unicode_path("path", path)).resolve()
    _check_replaceable(folder)
    for name, value in tensors.items():
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype:
            repair = "Bring the whole model to one dtype, for example with model.float()."
            raise InvalidInputError(name, f"must be {dtype}, as the decoder is", value.dtype, repair)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with publish_directory(folder, replace=True) as temporary:
        save_tensors(temporary / WEIGHTS_FILE, tensors)
        fields = {
            "format": FORMAT,
            "discrete_vae": __version__,
            "model": config.model_dump(mode="json"),
            "dtype": str(dtype).removeprefix("torch."),
            "own": list(own),
        }
        sums = {"weights": sha256_file(temporary / WEIGHTS_FILE), "config": _sum_of(fields)}
        write_json(temporary / CONFIG_FILE, {**fields, "sha256": sums})
    return folder


def read_model(path: str | Path | RunDirectory, *, revision: str | None = None) -> SavedModel:
    """Read what `write_model` wrote, or the best checkpoint of a run; nothing is unpickled.

    Args:
        path: The folder of a model or of a run, or OWNER/NAME of the hub where there is no such folder.
        revision: Which one of the hub's; None is the main branch.

    Raises:
        InvalidInputError: If it is neither, is damaged or of another version; or if the run's config has changed.
    """
    if isinstance(path, RunDirectory):
        return _of_run(path)
    folder = unicode_path("path", path)
    if isinstance(path, str) and is_hub_name(path) and not folder.is_dir():
        return _of_folder(fetch_snapshot(path, [WEIGHTS_FILE, CONFIG_FILE], revision=revision))
    if revision is not None:
        repair = "Leave it out, or name a model of the hub as OWNER/NAME."
        raise InvalidInputError("revision", "must go with a model of the hub", str(folder), repair)
    if not os.path.isdir(folder):  # noqa: PTH112 (False where a name is too long)
        with suppress(
            OSError
        ):  # a process that was killed while it replaced the model may have left it aside
            remove_temporaries(folder.parent, of_others=True)
    if not os.path.isdir(folder):  # noqa: PTH112
        raise InvalidInputError(
            "path", "must be an existing folder", str(folder), "Check the path of the model."
        )
    if (folder / WEIGHTS_FILE).exists():
        return _of_folder(folder)
    if (folder / CONFIG_FILE).exists():
        return _of_run(RunDirectory.open(folder))
    received = f"{folder}, which holds neither {WEIGHTS_FILE} nor {CONFIG_FILE}"
    repair = "Give the folder that save_pretrained or dvae train wrote."
    raise InvalidInputError("path", "must be the folder of a model or a run", received, repair)


def _of_run(run: RunDirectory) -> SavedModel:
    config, store = run.read_experiment().model, run.checkpoints()
    check_config(run, store.newest(), accept=False)
    saved = store.load("best")
    weights = {
        name.removeprefix(MODEL_PREFIX): value
        for name, value in saved.tensors.items()
        if name.startswith(MODEL_PREFIX)
    }
    return SavedModel(config, torch.get_default_dtype(), (), weights, str(saved.folder))


def _of_folder(folder: Path) -> SavedModel:
    file = folder / CONFIG_FILE
    fields = read_json(file, repair=_RESTORE)
    sums = fields.pop("sha256", None)
    if not isinstance(sums, dict) or sums.get("config") != _sum_of(fields):
        raise _damaged(folder, f"other values in {CONFIG_FILE}")
    if fields.get("format") != FORMAT:
        received = f"format {fields.get('format')!r}, written by discrete-vae {fields.get('discrete_vae')}"
        repair = f"Update discrete-vae, which is {__version__} here."
        raise InvalidInputError(str(folder), f"must be a model of format {FORMAT}", received[:80], repair)
    if _sum_of_file(folder / WEIGHTS_FILE) != sums.get("weights"):
        raise _damaged(folder, f"a {WEIGHTS_FILE} with another SHA-256")
    dtype, own = _DTYPES.get(str(fields.get("dtype"))), fields.get("own")
    if dtype is None or not isinstance(own, list) or not set(map(str, own)) <= {"encoder", "decoder"}:
        raise _damaged(folder, f"a {CONFIG_FILE} of an unknown form")
    config = ModelConfig.from_json(json.dumps(fields.get("model")), source=str(file))
    try:
        tensors = load_tensors(folder / WEIGHTS_FILE)
    except Exception as error:  # whatever a forged file makes its reader raise
        raise _damaged(folder, f"{WEIGHTS_FILE}: {str(error)[:200]}") from None
    return SavedModel(config, dtype, tuple(own), tensors, str(folder))


def _check_replaceable(folder: Path) -> None:
    """Check that nothing but a saved model would give way."""
    if not folder.exists():
        return
    if not os.path.isdir(folder):  # noqa: PTH112 (False where a name is too long)
        raise InvalidInputError("path", "must be a folder", f"the file {folder}", "Give another folder.")
    names = sorted(entry.name for entry in folder.iterdir() if not is_temporary(entry))
    if names and names != sorted([WEIGHTS_FILE, CONFIG_FILE]):
        received = f"{folder}, which holds {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        rule = "must be a new or empty folder, or that of a saved model"
        raise InvalidInputError("path", rule, received, "Give another folder.")


def _sum_of(fields: Mapping[str, Any]) -> str:
    return sha256_bytes(to_json("config", fields).encode())


def _sum_of_file(file: Path) -> str | None:
    try:
        return sha256_file(file)
    except OSError as error:
        received, repair = error.strerror or str(error), "Check its permissions, or restore it from a copy."
        raise InvalidInputError(str(file), "must be a readable file", received, repair) from None


def _damaged(folder: Path, received: str) -> InvalidInputError:
    return InvalidInputError(str(folder), "must hold what was saved", received, _RESTORE)
