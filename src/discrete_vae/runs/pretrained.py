"""A model alone, without a run: a folder with its weights in safetensors and its config in JSON, with their sums."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file
from torch import Tensor

from discrete_vae import __version__
from discrete_vae.config import ModelConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes
from discrete_vae.runs.checkpoints import MODEL_PREFIX, save_tensors, without_prefix
from discrete_vae.runs.hub import fetch_snapshot, is_hub_name
from discrete_vae.runs.io import (
    RESTORE,
    Schema,
    publish_directory,
    read_json,
    remove_temporaries,
    sha256_fields,
    sha256_file,
    unreadable,
    write_json,
)
from discrete_vae.runs.run_directory import RunDirectory, check_config, held_names, named_entries
from discrete_vae.system import unicode_path, without_links

WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
FORMAT = 1


@dataclass(frozen=True, eq=False, repr=False)
class SavedModel(ShowsShapes):
    """A model as it lies in a folder."""

    config: ModelConfig
    dtype: torch.dtype  # in which its networks compute
    own: tuple[str, ...]  # names of the parts that are modules of the user's own, which no config describes
    tensors: dict[str, Tensor]
    source: str  # its place, for messages

    def check_parts(self, **given: object) -> None:
        """Check that a module is given for each part that is the user's own, and none for another part."""
        for name, part in given.items():
            if part is None and name in self.own:
                rule = "must be given: the model was saved with one of your own"
                raise InvalidInputError(name, rule, "None", f"Add {name}=module.")
            if part is not None and name not in self.own:
                rule = "must be left out: the model was saved with the config's"
                raise InvalidInputError(name, rule, f"a {type(part).__name__}", f"Leave out {name}.")


class _Config(Schema):
    model: object
    dtype: Literal["float32", "float64", "bfloat16", "float16"]
    own: list[Literal["encoder", "decoder"]]


def write_model(
    path: str | Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    own: tuple[str, ...],
) -> Path:
    """Write a model's folder, whole or not at all, and return it; one that holds a saved model gives way."""
    folder = without_links("path", unicode_path("path", path)).resolve()
    _check_replaceable(folder)
    for name, value in tensors.items():
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype:
            repair = "Bring the model to one dtype, by model.float() say."
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
        sums = {"weights": sha256_file(temporary / WEIGHTS_FILE), "config": sha256_fields("config", fields)}
        write_json(temporary / CONFIG_FILE, {**fields, "sha256": sums})
    return folder


def _check_replaceable(folder: Path) -> None:
    """Check that nothing but a saved model would give way."""
    if not folder.exists():
        return
    if not os.path.isdir(folder):  # noqa: PTH112 (False where a name is too long)
        raise InvalidInputError("path", "must be a folder", f"the file {folder}", "Give another folder.")
    names = held_names(folder)
    if names and names != {WEIGHTS_FILE, CONFIG_FILE}:
        rule = "must be a new or empty folder, or that of a saved model"
        received = f"{folder}, which holds {named_entries(names)}"
        raise InvalidInputError("path", rule, received, "Give another folder.")


def read_model(path: str | Path | RunDirectory, *, revision: str | None = None) -> SavedModel:
    """Read what `write_model` wrote, here or on the hub, or the best checkpoint of a run; nothing is unpickled."""
    if isinstance(path, RunDirectory):
        return _of_run(path)
    folder = unicode_path("path", path)
    if isinstance(path, str) and is_hub_name(path) and not folder.is_dir():
        return _of_folder(fetch_snapshot(path, [WEIGHTS_FILE, CONFIG_FILE], revision=revision))
    if revision is not None:
        repair = "Leave it out, or name a model of the hub as OWNER/NAME."
        raise InvalidInputError("revision", "must go with a model of the hub", str(folder), repair)
    if not os.path.isdir(folder):  # noqa: PTH112 (False where a name is too long)
        with suppress(OSError):  # a process that was killed while it replaced the model may leave it aside
            remove_temporaries(folder.parent, of_others=True)
    if not os.path.isdir(folder):  # noqa: PTH112
        repair = "Check the path of the model."
        raise InvalidInputError("path", "must be an existing folder", str(folder), repair)
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
    weights = without_prefix(saved.tensors, MODEL_PREFIX)
    return SavedModel(config, torch.get_default_dtype(), (), weights, str(saved.folder))


def _of_folder(folder: Path) -> SavedModel:
    weights, file = folder / WEIGHTS_FILE, folder / CONFIG_FILE
    fields = read_json(file, repair=RESTORE)
    sums = fields.pop("sha256", None)
    if not isinstance(sums, dict) or sums.get("config") != sha256_fields("config", fields):
        raise _damaged(file, "another SHA-256")
    if fields.get("format") != FORMAT:
        received = f"format {fields.get('format')!r}, written by discrete-vae {fields.get('discrete_vae')}"
        repair = f"Update discrete-vae, which is {__version__} here."
        raise InvalidInputError(str(folder), f"must be a model of format {FORMAT}", received[:80], repair)
    try:
        saved = _Config.model_validate(fields)
    except ValueError:
        raise _damaged(file, "values of another form") from None
    try:
        if sha256_file(weights) != sums.get("weights"):
            raise _damaged(weights, "another SHA-256")
    except OSError as error:
        raise unreadable(weights, error, RESTORE) from None
    config = ModelConfig.from_json(json.dumps(saved.model), source=str(file))
    try:
        tensors = load_file(weights)
    except Exception as error:  # whatever a forged file makes its reader raise
        raise _damaged(weights, str(error)[:200]) from None
    return SavedModel(config, getattr(torch, saved.dtype), tuple(saved.own), tensors, str(folder))


def _damaged(file: Path, received: str) -> InvalidInputError:
    return InvalidInputError(str(file), "must hold what was saved", received, RESTORE)
