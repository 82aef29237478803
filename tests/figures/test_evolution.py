"""The table of samples along chains, and its picture."""

import pytest
import torch

from discrete_vae import RBM, BlockGibbs, DiscreteVAE
from discrete_vae.config import GaussianHierarchyConfig, ModelConfig, RBMConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.run import draw_evolution, evolution_table
from discrete_vae.figures.style import save_figure


def fresh(model, num_chains=3):
    return BlockGibbs(model.prior, num_chains, seed=5)


def test_rows_are_the_states_of_the_chains(model):
    chains, twin = fresh(model), fresh(model)
    table = evolution_table(model, chains, num_rows=4, num_sweeps=7, num_draws=2)
    assert torch.equal(table.z, torch.stack([twin.step(7) for _ in range(4)]))
    assert chains.sweep == 28
    assert table.num_sweeps == 7
    assert len(table.z.flatten(0, 1).unique(dim=0)) > 1


def test_draws_share_their_state_and_differ(model):
    table = evolution_table(model, fresh(model), num_rows=2, num_draws=3)
    assert table.means.shape == (2, 3, 3, 12)
    assert bool(((table.means >= 0) & (table.means <= 1)).all())
    assert not torch.equal(table.means[:, :, 0], table.means[:, :, 1])


def test_draws_decode_the_state_of_their_row_and_chain(model):
    # A beta this large leaves zeta at z, so that a mean says whose z it came from.
    model.smoothing.max_beta = 1e6
    with torch.no_grad():
        model.smoothing.beta.fill_(1e5)
    table = evolution_table(model, fresh(model), num_rows=3, num_draws=2)
    for draw in range(2):
        torch.testing.assert_close(table.means[:, :, draw], model.decode(table.z), rtol=0, atol=1e-3)


def test_seeds_reproduce(model):
    first, again, other = (
        evolution_table(model, fresh(model), num_rows=2, seed=seed).means for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_first_rows_do_not_depend_on_their_number(model):
    short, long = (evolution_table(model, fresh(model), num_rows=rows).means for rows in (1, 3))
    assert torch.equal(short, long[:1])


def test_five_chains_are_shown_unless_told(model):
    assert evolution_table(model, fresh(model, 9), num_rows=1, num_sweeps=1).z.shape[1] == 5
    assert evolution_table(model, fresh(model, 2), num_rows=1, num_sweeps=1).z.shape[1] == 2
    assert evolution_table(model, fresh(model, 9), num_rows=1, num_sweeps=1, num_chains=8).z.shape[1] == 8


def test_the_model_keeps_its_mode_and_statistics(model):
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evolution_table(model, fresh(model), num_rows=1)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("image_shape", [(3, 4), None])
@pytest.mark.parametrize("num_draws", [1, 5])
def test_picture(image_shape, num_draws, model, tmp_path, read_picture):
    table = evolution_table(model, fresh(model, 5), num_rows=6, num_draws=num_draws)
    save_figure(draw_evolution(table, image_shape), tmp_path / "evolution.png")
    picture = read_picture(tmp_path / "evolution.png")
    assert min(picture.shape[:2]) > 100
    assert len(picture[..., 0].unique()) > 20
    assert picture.std() > 0.1


@pytest.mark.parametrize("argument", ["num_rows", "num_sweeps", "num_draws", "num_chains"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True])
def test_numbers_must_be_positive_integers(argument, value, model):
    chains = fresh(model)
    with pytest.raises(InvalidInputError, match=f"{argument} must be a positive integer"):
        evolution_table(model, chains, **{argument: value})
    assert chains.sweep == 0


def test_other_mistakes_are_refused(model):
    with pytest.raises(InvalidInputError, match="num_chains must be at most 3"):
        evolution_table(model, fresh(model), num_chains=4)
    with pytest.raises(InvalidInputError, match="chains must sample the model's own prior"):
        evolution_table(model, BlockGibbs(RBM(4, 3), 3))
    with pytest.raises(InvalidInputError, match="image_shape must be"):
        draw_evolution(evolution_table(model, fresh(model), num_rows=1), (4, 4))


def test_draws_of_a_group_share_zeta_and_differ_in_their_continuous_layers(tmp_path):
    hierarchy = GaussianHierarchyConfig(num_layers=2, num_units=3, posterior_hidden=(4,), prior_hidden=(4,))
    config = ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2), hierarchy=hierarchy)
    torch.manual_seed(0)
    model = DiscreteVAE.from_config(config)
    with torch.no_grad():
        model.decoder.network.output.weight[:, 4:].zero_()  # the decoder reads zeta alone
    table = evolution_table(model, BlockGibbs(model.prior, 2, seed=0), num_rows=2, num_sweeps=1)
    assert torch.equal(table.means, table.means[:, :, :1].expand_as(table.means))
    assert table.varies == "their continuous layers"
    with torch.no_grad():
        model.decoder.network.output.weight[:, 4:].fill_(1.0)
    table = evolution_table(model, BlockGibbs(model.prior, 2, seed=0), num_rows=2, num_sweeps=1)
    assert not torch.equal(table.means[:, :, 0], table.means[:, :, 1])
    save_figure(draw_evolution(table, (2, 3)), tmp_path / "figure.png")
