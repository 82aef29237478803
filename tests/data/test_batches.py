from collections import Counter
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
import torch

from discrete_vae.config import AugmentationConfig
from discrete_vae.data.batches import TrainingBatches, binarize, epoch_order, move_images, systematic_resample
from discrete_vae.data.splits import DatasetDescription, DataSplits
from discrete_vae.posterior import UNKNOWN
from discrete_vae.rng import keyed_generator
from tests.refusals import refused_argument


def dataset(train: torch.Tensor, *, dynamic: bool) -> DataSplits:
    about = DatasetDescription(source="", version="", split="", values="", sha256=None)
    return DataSplits("made", train, train[:1], train[:1], (train.shape[1],), dynamic, about)


def test_an_epoch_sees_each_example_at_most_once_and_leaves_others_out_than_the_next():
    left_out, batches = set(), TrainingBatches(dataset(torch.zeros(11, 1), dynamic=False), 5, seed=0)
    for epoch in range(200):  # 11 (10/11)^200 = 6e-8, that one is never left out
        seen = torch.cat([batches.indices(2 * epoch + part) for part in (0, 1)])
        assert seen.unique().numel() == 10
        left_out |= set(range(11)) - set(seen.tolist())
    assert left_out == set(range(11))


def test_epochs_and_seeds_have_orders_of_their_own():
    first = epoch_order(100, 0, 0)
    assert np.array_equal(first, epoch_order(100, 0, 0))
    for seed, epoch in ((0, 1), (1, 0)):
        assert not np.array_equal(first, epoch_order(100, seed, epoch))


