"""Models to pass on: small copies of runs, and the Hugging Face hub, with cards that say what they are and how good."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from jinja2 import Environment, PackageLoader
from torch import Tensor

from discrete_vae import __version__
from discrete_vae.checks import check_positive_int
from discrete_vae.config import ModelConfig
from discrete_vae.data.splits import DataSplits, describe_data, subset_indices, training_subset
from discrete_vae.errors import InvalidInputError, not_one_of, printable
from discrete_vae.evaluation.evaluate import standard_error, weighted_mean
from discrete_vae.inference.evaluate_run import log_partition_of_run
from discrete_vae.inference.rows import Report
from discrete_vae.inference.score import elbo_rows
from discrete_vae.model import DiscreteVAE
from discrete_vae.records import digits_of
from discrete_vae.runs.checkpoints import MODEL_PREFIX, RELEASED_FROM, ROUNDED, CheckpointRecord
from discrete_vae.runs.io import (
    Schema,
    publish_directory,
    read_json,
    read_regular,
    sha256_file,
    write_bytes,
    write_json,
    write_text,
)
from discrete_vae.runs.load import CHAINS_PREFIX, EXTRA, LoadedRun, load_run, refusal
from discrete_vae.runs.results import evaluation_store, is_of, which
from discrete_vae.runs.run_directory import CONFIG_SUM, RunDirectory, check_derived_folder, derived_run
from discrete_vae.sparse import select
from discrete_vae.system import in_words, optional_library, unicode_path, without_links

Source = DiscreteVAE | RunDirectory | str | Path


def save_for_hub(source: Source, path: str | Path, *, name: str, license: str) -> Path:
    """Write a folder as `push_to_hub` uploads it: weights, config, model card and, of a run, ``evaluation.json``.

    `DiscreteVAE.from_pretrained` reads the folder.

    Args:
        source: A run, whose best checkpoint it is, or a model, of which no results are known.
        path: The folder, new or empty; ``~`` is the home directory.
        name: The model's name, by which it is loaded: OWNER/NAME.
        license: Of the weights, as the hub names licenses: "apache-2.0", "mit", "cc-by-4.0".

    Raises:
        InvalidInputError: If the folder holds anything, the source cannot be read or saved, or the run's
            ``evaluation.json`` is of another checkpoint.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saved = save_for_hub(model, f"{folder}/model", name="ada/tiny", license="apache-2.0")
        ...     sorted(file.name for file in saved.iterdir())
        ['README.md', 'config.json', 'model.safetensors']
    """
    check_words(name=name, license=license)
    folder = without_links("path", RunDirectory.check_new(path, argument="path"))
    if isinstance(source, DiscreteVAE):
        model, card, results = source, card_of_model(source, name=name, license=license), None
    else:
        run = source if isinstance(source, RunDirectory) else RunDirectory.open(source)
        model, card = DiscreteVAE.from_pretrained(run), card_of_run(run, name=name, license=license)
        results = run.evaluation_path if run.evaluation_path.exists() else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with publish_directory(folder, replace=folder.exists()) as temporary:
        model.save_pretrained(temporary)
        (temporary / CARD_FILE).write_text(card, encoding="utf-8")
        if results is not None:
            shutil.copyfile(results, temporary / results.name)
    return folder


def check_words(**given: object) -> None:
    """Check the arguments that a card shows."""
    for argument, value in given.items():
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            repair = 'For example name="ada/digits", license="apache-2.0".'
            raise InvalidInputError(argument, "must be a word", repr(value)[:80], repair)


def push_to_hub(
    source: Source,
    name: str,
    *,
    license: str,
    private: bool = False,
    message: str | None = None,
    token: str | None = None,
) -> str:
    """Upload a model with its card to the Hugging Face hub; the repository is made if it is not there.

    Takes `pip install 'discrete-vae[hub]'` and a login, ``hf auth login``, or the hub's token.
    `DiscreteVAE.from_pretrained(name)` loads it. The arguments are those of `save_for_hub`, whether a new repository is
    private, and the message of the commit. Returns the address of the commit.

    Raises:
        InvalidInputError: As `save_for_hub`; if huggingface_hub is not installed, or the hub refuses.
    """
    hub = optional_library("huggingface_hub", "huggingface_hub", f"Install it: {EXTRA}.")
    with tempfile.TemporaryDirectory(prefix="discrete-vae-") as parent:
        folder = save_for_hub(source, unicode_path("path", parent) / "model", name=name, license=license)
        api = hub.HfApi(token=token)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            commit = api.upload_folder(
                repo_id=name,
                folder_path=folder,
                commit_message=message or "Upload a discrete-vae model",
                delete_patterns=["evaluation.json"],  # of other weights, unless it is uploaded too
            )
        except Exception as error:  # the hub's own, or its HTTP client's
            rule = "must be a repository that you may write to"
            repair = "Check the name, the network and the login: hf auth login."
            raise InvalidInputError("name", rule, refusal(name, error), repair) from None
    return str(commit.commit_url)


CARD_FILE = "README.md"
# keys of release.json: of the evaluation from before the weights were rounded; the steps of a refit before it
EVALUATED, REFIT = "evaluation_sha256", "refit_steps"

_TEMPLATES = Environment(
    loader=PackageLoader("discrete_vae.interop", ""), trim_blocks=True, lstrip_blocks=True
)
_TEMPLATES.filters |= {"line": lambda text: printable(str(text)), "tojson_plain": json.dumps}
_TEMPLATES.filters |= {"word": shlex.quote, "literal": partial(json.dumps, ensure_ascii=False)}


class _Release(Schema):
    precision: str
    num_examples: int
    difference: float
    difference_std_error: float
    refit_steps: int = 0


class _RefitSettings(Schema):
    num_steps: int


class _Refit(Schema):
    config: _RefitSettings


def card_of_model(model: DiscreteVAE, *, name: str, license: str) -> str:
    """The card of a model alone, built by `from_config`, of which no results are known."""
    if model.config is None:
        repair = "Build it by DiscreteVAE.from_config."
        raise InvalidInputError("model.config", "must be known", "None", repair)
    number = sum(parameter.numel() for parameter in model.parameters())
    return _card(name, license, model.config, own=model._own, num_parameters=number)


def card_of_run(run: RunDirectory, *, name: str, license: str, in_folder: bool = False) -> str:
    """The card of the best checkpoint of a run, with the results of its ``evaluation.json``.

    ``in_folder`` says that it lies in the run's own folder, from where the model is loaded, and not in the hub.
    """
    config, environment = run.read_experiment(), run.read_environment()
    saved, evaluation = run.checkpoints().load("best"), evaluation_store(run).most_complete()
    if evaluation is not None and not is_of(evaluation, saved.step, saved.record.sums):
        rule = f"must be of the best checkpoint, step {saved.step}, which is uploaded"
        repair = f"Evaluate it: dvae evaluate {run.quoted}."
        raise InvalidInputError(str(run.evaluation_path), rule, which(evaluation, saved.step), repair)
    seconds = max((each.get("seconds", 0.0) for each in run.metrics().read()), default=0.0)
    release = _read_release(run)
    return _card(
        name,
        license,
        config.model,
        run=config,
        step=saved.step,
        is_best="validation_elbo" in (saved.record.best or {}),
        environment={"device": {}, "packages": {}, **environment},
        data=environment.get("data", {}),
        duration=in_words(seconds),
        evaluation=evaluation,
        refit_steps=refit_steps(run),
        rounding=release if release.get("precision") == "bfloat16" else None,
        rounded_after=evaluation is not None and sha256_file(run.evaluation_path) == release.get(EVALUATED),
        in_folder=in_folder,
    )


def _read_release(run: RunDirectory) -> dict[str, Any]:
    return read_json(run.release_path, _Release) if run.release_path.exists() else {}


def refit_steps(run: RunDirectory) -> int:
    """Steps by which `dvae refit` fitted a run's posterior anew, before it was released if it is; 0 of other runs."""
    if run.refit_path.exists():
        return int(read_json(run.refit_path, _Refit)["config"]["num_steps"])
    return int(_read_release(run).get(REFIT, 0))


