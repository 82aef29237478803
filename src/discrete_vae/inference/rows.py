"""Examples that a trained model is used on, in batches, each with noise of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.config import DataConfig, FileDataConfig
from discrete_vae.data.files import TableReading
from discrete_vae.data.rows import Rows, labels_of_part, read_label_file, read_rows, rows_of_part
from discrete_vae.data.splits import load_data, subset_indices, warn_of_other_data
from discrete_vae.distributed import all_reduce_shards, shard_indices, world_size
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import samples_in_memory
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import switched
from discrete_vae.rng import NoiseSource, keyed_generator, open_uniform, standard_normal
from discrete_vae.runs.load import LoadedRun
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.sparse import Examples, check_rows
from discrete_vae.system import check_memory


class RowNoise(NoiseSource):
    """Noise of a batch in which each example's depends on the seed, the key and its own number alone.

    It is drawn on the CPU, so that it is the same on every device.

    Args:
        numbers: Numbers of the batch's examples, in its order.
        seed: Integer from 0 to 2^64 - 1.
        key: Further integers: what the noise is for, the number of the draw.

    Examples:
        >>> both, second = RowNoise([4, 7], 0), RowNoise([7], 0)
        >>> drawn = open_uniform(torch.zeros(2, 3), generator=both)
        >>> torch.equal(drawn[1:], open_uniform(torch.zeros(1, 3), generator=second))
        True
    """

    def __init__(self, numbers: Sequence[int], seed: int, *key: int) -> None:
        self._generators = [keyed_generator(seed, *key, number) for number in numbers]

    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        """See `NoiseSource.take`; the first axis is the batch."""
        first, *rest = shape
        if first != len(self._generators):
            rule, repair = "must be as many as the examples of the batch", "Give one number for each."
            raise InvalidInputError("numbers", rule, f"a request for {tuple(shape)}", repair)
        host = torch.empty(0, dtype=like.dtype, device="cpu")
        rows = [draw(host, shape=rest, generator=generator) for generator in self._generators]
        return torch.stack(rows).to(like.device)


class CentralNoise(NoiseSource):
    """The median in the place of each draw: 1/2 for uniform numbers, 0 for normal ones.

    Examples:
        >>> open_uniform(torch.zeros(2), generator=CentralNoise()), standard_normal(
        ...     torch.zeros(2), shape=(2,), generator=CentralNoise()
        ... )
        (tensor([0.5000, 0.5000]), tensor([0., 0.]))
    """

    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        value = {open_uniform: 0.5, standard_normal: 0.0}[draw]
        return like.new_full(tuple(shape), value)


# Many examples through a model, batch after batch.


LARGEST_BATCH = 256  # examples

Report: TypeAlias = Callable[[int], None]
"""Called with the number of examples that are done."""


@torch.no_grad()
def in_batches(
    model: DiscreteVAE,
    x: Examples,
    compute: Callable[..., Mapping[str, Tensor]],
    *,
    conditions: Sequence[Tensor | None] = (),
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> dict[str, np.ndarray]:
    """Compute something of each example, batch after batch, with the networks' running statistics.

    Every batch is filled up with its last example, so that no digit depends on how many examples there are; with
    `RowNoise` an example's result is its own. Under torchrun the batches are divided among the processes, and every
    process has the whole result.

    Args:
        model: The model; in evaluation mode meanwhile, for all threads.
        x: (example, feature) or (example, *event), on any device.
        compute: Takes a batch on the model's device, its examples' numbers and its rows of each of the conditions;
            returns tensors by name, each (example of the batch, ...). Names, shapes and dtypes must be the same for
            every batch.
        conditions: Each c of p(x | c), (example, column), or (1, column) for all, on any device; None for a model
            without.
        numbers: Numbers of the examples, which key the noise; None means from 0.
        batch_size: Examples of a batch; None takes up to 256, as many as 512 MiB have room for.
        report: Called after each batch.

    Returns:
        (example, ...) arrays by name.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=3, prior=RBMConfig(num_left=2, num_right=2)))
        >>> in_batches(model, torch.eye(3), lambda x, numbers: {"sum": x.sum(1)}, batch_size=2)["sum"]
        array([1., 1., 1.], dtype=float32)
    """
    check_rows("x", x)
    own_numbers = check_numbers(numbers, len(x))
    if batch_size is None:
        batch_size = min(LARGEST_BATCH, samples_in_memory(model))
    size = check_positive_int("batch_size", batch_size)
    device = model.prior.bias.device
    checked = [model.check_condition(c if c is None else c.to(device), len(x)) for c in conditions]
    whole: dict[str, Tensor] = {}
    firsts = range(0, len(x), size)
    own = shard_indices(len(firsts))
    with switched(model):
        for done, batch in enumerate(own or [0], start=1):  # without a share: for the form of the results
            places = list(range(firsts[batch], min(firsts[batch] + size, len(x))))
            filled = places + places[-1:] * (size - len(places))
            given = [None if c is None else c[filled] for c in checked]
            found = compute(x[filled].to(device), [own_numbers[place] for place in filled], *given)
            if not whole:
                needed = len(x) * sum(each[0].numel() * each.element_size() for each in found.values())
                check_memory("x", needed, "Give fewer rows at a time.", what="for the results")
                shapes = {name: (len(x), *each.shape[1:]) for name, each in found.items()}
                whole = {name: found[name].new_zeros(shapes[name], device="cpu") for name in found}
            if batch in own:
                for name, values in found.items():
                    whole[name][places] = values[: len(places)].cpu()
                if report is not None:
                    report(min(done * size * world_size(), len(x)))
    return {name: all_reduce_shards(values).numpy() for name, values in whole.items()}


def check_numbers(numbers: Sequence[int] | np.ndarray | None, num_rows: int) -> list[int]:
    """The numbers of examples, one each; None means from 0."""
    given = range(num_rows) if numbers is None else numbers
    try:
        found = [operator.index(number) for number in given]
    except TypeError:
        found = None
    if found is None or len(found) != num_rows:
        received = f"{numbers!r}"[:80] if found is None else f"{len(found)} numbers"
        rule = f"must be a whole number for each of {num_rows} rows"
        raise InvalidInputError("numbers", rule, received, "Give one per row of x, or none.")
    return found


# The examples that a run's model is used on: its own test part, or a file.


_LABELS = "--labels"


def rows_of_run(
    run: RunDirectory,
    loaded: LoadedRun,
    data: str | Path | None = None,
    *,
    part: str | None = None,
    label_column: str | None = None,
    needs_labels: bool = True,
    num_examples: int | None = None,
    at_most: bool = False,
    missing: bool | None = None,
    data_dir: str | Path | None = None,
    argument: str = "--data",
    labels: str | Path | None = None,
) -> Rows:
    """Read examples as the run's training read its own.

    Args:
        run: The run.
        loaded: What `discrete_vae.load_run` made of it.
        data: A file; None takes the run's own data.
        part: "train", "valid" or "test" of the run's own data, or of a .npz file that has parts; None is test.
        label_column: The column of a table that holds labels; None is that of the run's data, if a file has it.
        needs_labels: Whether a file must have the label_column that is named.
        num_examples: A fixed random choice of so many; None takes all.
        at_most: Take fewer where there are fewer.
        missing: Allow missing values; None is what the model says.
        data_dir: Folder of the published data sets.
        argument: What messages call the file.
        labels: A file of their labels in place of those that they have, see `read_label_file`: one per row of the file,
            or per example of the part; where the run's own file was cut into parts, one per row of it will do too.

    Warns:
        UserWarning: If the run's own data are not those that it was trained on.
    """
    of_run = loaded.config.data
    given = None if labels is None else read_label_file(labels, argument=_LABELS)
    if data is None:
        if label_column is not None:
            repair = "Leave it out: the run's config names that of its own data."
            raise InvalidInputError("label_column", f"needs {argument}", repr(label_column)[:80], repair)
        try:
            dataset = load_data(loaded.config, data_dir)
        except InvalidInputError as error:
            repair = f"{error.repair} Or give examples of your own: {argument} FILE."
            raise InvalidInputError(error.argument, error.rule, error.received, repair) from None
        warn_of_other_data(run, dataset)
        rows = rows_of_part(dataset, part or "test")
        if given is not None:
            given = labels_of_part(given, dataset, of_run, part or "test", argument=_LABELS)
    else:
        rows = read_rows(
            data,
            loaded.config.model,
            part=part,
            columns=known_columns(run),
            reading=_reading(of_run, label_column, needs_labels=needs_labels),
            binarization_seed=getattr(of_run, "binarization_seed", 0),
            missing=missing,
            argument=argument,
        )
        if given is not None and len(given) != len(rows):
            rule = f"must be as many as the {len(rows)} examples of {rows.name}"
            repair = "Give one label per example, in their order."
            raise InvalidInputError(_LABELS, rule, len(given), repair)
    if given is not None:
        rows = replace(rows, labels=given)
    if num_examples is None or (at_most and num_examples > len(rows)):
        return rows
    return rows.subset(subset_indices(len(rows), num_examples, argument="num_examples"))


def _reading(of_run: DataConfig, label_column: str | None, *, needs_labels: bool) -> TableReading:
    """How a file is read: as the run's own; the columns of that which are no features it may lack."""
    own = TableReading.of(of_run) if isinstance(of_run, FileDataConfig) else TableReading()
    label = own.roles.label if label_column is None else label_column
    ignored = own.roles.ignored if own.roles.label in (None, label) else (*own.roles.ignored, own.roles.label)
    optional = frozenset([*ignored, *own.roles.besides, label]) - ({label_column} if needs_labels else set())
    return replace(own, roles=replace(own.roles, label=label, ignored=ignored, optional=optional))


def known_columns(run: RunDirectory) -> tuple[str, ...]:
    """Names of the features that a run was trained on; none where they have none, or nothing is kept of them."""
    return tuple(run.read_environment().get("data", {}).get("columns") or ())
