"""Wrong arguments of public functions that once crashed or were taken; the campaign of calls found them."""

import pytest
import torch

import discrete_vae as dv
from discrete_vae.config import CategoricalLikelihoodConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.objectives.elbo import Elbo

RBM = dv.RBM(3, 2)
NAN = torch.tensor([[0.0, torch.nan, 1.0]])
MASK = torch.tensor([[True, False, True]])
ELBO = Elbo(torch.zeros(2), torch.ones(2), torch.ones(2), 1.0, True)
LAYERS = dv.NoSharing(4, 2, 3, (5,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: dv.load_run("runs/none", device="gpu!"),
            "device must be auto, cpu, cuda or cuda:N; received 'gpu!'",
        ),
        (lambda: dv.DiscreteVAE.from_pretrained("runs/none", device=None), "device must be auto"),
        (lambda: dv.DiscreteVAE.from_pretrained(3), "path must be a path; received 3"),
        (lambda: dv.DiscreteVAE.from_pretrained("x" * 5000), "path must be"),
        (lambda: dv.load_run(["runs"]), "run_dir must be a path"),
        (lambda: dv.load_run("x" * 5000), "run_dir must be an existing folder"),
        (
            lambda: dv.train(None, None, "runs/none"),
            "config must be of type ExperimentConfig; received a NoneType",
        ),
        (
            lambda: dv.train(dv.load_experiment("digits"), 3, "runs/none"),
            "dataset must be of type DataSplits",
        ),
        (lambda: dv.own_experiment(None), "path must be a path"),
        (lambda: dv.own_experiment("mine.npy", size="digit"), "size must be one of smoke, short, cpu, paper"),
        (lambda: dv.estimate_log_partition(3), "energy must"),
        (lambda: dv.estimate_log_partition(RBM, max_enumerated=-1), "max_enumerated must be"),
        (lambda: dv.estimate_log_partition(RBM, max_sweeps=1.5), "max_sweeps must be a positive integer"),
        (lambda: dv.estimate_log_partition(RBM, std_error=0), "std_error must be"),
        (lambda: dv.estimate_log_partition(RBM, seed="3"), "seed must be"),
        (lambda: dv.estimate_log_partition(RBM, chains=torch.full((2, 5), 2.0)), "chains must hold only"),
        (
            lambda: dv.BernoulliLikelihood((3,)).check(NAN, MASK.to("meta")),
            "observed must be a dense tensor on cpu",
        ),
        (lambda: dv.GaussianLikelihood((3,)).check(NAN, MASK.to_sparse()), "observed must be a dense tensor"),
        (lambda: ELBO.weighted_loss(discrete=float("nan")), "discrete must be a finite number"),
        (lambda: ELBO.weighted_loss(continuous="1"), "continuous must be a finite number"),
        (lambda: LAYERS.sample(torch.zeros(2, 3)), r"zeta must have shape \(\.\.\., 4\)"),
        (
            lambda: dv.LatentGroup(logits=NAN, zeta=NAN, bits=NAN, units=torch.arange(3, device="meta")),
            "units must be",
        ),
    ],
)
def test_it_is_refused_by_name(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize(
    "likelihood",
    [
        dv.BernoulliLikelihood((3,)),
        instantiate(CategoricalLikelihoodConfig(num_categories=2), event_shape=(3,)),
        dv.NegativeBinomialLikelihood((3,)),
    ],
)
def test_no_bit_code_or_count_is_drawn_from_nan(likelihood):
    parameters = torch.zeros(2, *likelihood.parameter_shape)
    parameters[0, 1] = torch.nan
    with pytest.raises(InvalidInputError, match="parameters must hold no NaN"):
        likelihood.sample(parameters)
    if isinstance(likelihood, dv.NegativeBinomialLikelihood):
        assert bool(likelihood.mode(parameters).isnan().any())
    else:
        with pytest.raises(InvalidInputError, match="parameters must hold no NaN"):
            likelihood.mode(parameters)


def test_the_mask_of_rows_is_refused_where_it_is_no_tensor():
    from discrete_vae.config import ModelConfig, RBMConfig

    model = dv.DiscreteVAE.from_config(
        ModelConfig(num_features=3, prior=RBMConfig(num_left=2, num_right=2), missing=True)
    )
    for wrong in (MASK.tolist(), 1.0, MASK.to_sparse()):
        with pytest.raises(InvalidInputError, match="observed must be"):
            model.elbo(torch.zeros(1, 3), observed=wrong)


def test_layers_take_latents_of_any_precision():
    for dtype in (torch.float16, torch.float64):
        assert LAYERS.eval().sample(torch.zeros(2, 4, dtype=dtype)).dtype == torch.float32