def _card(name: str, license: str, config: ModelConfig, **values: Any) -> str:
    rows, prior = _results(values.get("evaluation") or {}), config.prior.model_dump()
    sizes = {key: value for key, value in prior.items() if key != "kind" and isinstance(value, int | str)}
    head: dict[str, Any] = {  # as JSON, which is YAML
        "license": license,
        "library_name": "discrete-vae",
        "tags": ["discrete-vae", "variational-autoencoder", "boltzmann-machine", "discrete-latent-variables"],
    }
    if rows:
        data = str(values["data"].get("name", "data"))
        result = {
            "task": {"type": "unconditional-generation", "name": "density estimation"},
            "dataset": {"type": data, "name": data},
            "metrics": [row["metric"] for row in rows if row["metric"] is not None],
        }
        head["model-index"] = [{"name": name.rpartition("/")[2], "results": [result]}]
    text = _TEMPLATES.get_template("card.md.j2").render(
        head=head,
        name=printable(name),
        license=license,
        config=config,
        prior=prior,
        sizes=", ".join(f"{key} {value}" for key, value in sizes.items()),
        rows=rows,
        version=__version__,
        **values,
    )
    return printable(f"{text}\n", keep="\n")


def _results(evaluation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Estimates, nats per example: title, value, error in words and, of the model's own, the hub's metric."""
    wanted = {
        "log_likelihood": "test log-likelihood",
        "log_likelihood_limit": "test log-likelihood, limit of sharp smoothing",
        "elbo": "test ELBO",
        "independent_features": "independent features, the baseline",
        "log_partition": "log Z of the prior ({method})",
    }
    rows = []
    for kind, title in wanted.items():
        part = evaluation.get(kind)
        if part is None:
            continue
        part = part.get("best", part)
        names = ("elbo", "elbo_std_error") if kind == "elbo" else ("value", "std_error")
        value, error = (part[name] for name in names)
        words = "unknown"
        if error is not None and not math.isnan(error):
            words = f"{error:.{digits_of(error, 3)}f}"
        if kind == "log_partition" and error == 0:
            words = "0 (exact)"
        metric = None
        if kind in ("log_likelihood", "log_likelihood_limit", "elbo"):
            metric = {"type": kind, "name": f"{title}, nats", "value": value}
            metric |= {} if error is None else {"args": {"std_error": error}}
        rows.append({"title": title.format(**part), "value": value, "error_words": words, "metric": metric})
    return rows


# A trained run made small enough to pass on: a run of its own without what only training needs.


Precision = Literal["bfloat16", "float32"]

MAX_LOSS = 0.1  # of ELBO by a release, nats per example


@dataclass(frozen=True)
class Release:
    """A released checkpoint, and the ELBO of validation examples before and after its weights were rounded.

    ELBOs are means, nats, with the same noise; ``difference`` is after - before, with its standard error over examples.
    """

    step: int
    precision: Precision
    before: float
    after: float
    difference: float
    difference_std_error: float
    num_examples: int
    num_samples: int

    def __str__(self) -> str:
        return (
            f"ELBO of {self.num_examples} validation examples: {self.before:.3f} nats before, {self.after:.3f} after, "
            f"a difference of {self.difference:+.4f} ± {self.difference_std_error:.4f}"
        )


def release_run(
    run: RunDirectory,
    loaded: LoadedRun,
    dataset: DataSplits,
    out: str | Path,
    *,
    license: str,
    precision: Precision = "bfloat16",
    num_examples: int = 1000,
    num_samples: int = 10,
    seed: int = 0,
    report: Report | None = None,
) -> Release:
    """Write a run that holds what using a model takes and nothing else: weights, chains, what is known of it, a card.

    Every verb for a trained run takes the folder, and `load_run` gives float32 weights. It has one checkpoint, without
    the optimizer, so that training cannot go on with it; of the log of training a hundred lines; what pictures need of
    the data; and ``evaluation.json``, which is that of the run, before its weights were rounded.

    In bfloat16, the matrices of the networks are rounded to the nearest; the prior, biases, batch norms and buffers
    keep every bit, so log Z is what it was.

    Nothing is published unchecked: the folder is loaded as its users will load it, and the ELBO of validation examples
    is compared with that of the run, on the same noise.

    The folder is new or empty and outside the run, and the card names the model after it; or this very release has
    filled it, in which case nothing is computed. Licenses are named as the hub does: "apache-2.0", "mit", "cc-by-4.0".
    ``report`` is called with the number of examples whose ELBO is done; each comes twice.

    Raises:
        InvalidInputError: If the folder breaks its rule or cannot be written; if the run is a released one, or keeps no
            evaluation of the checkpoint; if the ELBO fell by more than 0.1 nats, or is not known well enough to say
            that it did not. Nothing is left then.
    """
    settings = {"license": license, "num_examples": num_examples, "num_samples": num_samples, "seed": seed}
    folder, made = check_release(run, loaded, out, precision=precision, **settings)
    if made is not None:
        return made
    record, tensors = _checkpoint(run, loaded, precision)
    environment = run.read_environment()
    environment["data"] = describe_data(dataset) | environment.get("data", {})
    log = thinned([line for line in run.metrics().read() if line["step"] <= loaded.step])
    with derived_run(folder, run, record, tensors, environment=environment, log=log) as new:
        write_bytes(new.evaluation_path, read_regular(_evaluation(run, loaded)))
        subset = training_subset(dataset, loaded.config.training)
        found = _compared(run, loaded, new, precision, subset, num_examples, num_samples, seed, report)
        if 2 * found.difference_std_error - found.difference > MAX_LOSS:
            rule = f"must keep the ELBO to {MAX_LOSS} nats, within two standard errors"
            received = f"{found.difference:+.3f} ± {found.difference_std_error:.3f} nats"
            repair = "Use float32: --precision float32; or check more examples: --num-examples."
            raise InvalidInputError(f"precision {precision}", rule, received, repair)
        refit = {REFIT: steps} if (steps := refit_steps(run)) else {}
        write_json(
            new.release_path, asdict(found) | refit | _asked(new.evaluation_path, loaded, precision, settings)
        )
        write_text(new.path / CARD_FILE, card_of_run(new, name=folder.name, license=license, in_folder=True))
    return found


def check_release(
    run: RunDirectory, loaded: LoadedRun, out: str | Path, *, license: str, precision: str, **settings: Any
) -> tuple[Path, Release | None]:
    """Check the arguments of `release_run`, which touches nothing; returns the folder, and what it holds already."""
    if precision not in get_args(Precision):
        raise not_one_of("precision", get_args(Precision), precision, "Leave it out for bfloat16.")
    check_words(license=license)
    for name in ("num_examples", "num_samples"):
        check_positive_int(name, settings[name])
    if run.release_path.exists():  # whose results may be those of the weights before they were rounded
        repair = "Release the run that it was made of, or copy the folder."
        raise InvalidInputError(str(run.path), "must not be released already", "a released run", repair)
    evaluation = _evaluation(run, loaded)

    def made(said: Mapping[str, Any]) -> Release:
        return Release(**{field.name: said[field.name] for field in fields(Release)})

    asked = _asked(evaluation, loaded, precision, {"license": license} | settings)
    return check_derived_folder(out, run, run.release_path.name, asked, made)


def _evaluation(run: RunDirectory, loaded: LoadedRun) -> Path:
    """The most complete evaluation of the checkpoint that is released."""
    found = evaluation_store(run).of_checkpoint(loaded.step, loaded.sums)
    if found is None:
        rule = f"or a file of evaluations must be of the checkpoint that is released, step {loaded.step}"
        repair = f"Evaluate it: dvae evaluate {run.quoted} --checkpoint {loaded.step}."
        raise InvalidInputError(str(run.evaluation_path), rule, "none", repair)
    return found[0]


def _asked(evaluation: Path, loaded: LoadedRun, precision: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The request as release.json says it; the evaluation, a copy, tells runs apart."""
    change = loaded.changed_config
    return {
        "step": loaded.step,
        "precision": precision,
        "config": settings,
        EVALUATED: sha256_file(evaluation),
        **({} if change is None else {"changed_config": asdict(change)}),
    }


def _checkpoint(
    run: RunDirectory, loaded: LoadedRun, precision: Precision
) -> tuple[CheckpointRecord, dict[str, Tensor]]:
    store = run.checkpoints()
    saved, best = store.load(loaded.step), store.best()
    matrices = [
        f"{MODEL_PREFIX}{name}"
        for name, parameter in loaded.model.named_parameters(remove_duplicate=False)
        if parameter.ndim > 1 and not name.startswith(("prior.", "likelihood.")) and not name.endswith("bias")
    ]
    parts = (MODEL_PREFIX, CHAINS_PREFIX)
    kept = {name: value for name, value in saved.tensors.items() if name.startswith(parts)}
    tensors, rounded = rounded_weights(kept, matrices if precision == "bfloat16" else [])
    sums = {CONFIG_SUM: run.config_sha256(), RELEASED_FROM: saved.record.sha256}
    is_best = best is not None and best["step"] == loaded.step
    best = best if is_best else {"step": loaded.step}
    return CheckpointRecord(loaded.step, {"step": loaded.step, **sums, **rounded}, best), tensors


def rounded_weights(
    tensors: Mapping[str, Tensor], names: Collection[str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Round the named float32 tensors to bfloat16; returns all, and what the checkpoint's plain values say of them."""
    chosen = sorted(names)
    found = dict(tensors) | {name: tensors[name].to(torch.bfloat16) for name in chosen}
    return found, {ROUNDED: chosen} if chosen else {}


def thinned(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most fifty lines of a log and as many of its validations, evenly spaced, the first and the last included."""
    kept: list[dict[str, Any]] = []
    for validated in (False, True):
        kind = [line for line in lines if ("validation_elbo" in line) is validated]
        places = np.linspace(0, len(kind) - 1, min(len(kind), 50)).round().astype(int)
        kept += [kind[place] for place in places]
    return sorted(kept, key=lambda line: line["step"])


def _compared(
    run: RunDirectory,
    loaded: LoadedRun,
    new: RunDirectory,
    precision: Precision,
    dataset: DataSplits,
    num_examples: int,
    num_samples: int,
    seed: int,
    report: Report | None,
) -> Release:
    count = min(num_examples, len(dataset.valid))
    chosen = subset_indices(len(dataset.valid), count)
    c, weights = dataset.conditions.get("valid"), dataset.weights.get("valid")
    score = partial(
        elbo_rows,
        x=select(dataset.valid, chosen),
        log_partition=log_partition_of_run(run, loaded, seed=seed).value,
        condition=None if c is None else c[chosen],
        num_samples=num_samples,
        seed=seed,
    )
    released = load_run(new, loaded.step, device=loaded.model.prior.bias.device).model
    before = torch.from_numpy(score(loaded.model, report=report).value)
    later = report and (lambda done: report(count + done))
    after = torch.from_numpy(score(released, report=later).value)
    change, counted = after - before, None if weights is None else torch.from_numpy(weights[chosen])
    error = 0.0
    if change.any():  # which one example alone cannot judge
        error = float(standard_error(change, counted)) if count > 1 else math.inf
    old, new_mean, gain = (float(weighted_mean(each, counted)) for each in (before, after, change))
    return Release(loaded.step, precision, old, new_mean, gain, error, count, num_samples)
