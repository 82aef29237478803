"""Models that go into a folder of their own and come out of it, or out of a run."""

from __future__ import annotations

from abc import abstractmethod
from copy import deepcopy
from pathlib import Path
from typing import Self

import torch
from torch import nn

from discrete_vae.config import ModelConfig, SharpLimitConfig
from discrete_vae.devices import check_device
from discrete_vae.errors import InvalidInputError, naming
from discrete_vae.importance_sampling import ImportanceSampledModel
from discrete_vae.nets.finite_weights import check_weights
from discrete_vae.nets.saved_weights import load_weights
from discrete_vae.nets.working_weight import WorkingLayer
from discrete_vae.noise import DrawsFrom
from discrete_vae.runs.pretrained import read_model, write_model
from discrete_vae.runs.run_directory import RunDirectory

_PARTS = (
    "prior",
    "smoothing",
    "encoder",
    "posterior",
    "decoder",
    "likelihood",
)  # a hierarchy's config names a function


class PretrainedModel(ImportanceSampledModel):
    """A model that a config describes, but for an encoder and a decoder of the user's own.

    Attributes:
        config: What `from_config` built the model from; None for a model put together by hand.
    """

    config: ModelConfig | None = None
    _own: tuple[str, ...] = ()  # parts that the caller of from_config gave

    @classmethod
    @abstractmethod
    def from_config(
        cls, config: ModelConfig, *, encoder: nn.Module | None = None, decoder: nn.Module | None = None
    ) -> Self:
        """Build a model with new parameters."""

    def discretized(self) -> Self:
        """The model in the limit of infinitely sharp smoothing: z itself goes into whatever reads zeta.

        The networks read bits where they were trained on smoothed values. It is a model of its own, which samples,
        encodes, is evaluated, saved and loaded like any other; it has no use in training, since no gradient passes
        through zeta. Its weights and buffers are those of this model, not copies: a change of either is a change of
        both. All else of this model stays as it is.

        Source: Rolfe 2017, footnote in section spike-and-exponential (a trained model may be used with beta ->
        infinity).

        Returns:
            The limit, in the mode of this model.

        Raises:
            InvalidInputError: If the smoothing has no parameter that takes zeta to z.

        Examples:
            >>> from discrete_vae import DiscreteVAE
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> draw = model.discretized().sample(5, seed=1)
            >>> torch.equal(draw.zeta, draw.z), model.smoothing
            (True, SpikeExponential(beta=3, trainable=True))
        """
        limit = self.smoothing.sharp_limit()
        if limit is None:
            repair = "Those with a beta or a b have one, see docs/model.md."
            rule = "must be a transformation with a limit in which zeta is z"
            raise InvalidInputError("model.smoothing", rule, f"a {type(self.smoothing).__name__}", repair)
        limit.train(self.smoothing.training)
        shared: list[object] = [*self.parameters(), *self.buffers()]
        shared += [part.working for part in self.modules() if isinstance(part, WorkingLayer)]
        found = deepcopy(self, {id(part): part for part in shared} | {id(self.smoothing): limit})
        if self.config is not None:
            found.config = self.config.model_copy(update={"smoothing": SharpLimitConfig()})
        return found

    def save_pretrained(self, path: str | Path) -> Path:
        """Write the model into a folder of its own: ``model.safetensors`` and ``config.json``.

        Whole or not at all; a saved model that is there gives way. An encoder or decoder of your own is saved by its
        weights alone.

        Args:
            path: The folder, new or empty or that of a saved model; ``~`` is the home directory.

        Returns:
            The folder.

        Raises:
            InvalidInputError: If the model was not built by `from_config`, a part has been exchanged since, a weight
                is not finite, or the folder holds anything else.
            OSError: If the disk is full or refuses.

        Examples:
            >>> import tempfile
            >>> from discrete_vae import DiscreteVAE
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     loaded = DiscreteVAE.from_pretrained(model.save_pretrained(f"{folder}/model"))
            >>> loaded.config == model.config
            True
        """
        if self.config is None:
            repair = "Build it by DiscreteVAE.from_config, or keep its state_dict."
            raise InvalidInputError("model.config", "must be known to save the model", "None", repair)
        self._check_parts(self.config)
        check_weights("model", self)
        return write_model(path, self.config, self.state_dict(), dtype=self.dtype, own=self._own)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path | RunDirectory,
        *,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        device: torch.device | str = "cpu",
        revision: str | None = None,
    ) -> Self:
        """Load what `save_pretrained` wrote, or the best checkpoint of a run; nothing is unpickled.

        Args:
            path: The folder of a saved model, or that of a run, whose data need not be there any more. A name
                OWNER/NAME, where there is no folder OWNER here, is that of a model of the Hugging Face hub, see
                `discrete_vae.interop.hub`.
            encoder: The module of your own that the model was saved with; its weights are overwritten.
            decoder: The same.
            device: Where the model is wanted.
            revision: Branch, tag or commit of a model of the hub; None is its main branch.

        Returns:
            The model in evaluation mode.

        Raises:
            InvalidInputError: If the device is not there, the folder is missing or damaged, a weight has another shape
                or type or is not finite, or encoder or decoder is missing or not wanted; if a model of the hub cannot
                be fetched, or huggingface_hub is not installed.
        """
        device = check_device(device)
        saved = read_model(path, revision=revision)
        saved.check_parts(encoder=encoder, decoder=decoder)
        # new weights are drawn, then overwritten
        with DrawsFrom(torch.Generator("cpu")), torch.device("cpu"), naming(saved.source):
            model = cls.from_config(saved.config, encoder=encoder, decoder=decoder).to(saved.dtype)
            load_weights(model, saved.tensors)
        return model.to(device).eval()

    def _check_parts(self, config: ModelConfig) -> None:
        """Check that the parts are still those of the config, from which they will be built again."""
        for name in _PARTS:
            wanted, part = getattr(config, name).target.rpartition(":")[2], type(getattr(self, name)).__name__
            if name not in self._own and part != wanted:
                repair = (
                    "Give an encoder or a decoder of your own to from_config, or keep the model's state_dict."
                )
                raise InvalidInputError(
                    f"model.{name}", f"must be the config's {wanted}", f"a {part}", repair
                )
