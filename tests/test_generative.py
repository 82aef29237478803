"""What decode and reconstruct read off p(x | zeta, h), for every likelihood."""

import pytest
import torch

from discrete_vae.config import LikelihoodConfig, members
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing import check_mean
from tests.models import LAYERS, small_model

ZETA = torch.tensor([[0.9, 0.0, 0.4, 0.7], [0.0, 0.3, 0.0, 1.0]])
H = torch.linspace(-1, 1, 8).reshape(2, 2, 2)
VALUES = {"bernoulli": 2, "categorical": 4, "negative-binomial": 400}  # the support, or all of it that counts


def build(config):
    model = small_model(groups=2, hidden=(6,), hierarchy=LAYERS, likelihood=config)
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.normal_()
    return model.eval()


# that of tables, which is no choice, is tested in likelihoods/test_table.py
KINDS = {kind.model_fields["kind"].default: kind for kind in members(LikelihoodConfig) if kind.is_choice}
SIZES = {"categorical": {"num_categories": 4}}
CONFIGS = {name: kind(**SIZES.get(name, {})) for name, kind in KINDS.items()}


@pytest.fixture(params=CONFIGS)
def model(request):
    return build(CONFIGS[request.param])


def parameters_of(model):
    return model.decoder(model.hierarchy.decoder_input(ZETA, H))


def test_the_mode_is_the_most_probable_value(model):
    mode = model.decode(ZETA, H, statistic="mode")
    kind = next(name for name, config in CONFIGS.items() if type(model.likelihood).__name__ in config.target)
    parameters = parameters_of(model)
    if kind in VALUES:  # by trying each value of each feature
        tried = torch.arange(VALUES[kind]).float()[:, None, None].expand(-1, 2, 5)
        expanded = parameters.expand(len(tried), *parameters.shape)
        best = model.likelihood.feature_log_prob(expanded, tried).argmax(0).float()
        assert torch.equal(mode, best)
    else:
        torch.testing.assert_close(mode, model.likelihood.distribution(parameters).mode)
    model.likelihood.check(mode, exact=True)


def test_a_sample_is_drawn_from_the_likelihood(model):
    many = 2000
    zeta, h = (part.repeat(many, *([1] * (part.dim() - 1))) for part in (ZETA, H))
    drawn = model.decode(zeta, h, statistic="sample", seed=0).reshape(many, 10)
    assert torch.equal(drawn, model.decode(zeta, h, statistic="sample", seed=0).reshape(many, 10))
    model.likelihood.check(drawn.reshape(-1, 5), exact=True)
    mean = model.likelihood.mean(parameters_of(model)).reshape(10)
    check_mean(drawn.reshape(100, -1, 10).mean(1), mean.detach())


def test_reconstruct_gives_the_same_statistics_of_its_draw(model):
    x = model.decode(ZETA, H, statistic="sample", seed=1)
    drawn = model.encode(x, seed=3)
    for statistic in ("mean", "mode"):
        expected = model.decode(drawn.zeta, drawn.h, statistic=statistic)
        assert torch.equal(model.reconstruct(x, statistic=statistic, seed=3), expected)
    assert torch.equal(model.reconstruct(x, seed=3), model.decode(drawn.zeta, drawn.h))
    first, again, other = (model.reconstruct(x, statistic="sample", seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    model.likelihood.check(first, exact=True)


def test_the_mean_of_codes_is_what_it_was_and_no_code():
    model = build(CONFIGS["categorical"])
    mean = model.decode(ZETA, H)
    weights = torch.softmax(model.likelihood.unfold(parameters_of(model)), 1)
    torch.testing.assert_close(mean, (weights * torch.arange(4.0)[:, None]).sum(1))
    with pytest.raises(InvalidInputError, match="whole"):
        model.likelihood.check(mean, exact=True)


def test_a_mode_does_not_hide_what_is_not_finite():
    model = build(CONFIGS["bernoulli"])
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.fill_(3e38)
    for statistic in ("mode", "sample"):
        with pytest.raises(InvalidInputError, match="the decoder's output"):
            model.decode(torch.ones(1, 4), torch.ones(1, 2, 2), statistic=statistic)
