"""Models on the Hugging Face hub, with a card that says what they are and how good."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.model_card import CARD_FILE, card_of_model, card_of_run
from discrete_vae.model import DiscreteVAE
from discrete_vae.paths import unicode_path, without_links
from discrete_vae.runs.atomic import publish_directory
from discrete_vae.runs.hub_snapshot import EXTRA
from discrete_vae.runs.run_directory import RunDirectory

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
