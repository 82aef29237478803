"""Models on the Hugging Face hub, with their cards."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from discrete_vae._version import __version__
from discrete_vae.config import ModelConfig
from discrete_vae.errors import InvalidInputError, printable
from discrete_vae.model import DiscreteVAE
from discrete_vae.runs.hub import EXTRA
from discrete_vae.runs.io import ReleaseSchema, publish_directory, read_json, sha256_file
from discrete_vae.runs.results import is_of, kept_evaluations, which
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.system import in_words, unicode_path, without_links

# The card of a model: what it is, how good it is with which error, how it is loaded.


CARD_FILE = "README.md"
EVALUATED = "evaluation_sha256"
"""The entry of ``release.json`` that names the evaluation from before the weights were rounded."""

_METRICS = ("log_likelihood", "log_likelihood_limit", "elbo")  # the model's own, which the hub may list
_CITATION = """@inproceedings{rolfe2017discrete,
  title = {Discrete Variational Autoencoders},
  author = {Rolfe, Jason Tyler},
  booktitle = {International Conference on Learning Representations},
  year = {2017}
}"""


def card_of_model(model: DiscreteVAE, *, name: str, license: str) -> str:
    """The card of a model alone, of which no results are known.

    Args:
        model: The model, built by `from_config`.
        name: OWNER/NAME.
        license: Of the weights.
    """
    if model.config is None:
        repair = "Build it by DiscreteVAE.from_config."
        raise InvalidInputError("model.config", "must be known to describe the model", "None", repair)
    number = sum(parameter.numel() for parameter in model.parameters())
    results = "It was uploaded without an evaluation.\n"
    loading = _from_hub(name, own=model._own)
    return _card(name, license, model.config, [], results, f"{number:,} parameters.", loading=loading)


def card_of_run(run: RunDirectory, *, name: str, license: str, in_folder: bool = False) -> str:
    """The card of the best checkpoint of a run, with the results of its ``evaluation.json``.

    Args:
        run: The run.
        name: OWNER/NAME.
        license: Of the weights.
        in_folder: Whether the card lies in the run's own folder, from where the model is loaded, and not in the hub.

    Raises:
        InvalidInputError: If the run cannot be read, or the evaluation is of another checkpoint.
    """
    config, environment = run.read_experiment(), run.read_environment()
    saved, evaluation = run.checkpoints().load("best"), kept_evaluations(run).fullest()
    if evaluation is not None and not is_of(evaluation, saved.step, saved.sums):
        rule = f"must be of the best checkpoint, step {saved.step}, which is uploaded"
        received, repair = (
            which(evaluation, saved.step),
            f"Evaluate it: dvae evaluate {run.path}.",
        )
        raise InvalidInputError(str(run.evaluation_path), rule, received, repair)
    data = environment.get("data", {})
    rows = [] if evaluation is None else _results(evaluation)
    about = [
        f"Trained on {data.get('name', 'data')} ({data.get('source', 'of an unknown source')}; "
        f"{data.get('split', 'parts unknown')}), `{config.name}` in size `{config.size}`, seed {config.seed}: "
        f"{config.training.num_epochs} epochs in batches of {config.training.batch_size}. These are the weights "
        f"of step {saved.step}, the best by validation."
    ]
    seconds = max((each.get("seconds", 0.0) for each in run.metrics().read()), default=0.0)
    packages = environment.get("packages", {})
    about.append(
        f"Training took {in_words(seconds)} on {environment.get('device', {}).get('type', 'an unknown device')} "
        f"with discrete-vae {environment.get('discrete_vae', __version__)} and torch {packages.get('torch', '?')}."
    )
    if data.get("sha256"):
        about.append(f"SHA-256 of the data: `{data['sha256']}`.")
    words = "It was not evaluated.\n" if evaluation is None else _table(rows, evaluation)
    if run.release_path.exists():
        words += _rounding(read_json(run.release_path, ReleaseSchema), run.evaluation_path)
    about = [printable(line) for line in about]
    loading, named = _from_folder(name) if in_folder else _from_hub(name), str(data.get("name", "data"))
    return _card(name, license, config.model, rows, words, "\n\n".join(about), loading=loading, data=named)


def _results(evaluation: Mapping[str, Any]) -> list[tuple[str, str, float, float | None]]:
    """Type, name, value and standard error of what was measured, nats per example."""
    wanted = (
        ("log_likelihood", "test log-likelihood", "value", "std_error"),
        ("log_likelihood_limit", "test log-likelihood, limit of sharp smoothing", "value", "std_error"),
        ("elbo", "test ELBO", "elbo", "elbo_std_error"),
        ("independent_features", "independent features, the baseline", "value", "std_error"),
    )
    rows = []
    for kind, name, value, error in wanted:
        part = evaluation.get(kind) or {}
        if part.get(value) is not None:
            rows.append((kind, name, float(part[value]), part.get(error)))
    log_z = (evaluation.get("log_partition") or {}).get("best") or {}
    if log_z.get("value") is not None:
        rows.append(
            (
                "log_partition",
                f"log Z of the prior ({log_z.get('method')})",
                log_z["value"],
                log_z["std_error"],
            )
        )
    return rows


def _table(rows: Iterable[tuple[str, str, float, float | None]], evaluation: Mapping[str, Any]) -> str:
    lines = ["| Nats per example | Value | Standard error |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {value:.3f} | {_error(error)} |" for _, name, value, error in rows]
    likelihood = evaluation.get("log_likelihood") or {}
    note = (
        f"{likelihood.get('num_examples')} test examples, {likelihood.get('num_samples')} importance samples each. "
        "Likelihoods and bounds are better when larger. Errors are over examples; that of log Z shifts the likelihood "
        "and the bound alike."
    )
    return "\n".join([*lines, "", note, ""])


def _rounding(release: Mapping[str, Any], evaluation: Path) -> str:
    """What rounding did to the weights, and whether they were evaluated before it."""
    if release.get("precision") != "bfloat16":
        return ""
    which, when = "as they are here", "before"
    if evaluation.exists() and sha256_file(evaluation) == release.get(EVALUATED):
        which, when = "as they were trained", "afterwards"
    return (
        f"\nThese are figures of the weights {which}. Their matrices were rounded to bfloat16 {when}, "
        f"which changed the ELBO of {release['num_examples']} validation examples by {release['difference']:+.4f} +- "
        f"{release['difference_std_error']:.4f} nats.\n"
    )


def _from_hub(name: str, *, own: tuple[str, ...] = ()) -> str:
    """How a model of the hub is loaded."""
    parts = ", ".join(f"{part}=module" for part in own)
    call = f'DiscreteVAE.from_pretrained("{name}"{f", {parts}" if parts else ""})'
    return f"""```console
$ pip install 'discrete-vae[hub]'
```