@pytest.mark.parametrize("dynamic", [True, False])
def test_any_step_can_be_had_without_those_before_it(dynamic):
    train = torch.rand(23, 6, generator=keyed_generator(1))
    data = dataset(train if dynamic else train.round(), dynamic=dynamic)
    unbroken = TrainingBatches(data, 4, seed=7)
    batches = [unbroken.batch(step) for step in range(17)]
    for step in (16, 3, 0, 11):
        assert torch.equal(TrainingBatches(data, 4, seed=7).batch(step), batches[step])
        assert torch.equal(unbroken.batch(step), batches[step])
        assert unbroken.indices(step).tolist() == epoch_order(23, 7, step // 5)[step % 5 * 4 :][:4].tolist()
        assert dynamic or torch.equal(batches[step], data.train[unbroken.indices(step)])
    assert unbroken.steps_per_epoch == 5
    assert [unbroken.epoch(step) for step in (0, 4, 5, 16)] == [0, 0, 1, 3]


def test_probabilities_are_binarized_afresh_in_each_step_with_noise_that_the_model_does_not_see():
    data = dataset(torch.full((4, 500), 0.5), dynamic=True)
    batches = TrainingBatches(data, 4, seed=3)
    first, second = batches.batch(8), batches.batch(9)
    assert first.dtype == torch.float32
    assert set(first.unique().tolist()) == {0.0, 1.0}
    assert not torch.equal(first, second)
    assert bool((data.train == 0.5).all())
    # Were the stream keyed by (seed, step) alone, these bits would be the model's first draws.
    model_noise = torch.rand(4, 500, generator=keyed_generator(3, 8))
    agreement = (first == (model_noise < 0.5)).float().mean().item()
    assert abs(agreement - 0.5) < 5 * (0.25 / 2000) ** 0.5  # shared noise would give 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bits_follow_their_probabilities(dtype):
    p = torch.tensor([0.0, 0.0078125, 0.5, 0.90625, 1.0], dtype=dtype)  # exact in each dtype
    bits = binarize(p.expand(40000, 5), generator=keyed_generator(2))
    assert bits.dtype == dtype
    spread = (p * (1 - p) / 40000).double().sqrt()
    assert bool(((bits.double().mean(0) - p.double()).abs() <= 5.2 * spread).all())
    wrong = binarize((p * 0.95).expand(40000, 5), generator=keyed_generator(2)).double().mean(0)
    assert bool(((wrong - p.double()).abs() > 5.2 * spread)[2:].all())  # the bound has the power to tell


def images(count: int, *, dynamic: bool) -> DataSplits:
    train = torch.rand(count, 2 * 5 * 4, generator=keyed_generator(3))
    return replace(dataset(train if dynamic else train.round(), dynamic=dynamic), event_shape=(2, 5, 4))


def shifted(image: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """An image (channel, row, column), pixel by pixel."""
    found = torch.zeros_like(image)
    for row, column in np.ndindex(*image.shape[1:]):
        if 0 <= row - down < image.shape[1] and 0 <= column - right < image.shape[2]:
            found[:, row, column] = image[:, row - down, column - right]
    return found


def test_images_are_shifted_and_mirrored_as_one_does_it_pixel_by_pixel():
    x = torch.rand(200, 2, 5, 4, generator=keyed_generator(1))
    uniforms = np.random.default_rng(2).random((3, 200))
    found = move_images(x, uniforms, AugmentationConfig(max_shift=2, horizontal_flip=True))
    for each, image, (of_row, of_column, of_mirror) in zip(found, x, uniforms.T, strict=True):
        wanted = image.flip(2) if of_mirror < 0.5 else image
        assert torch.equal(each, shifted(wanted, int(of_row * 5) - 2, int(of_column * 5) - 2))


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_batch_of_moved_images_can_be_had_alone_and_in_parts(dynamic):
    arguments = {"seed": 7, "augmentation": AugmentationConfig(max_shift=1), "num_epochs": 4}
    data = images(30, dynamic=dynamic)
    batches = TrainingBatches(data, 10, **arguments)
    found = [batches.batch(step) for step in range(12)]
    for step in (11, 2):
        assert torch.equal(TrainingBatches(data, 10, **arguments).batch(step), found[step])
        part = TrainingBatches(data, 10, share=slice(3, 5), **arguments).batch(step)
        assert torch.equal(part, found[step][3:5])


def test_every_move_is_as_likely_until_images_stay_where_they_are():
    data = images(30, dynamic=False)
    augmentation = AugmentationConfig(max_shift=1, horizontal_flip=True, end=2 / 3)
    batches = TrainingBatches(data, 10, seed=7, augmentation=augmentation, num_epochs=400)
    moves, move_of = product((-1, 0, 1), (-1, 0, 1), (False, True)), {}
    for (number, image), move in product(enumerate(data.train.reshape(-1, 2, 5, 4)), moves):
        moved = shifted(image.flip(2) if move[2] else image, *move[:2])
        move_of[number, moved.numpy().tobytes()] = move
    assert len(move_of) == 30 * 18
    counts = Counter()
    for step in range(1200):
        for row, number in zip(batches.batch(step), batches.indices(step).tolist(), strict=True):
            move = move_of[number, row.numpy().tobytes()]
            if step < 800:
                counts[move] += 1
            else:
                assert move == (0, 0, False)
    # bounds of 4.5 deviations, which one of 18 counts passes in one try of 8,000
    assert len(counts) == 18
    assert max(abs(count - 8000 / 18) for count in counts.values()) < 4.5 * (8000 / 18 * 17 / 18) ** 0.5


def test_what_makes_no_sense_is_refused_by_name():
    table, pictures = dataset(torch.zeros(5, 8), dynamic=False), images(9, dynamic=False)

    def batch(data, size, step, moves):
        augmentation = AugmentationConfig(**moves)
        return TrainingBatches(data, size, seed=0, augmentation=augmentation).batch(step)

    for argument, *given in (
        *(("batch_size", table, size, 0, {}) for size in (6, 0, -1, 2.0)),
        *(("step", table, 2, step, {}) for step in (-1, 1.5, True)),
        ("training.augmentation.horizontal_flip", table, 2, 0, {"horizontal_flip": True}),
        ("training.augmentation.max_shift", table, 2, 0, {"max_shift": 1}),
        ("training.augmentation.max_shift", pictures, 2, 0, {"max_shift": 4}),  # out of sight
    ):
        assert refused_argument(batch, *given) == argument
    assert batch(pictures, 2, 0, {"max_shift": 3}).shape == (2, 40)


WEIGHTS = np.array([3.0, 1.0, 0.0, 6.0, 2.0])


def starts(weights):
    """Midpoints of all intervals of starts between which a resample by whole weights stays the same."""
    return (np.arange(int(weights.sum())) + 0.5) / weights.sum()


def test_expected_counts_of_an_epoch_are_in_proportion_to_the_weights():
    wanted = 5 * WEIGHTS / WEIGHTS.sum()
    counts = [np.bincount(systematic_resample(WEIGHTS, start), minlength=5) for start in starts(WEIGHTS)]
    assert np.mean(counts, 0) == pytest.approx(wanted)
    assert (np.abs(np.array(counts) - wanted) < 1).all()


def test_the_step_is_unbiased_for_the_weighted_objective():
    """Over all starts and orders each place of a batch holds example i with the probability w_i / sum w."""
    weights = np.array([1.0, 2.0, 0.5, 0.5]) * 2
    places = Counter()
    for mixed in permutations(range(4)):
        mixed = np.array(mixed)
        for start in starts(weights):
            drawn = mixed[systematic_resample(weights[mixed], start)]
            for order in permutations(range(4)):
                places.update((place, int(each)) for place, each in enumerate(drawn[list(order)][:2]))
    total = sum(places.values()) / 2
    for place in range(2):
        shares = [places[place, example] / total for example in range(4)]
        assert shares == pytest.approx(weights / weights.sum())


def test_epochs_follow_the_weights_and_equal_weights_change_nothing():
    counts = sum(np.bincount(epoch_order(5, 0, epoch, WEIGHTS), minlength=5) for epoch in range(400)) / 400
    # counts have a variance of at most 1/4 in an epoch: 5 standard errors, one false alarm in a million
    assert np.abs(counts - 5 * WEIGHTS / WEIGHTS.sum()).max() < 5 * 0.5 / 20
    assert counts[2] == 0
    assert np.array_equal(epoch_order(7, 3, 2, np.full(7, 0.1)), epoch_order(7, 3, 2))
    spread = [tuple(np.bincount(epoch_order(4, 0, epoch, np.array([1, 1, 1, 3.0])))) for epoch in range(30)]
    assert len(set(spread)) > 1


def test_weighted_batches_can_be_had_at_any_step_and_leave_weightless_examples_out():
    train = torch.arange(20.0).reshape(10, 2)
    weights = np.array([0.0, 1, 2, 3, 0, 1, 1, 1, 5, 1])
    data = replace(dataset(train, dynamic=False), weights={"train": weights}, labels={"train": np.arange(10)})
    assert data.labels["train"].tolist() == [1, 2, 3, 5, 6, 7, 8, 9]
    batches = TrainingBatches(data, 4, seed=7)
    found = [batches.batch(step) for step in range(7)]
    for step in (6, 0, 3):
        assert torch.equal(TrainingBatches(data, 4, seed=7).batch(step), found[step])
        order = epoch_order(8, 7, step // 2, data.weights["train"])
        assert batches.indices(step).tolist() == order[step % 2 * 4 :][:4].tolist()
    left = dataset(train[weights > 0], dynamic=False)
    assert torch.equal(data.train, left.train)
    equal = replace(left, weights={"train": np.full(8, 0.3)})
    assert torch.equal(TrainingBatches(equal, 4, seed=7).batch(5), TrainingBatches(left, 4, seed=7).batch(5))


def test_a_label_counts_as_often_as_batches_hold_it():
    """Labels are 1 / examples_per_label of what batches draw, as where rows of weight 9 are nine rows."""
    train, labels = torch.zeros(10, 2), np.array([0, 1, *(8 * [UNKNOWN])])
    weights = np.array([9.0, 9.0, *np.ones(8)])
    copies = np.repeat(np.arange(10), weights.astype(int))
    weighted = replace(dataset(train, dynamic=False), weights={"train": weights})
    repeated = dataset(train[copies], dynamic=False)
    for data, known in ((weighted, labels), (repeated, labels[copies])):
        found = TrainingBatches(data, 5, seed=0, labels=known).examples_per_label
        assert found == pytest.approx(26 / 18)


def test_weights_that_are_all_0_are_refused_by_name():
    data = dataset(torch.zeros(10, 2), dynamic=False)
    assert refused_argument(replace, data, weights={"train": [0] * 10}) == "weights of the part 'train'"
