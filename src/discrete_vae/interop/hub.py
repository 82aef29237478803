"""Models on the Hugging Face hub, with cards that say what they are and how good.

Files are those of `DiscreteVAE.save_pretrained`, not of huggingface_hub's PyTorchModelHubMixin: the mixin falls back to
a pickle where there is no safetensors file, keeps no checksums, writes in place, and needs an extra to save at all.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from discrete_vae import __version__
from discrete_vae.config import ModelConfig
from discrete_vae.errors import InvalidInputError, printable
from discrete_vae.model import DiscreteVAE
from discrete_vae.runs.hub import EXTRA, refusal
from discrete_vae.runs.io import Schema, publish_directory, read_json, sha256_file
from discrete_vae.runs.results import evaluation_store, is_of, which
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.system import in_words, unicode_path, without_links

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
    try:
        from huggingface_hub import HfApi
    except ImportError:
        received, repair = "no module huggingface_hub", f"Install it: {EXTRA}."
        raise InvalidInputError("huggingface_hub", "must be installed", received, repair) from None
    with tempfile.TemporaryDirectory(prefix="discrete-vae-") as parent:
        folder = save_for_hub(source, unicode_path("path", parent) / "model", name=name, license=license)
        api = HfApi(token=token)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            commit = api.upload_folder(
                repo_id=name, folder_path=folder, commit_message=message or "Upload a discrete-vae model"
            )
        except (OSError, ValueError) as error:  # what the hub raises derives from these
            rule = "must be a repository that you may write to"
            repair = "Check the name, the network and the login: hf auth login."
            raise InvalidInputError("name", rule, refusal(name, error), repair) from None
    return str(commit.commit_url)


CARD_FILE = "README.md"
EVALUATED = "evaluation_sha256"
"""Key of ``release.json``: SHA-256 of the evaluation from before the weights were rounded."""

_TEMPLATES = Environment(
    loader=PackageLoader("discrete_vae.interop", ""), trim_blocks=True, lstrip_blocks=True
)
_TEMPLATES.filters |= {"line": lambda text: printable(str(text)), "tojson_plain": json.dumps}


class _Release(Schema):
    precision: str
    num_examples: int
    difference: float
    difference_std_error: float


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
        repair = f"Evaluate it: dvae evaluate {run.path}."
        raise InvalidInputError(str(run.evaluation_path), rule, which(evaluation, saved.step), repair)
    seconds = max((each.get("seconds", 0.0) for each in run.metrics().read()), default=0.0)
    release = read_json(run.release_path, _Release) if run.release_path.exists() else {}
    return _card(
        name,
        license,
        config.model,
        run=config,
        step=saved.step,
        environment={"device": {}, "packages": {}, **environment},
        data=environment.get("data", {}),
        duration=in_words(seconds),
        evaluation=evaluation,
        rounding=release if release.get("precision") == "bfloat16" else None,
        rounded_after=evaluation is not None and sha256_file(run.evaluation_path) == release.get(EVALUATED),
        in_folder=in_folder,
    )


def _card(name: str, license: str, config: ModelConfig, **values: Any) -> str:
    rows = _results(values.get("evaluation") or {})
    prior = config.prior.model_dump()
    sizes = [
        f"{key} {value}" for key, value in prior.items() if key != "kind" and not isinstance(value, list)
    ]
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
        sizes=", ".join(sizes),
        config_json=json.dumps(config.model_dump(mode="json"), indent=2),
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
        metric = {"type": kind, "name": f"{title}, nats", "value": value}
        metric |= {} if error is None else {"args": {"std_error": error}}
        unknown = error is None or math.isnan(error)
        row = {"title": title.format(**part), "value": value}
        row["error_words"] = "unknown" if unknown else "0 (exact)" if error == 0 else f"{error:.3f}"
        row["metric"] = metric if kind in ("log_likelihood", "log_likelihood_limit", "elbo") else None
        rows.append(row)
    return rows