```python
from discrete_vae import DiscreteVAE

model = {call}
model.sample(10, seed=0).mean  # draws; model.encode(x), model.log_likelihood(x, ...)
```"""


def _from_folder(name: str) -> str:
    """How a model is loaded from the folder that holds its card."""
    return f"""```console
$ dvae sample {name}
```

```python
from discrete_vae import load_run

run = load_run("{name}")  # this folder; without data, training or network
run.model.sample(z=run.chains.step(100)[:10], seed=0).mean  # draws
```

Where the model comes with the library, `--pretrained {name}` stands for the folder's path, and
`load_pretrained("{name}")` for the call."""


def _error(error: float | None) -> str:
    if error is None or math.isnan(error):
        return "unknown"
    return "0 (exact)" if error == 0 else f"{error:.3f}"


def _card(
    name: str,
    license: str,
    config: ModelConfig,
    rows: list[tuple[str, str, float, float | None]],
    results: str,
    about: str,
    *,
    loading: str,
    data: str = "data",
) -> str:
    """The whole card; its head is JSON, which is YAML."""
    head: dict[str, Any] = {
        "license": license,
        "library_name": "discrete-vae",
        "tags": ["discrete-vae", "variational-autoencoder", "boltzmann-machine", "discrete-latent-variables"],
    }
    if rows:
        metrics = [
            {"type": kind, "name": f"{title}, nats", "value": value}
            | ({} if error is None else {"args": {"std_error": error}})
            for kind, title, value, error in rows
            if kind in _METRICS
        ]
        entry = {
            "task": {"type": "unconditional-generation", "name": "density estimation"},
            "dataset": {"type": data, "name": data},
            "metrics": metrics,
        }
        head["model-index"] = [{"name": name.rpartition("/")[2], "results": [entry]}]
    prior = config.prior.model_dump()
    sizes = ", ".join(
        f"{key} {value}" for key, value in prior.items() if key != "kind" and not isinstance(value, list)
    )
    shown = json.dumps(config.model_dump(mode="json"), indent=2)
    yaml = "\n".join(f"{key}: {json.dumps(value)}" for key, value in head.items())
    name = printable(name)
    text = f"""---
{yaml}
---

# {name}

A discrete variational autoencoder: binary latents with a Boltzmann machine for their prior ({prior["kind"]}, {sizes}),
smoothed by {config.smoothing.model_dump()["kind"]}, of examples of shape {tuple(config.shape)} read as
{config.likelihood.model_dump()["kind"]}.

## Results

{results}
## Load it

{loading}

Nothing is unpickled: weights are safetensors, the config is JSON, both with their SHA-256.

## Training

{about}

## Limits

Likelihoods are those of data as it was trained on, in nats with respect to these units of the data; they do not compare
with those of data that were scaled or binarized otherwise. Samples repeat what the data hold, their biases included.

## License

The weights are under {license}; the library is under Apache-2.0.

## Config

```json
{shown}
```

## Cite

```bibtex
{_CITATION}
```
"""
    return printable(text, keep="\n")


# Models on the Hugging Face hub, with a card that says what they are and how good.


Source = DiscreteVAE | RunDirectory | str | Path


def save_for_hub(source: Source, path: str | Path, *, name: str, license: str) -> Path:
    """Write a folder as `push_to_hub` uploads it: weights, config, model card and, of a run, ``evaluation.json``.

    `DiscreteVAE.from_pretrained` reads the folder.

    Args:
        source: A run, whose best checkpoint it is, or a model, of which no results are known.
        path: The folder, new or empty; ``~`` is the home directory.
        name: What the card calls the model, and how it is loaded: OWNER/NAME.
        license: Of the weights, as the hub names licenses: "apache-2.0", "mit", "cc-by-4.0".

    Returns:
        The folder.

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
    for argument, value in (("name", name), ("license", license)):
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            repair = 'For example name="ada/digits", license="apache-2.0".'
            raise InvalidInputError(argument, "must be a word", repr(value)[:80], repair)
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

    Takes `pip install 'discrete-vae[hub]'` and a login, ``hf auth login``. `DiscreteVAE.from_pretrained(name)` loads
    it.

    Args:
        source: As in `save_for_hub`.
        name: The repository, OWNER/NAME.
        license: As in `save_for_hub`.
        private: Whether a new repository is private.
        message: Of the commit; None says which library it is from.
        token: Of the hub; None takes that of the login.

    Returns:
        The address of the commit.

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
            received = f"{name} ({type(error).__name__}: {str(error).strip().splitlines()[0][:200]})"
            repair = "Check the name, the network and the login: hf auth login."
            raise InvalidInputError(
                "name", "must be a repository that you may write to", received, repair
            ) from None
    return str(commit.commit_url)
