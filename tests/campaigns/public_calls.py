"""The public callables with arguments that are right, as a start for wrong ones."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import discrete_vae as dv
from tests.campaigns.tiny_runs import write_data
from tests.models import LAYERS, small_model
from tests.training.tiny import QuietProgress

# What an argument of a name is wherever it stands; a call names what it is beyond that.
_OPTIONAL = {"observed", "numbers", "batch_size", "units", "negative_phase"}
_REAL = {"logits", "loc", "scale", "parameters"}
_FIXED = {"inverse_temperature", "log_partition", "beta", "max_beta", "b", "prior_loc", "max_ratio"}
_FIXED |= {"min_scale", "num_left", "num_right", "num_features"}


@dataclass(frozen=True)
class Call:
    """A public callable.

    Attributes:
        name: Its name, the first word of which is what it is of.
        function: Takes the arguments by name; what it returns is compared.
        arguments: Right ones.
        optional: Those that may be None.
        free: Tensors that may have another shape, which the result then follows.
        real: Tensors that may hold any finite number.
        gaps: Tensors in which NaN is a missing value: x, unless it is real.
        sizes: Numbers that the shape of the result, or its values, depend on.
    """

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    optional: set[str]
    free: set[str]
    real: set[str]
    gaps: set[str]
    sizes: set[str]


def _call(name, function, /, **arguments):
    """A call; arguments that begin with an underscore name, in one text, the optional, free, real ones or gaps."""
    kinds = ("optional", "free", "real", "gaps")
    listed = {kind: set(arguments.pop(f"_{kind}", "").split()) for kind in kinds}
    real = listed["real"] | _REAL
    sizes = {key for key, value in arguments.items() if isinstance(value, int | float | list)} - _FIXED
    gaps = listed["gaps"] | ({"x"} - real)
    return Call(name, function, arguments, listed["optional"] | _OPTIONAL, listed["free"], real, gaps, sizes)


def _bits(*shape):
    return torch.bernoulli(torch.full(shape, 0.4), generator=torch.Generator().manual_seed(0))


def _normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def public_calls(folder):
    """All of them, on small machines and models.

    Args:
        folder: Empty; for what is on a disk.
    """
    torch.manual_seed(0)
    edges = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 4], [5, 6]]
    rbm = dv.RBM(4, 3)
    machines = [rbm, dv.GraphBoltzmann(7, edges), dv.FactorialBernoulli(7)]
    with torch.no_grad():
        for machine in machines:
            for parameter in machine.parameters():
                parameter.normal_()
    return [
        _call("RBM()", lambda **k: dv.RBM(**k).energy(_bits(2, 5)), num_left=2, num_right=3),
        _call("FactorialBernoulli()", lambda num_units: dv.FactorialBernoulli(num_units).bias, num_units=5),
        _call("GraphBoltzmann()", lambda **k: dv.GraphBoltzmann(**k).bias, num_units=7, edges=edges),
        *(call for machine in machines for call in _of_machine(type(machine).__name__, machine)),
        *_of_sides(rbm),
        *_of_likelihoods(),
        *_of_layers(),
        *_of_smoothing(),
        *_of_model(),
        *_of_inference(),
        *_of_gradients(),
        *_of_posterior(rbm),
        *_on_disk(folder),
    ]


def _of_machine(name, machine):
    z, start = _bits(10, 7), _bits(20, 7)
    sampler = {"num_sweeps": 2, "energy": machine, "num_chains": 6, "seed": 3}
    clamped = {"start": _bits(6, 7), "clamped": torch.arange(7) < 2, "inverse_temperature": 0.5}
    quick = {"energy": machine, "num_chains": 20, "seed": 0}
    bounded = quick | {"std_error": 0.5, "max_sweeps": 200}
    annealed, begun = {"num_temperatures": 10}, {"start": start, "_optional": "start"}
    chains = {"chains": start, "max_enumerated": 0, "_optional": "chains", "_free": "chains"}

    def step(kind):
        return lambda num_sweeps, **k: kind(**k).step(num_sweeps)

    def free_energy(z, **k):
        return machine.free_energy(z, **k)

    def moments(energy, num_chains, every):
        running = dv.RunningMoments(energy, num_chains, every=every)
        for number in range(8):
            running.add(_bits(6, 7) if number % 2 else 1 - _bits(6, 7))
        return running.value()

    ladder = {"inverse_temperatures": [0.0, 0.5, 1.0], "_optional": "inverse_temperatures"}
    of_block = {"z": z, "block": 0, "_free": "z"}
    calls = {
        "energy": (machine.energy, {"z": z, "_free": "z"}),
        "block_logits": (machine.block_logits, of_block),
        "free_energy": (free_energy, of_block | {"inverse_temperature": 0.5, "_optional": "block"}),
        "BlockGibbs": (step(dv.BlockGibbs), sampler),
        "BlockGibbs with a start": (step(dv.BlockGibbs), sampler | clamped | {"_optional": "start clamped"}),
        "ParallelTempering": (step(dv.ParallelTempering), sampler | ladder),
        "TrajectoryTempering": (step(dv.TrajectoryTempering), sampler | {"sweeps_per_swap": 1}),
        "RunningMoments": (moments, {"energy": machine, "num_chains": 6, "every": 1}),
        "exact_log_partition": (dv.exact_log_partition, {"energy": machine}),
        "estimate_log_partition": (dv.estimate_log_partition, bounded | annealed | chains),
        "annealed_log_partition": (dv.annealed_log_partition, quick | annealed | begun),
        "bennett_log_partition": (dv.bennett_log_partition, bounded | begun),
    }
    methods = ("energy", "block_logits", "free_energy")
    return [
        _call(f"{name}.{each}" if each in methods else f"{each} of {name}", function, **arguments)
        for each, (function, arguments) in calls.items()
    ]


def _of_sides(rbm):
    fields = {"couplings": [[0.5, -0.1], [0.2, 0.0]], "fields": [0.1, 0.2, 0.3, 0.4]}
    graph = {"num_units": 3, "edges": [[0, 1], [1, 2]], "couplings": [0.5, -0.1], "fields": [0.1, 0.2, 0.3]}
    calls = [
        _call("RBM.free_energy of the left side", rbm.free_energy, left=_bits(10, 4), _free="left"),
        _call("RBM.from_ising", lambda **k: dv.RBM.from_ising(**k).bias, **fields),
        _call("GraphBoltzmann.from_ising", lambda **k: dv.GraphBoltzmann.from_ising(**k).bias, **graph),
    ]
    for side, given in (("hidden", {"visible": _bits(10, 4)}), ("visible", {"hidden": _bits(10, 3)})):
        (other,) = given
        for method in (f"{side}_given_{other}", f"sample_{side}"):
            calls.append(_call(f"RBM.{method}", getattr(rbm, method), **given, _free=other))
    return calls


def _of_likelihoods():
    calls = []
    likelihoods = {
        dv.BernoulliLikelihood: {},
        dv.CategoricalLikelihood: {"num_categories": 3},
        dv.GaussianLikelihood: {"min_scale": 0.01},
        dv.NegativeBinomialLikelihood: {},
    }
    for kind, settings in likelihoods.items():
        name, law = kind.__name__, kind((12,), **settings)
        x, observed = _bits(10, 12), torch.arange(120).reshape(10, 12) % 7 > 0
        law.initialize_(x)
        parameters = _normal(10, *law.parameter_shape, seed=1)
        wide = "x" if kind in (dv.GaussianLikelihood, dv.NegativeBinomialLikelihood) else ""

        def make(kind=kind, **k):
            made = kind(**k)
            return made.mean(torch.zeros(2, *made.parameter_shape))

        def initialize(x, observed, kind=kind, settings=settings):
            return kind((12,), **settings).initialize_(x, observed)

        of_law = {"parameters": parameters, "_free": "parameters"}
        given = {"x": x, "observed": observed}
        calls += [
            _call(f"{name}()", make, event_shape=[3, 4], **settings),
            _call(f"{name}.log_prob", law.log_prob, **of_law, **given, _real="x"),
            _call(f"{name}.check", law.check, **given, _gaps="x", _real=wide),
            _call(f"{name}.initialize_", initialize, **given, _gaps="x", _real=wide),
            *(_call(f"{name}.{each}", getattr(law, each), **of_law) for each in ("mean", "mode", "sample")),
        ]
    return calls


def _of_layers():
    sizes = {"num_latents": 7, "num_layers": 2, "num_units": 3, "hidden": [5], "log_std_bound": 5.0}
    calls = []
    for kind, more in ((dv.CompleteSharing, {}), (dv.GroupSharing, {"num_groups": 2}), (dv.NoSharing, {})):

        def draw(zeta, kind=kind, **k):
            return kind(**k).eval().sample(zeta)

        given = {"zeta": 0.5 * _bits(10, 7), **sizes, **more, "_free": "zeta", "_real": "zeta"}
        calls.append(_call(kind.__name__, draw, **given, _optional="log_std_bound"))
    return calls


def _of_smoothing():
    logits, rho, zeta, z = _normal(10, 7, seed=1), _bits(10, 7) * 0.6, _bits(10, 7) * 0.5, _bits(10, 7)
    kinds = (dv.SpikeExponential, dv.SpikeSlab, dv.MixtureOfRamps)
    kinds += (dv.OverlappingExponential, dv.OverlappingPower)
    laws = [(kind(), {"logits": logits}, ("bits",)) for kind in kinds]
    of_x = {"logits": logits, "loc": logits / 4, "scale": (logits / 4).exp()}
    laws.append((dv.SpikeGaussian(prior_loc=0.5), of_x, ()))
    calls = []
    for law, given, more in laws:
        name, free = type(law).__name__, " ".join(["rho zeta", *given])
        for method in ("icdf", "cdf", "log_prob", "rsample", *more):
            first = {"icdf": {"rho": rho}, "rsample": {}}.get(method, {"zeta": zeta})
            function, listed = _in_order(getattr(law, method)), {"_free": free, "_real": "zeta"}
            calls.append(_call(f"{name}.{method}", function, **first, **given, **listed))
        calls.append(_call(f"{name}.sample_zeta", law.sample_zeta, z=z, _free="z"))
    for kind in (dv.SpikeExponential, dv.OverlappingExponential):
        calls.append(
            _call(f"{kind.__name__}()", lambda kind=kind, **k: kind(**k).beta, beta=3.0, max_beta=6.0)
        )
    return [
        *calls,
        _call("SpikeGaussian()", lambda **k: dv.SpikeGaussian(**k).max_ratio, prior_loc=0.3, max_ratio=2.0),
        _call("OverlappingPower()", lambda **k: dv.OverlappingPower(**k).b, b=30.0),
    ]


def _in_order(function):
    """The function with arguments by name, in the order of the call: transformations take parameters by place."""
    known = {"rho", "zeta", "logits", "loc", "scale"}
    return lambda **given: function(*given.values()) if known.issuperset(given) else function(**given)


def _small_model(**parts):
    return small_model(12, units=(4, 3), groups=2, hidden=(5,), missing=True, **parts).eval()


def _of_model():
    calls = []
    x, z = _bits(10, 12), _bits(10, 7)
    zeta, observed = z * 0.5, torch.arange(120).view(10, 12) % 7 > 0
    weights = {"discrete": 0.5, "continuous": 0.5}
    graph = {"kind": "graph", "num_units": 7, "edges": ((0, 1), (1, 2), (4, 6))}
    models = {
        "RBM": _small_model(),
        "graph": _small_model(prior=graph),
        "layers": _small_model(hierarchy=LAYERS),
    }
    for kind, model in models.items():
        name = f"DiscreteVAE({kind})"
        given = {"x": x, "log_partition": 5.0, "observed": observed, "_optional": "log_partition"}
        calls += [
            _call(f"{name}.elbo", lambda model=model, **k: model.elbo(**k).loss, **given, negative_phase=z),
            _call(f"{name}.initialize_", model.initialize_, x=x),
            _call(f"{name}.log_likelihood", model.log_likelihood, **given, num_samples=10, chunk_size=4),
            _call(f"{name}.encode", model.encode, x=x),
            _call(f"{name}.reconstruct", model.reconstruct, x=x, statistic="mode"),
            _call(f"{name}.decode", model.decode, zeta=zeta, statistic="sample", _free="zeta"),
            _call(f"{name}.sample", model.sample, n=10, z=z, zeta=zeta, _optional="z zeta n"),
            _call(f"{name}.sample at random", model.sample, n=10, num_sweeps=2, seed=1, _optional="n seed"),
            _call(f"Elbo({kind}).weighted_loss", model.elbo(x, negative_phase=z).weighted_loss, **weights),
        ]
    return calls


def _of_inference():
    """The functions that take many examples through a model with gaps and layers."""
    model, x = _small_model(hierarchy=LAYERS), _bits(10, 12)
    all_rows = {"x": x, "seed": 3, "numbers": list(range(10))}
    rows = all_rows | {"batch_size": 4}

    def by_rows(name, part=None, **more):
        def function(**given):
            found = getattr(dv, name)(model, **given, **more)
            return torch.from_numpy(found if part is None else getattr(found, part))

        return function

    weighted = {"log_partition": 5.0, "num_samples": 3}
    p_values = {"scores": [-1.0, 2.0], "reference": [0.0, 1.0, 2.0]}
    ends = {"start": x[:1], "end": x[1:2], "path": "straight", "num_steps": 4, "_gaps": "start end"}
    return [
        _call("encode_rows", by_rows("encode_rows", "zeta", draw=True), **rows),
        _call("reconstruct_rows", by_rows("reconstruct_rows"), **rows, statistic="mean", num_draws=2),
        _call("denoise_rows", by_rows("denoise_rows"), **rows, noise=0.1, num_draws=2, _optional="noise"),
        _call("score_rows", by_rows("score_rows", "value"), **all_rows, **weighted),
        _call("elbo_rows", by_rows("elbo_rows", "value"), **rows, **weighted),
        _call("interpolate", by_rows("interpolate", "mean"), **ends),
        _call("p_values", lambda **k: torch.from_numpy(dv.p_values(**k)), **p_values),
    ]


def _of_gradients():
    """The estimators of the gradient and their baselines."""
    model = _small_model()
    x, z, observed = _bits(10, 12), _bits(10, 7), torch.arange(120).view(10, 12) % 7 > 0

    def loss(kind, settings, **given):
        return model.estimate_gradient(kind.of(model, **settings), **given).loss

    def learn(kind, **settings):
        sizes = {"group_of_unit": model.posterior.group_of_unit, "num_features": model.posterior.num_features}
        return loss(dv.Reinforce, {"baseline": kind(**settings, **sizes)}, x=x, negative_phase=z)

    given = {"x": x, "negative_phase": z, "log_partition": 5.0, "observed": observed}
    weights = {"discrete": 0.5, "continuous": 0.5, "_optional": "log_partition"}
    calls = [
        _call(kind.__name__, lambda kind=kind, **k: loss(kind, {}, **k), **given, **weights)
        for kind in (dv.Reparameterized, dv.Reinforce, dv.LeaveOneOut, dv.DisARM, dv.NaiveKL)
    ]
    settings = {
        dv.NoBaseline: {},
        dv.RunningMean: {"decay": 0.9},
        dv.LearnedBaseline: {"hidden": [5], "decay": 0.9},
    }
    for kind, right in settings.items():
        calls.append(_call(kind.__name__, lambda kind=kind, **k: learn(kind, **k), **right))

    def of_samples(**k):
        return loss(dv.LeaveOneOut, k, x=x, negative_phase=z)

    return [*calls, _call("LeaveOneOut()", of_samples, num_samples=3)]


def _of_posterior(prior):
    law, x, units = dv.SpikeExponential(), _bits(10, 12), torch.arange(7)
    logits = _normal(10, 7, seed=2)
    zeta = law.icdf(torch.full((10, 7), 0.5), logits)

    def divergence(logits, bits, units, log_partition):
        group = dv.LatentGroup(logits=logits, zeta=zeta, bits=bits, units=units)
        return dv.kl_to_boltzmann(prior, [group], log_partition)

    def of_group(**k):
        bits = _bits(10, 7)
        return dv.kl_to_boltzmann(prior, [dv.LatentGroup(zeta=bits / 2, bits=bits, **k)], 3.0)

    def posterior(x, num_samples, **arguments):
        made = dv.HierarchicalPosterior(smoothing=law, **arguments)
        return made.rsample(x, num_samples=num_samples)

    def hierarchy(x, zeta, hidden, **arguments):
        made = dv.GroupSharing(hidden=[5], **arguments)
        return dv.GaussianHierarchy(12, made, hidden).rsample(x, zeta)

    groups = {"num_samples": 3, "num_features": 12, "groups": 2, "hidden": [5], "num_units": 8}
    layers = {"hidden": [5], "num_latents": 7, "num_layers": 2, "num_units": 3, "num_groups": 1}
    of_kl = {"logits": logits, "bits": (zeta != 0).float().detach(), "units": units, "log_partition": 3.0}
    return [
        _call("LatentGroup", of_group, logits=logits, units=units),
        _call("kl_to_boltzmann", divergence, **of_kl, _free="bits", _gaps="bits"),
        _call("HierarchicalPosterior", posterior, x=x, **groups, _real="x", _optional="num_samples"),
        _call("GaussianHierarchy", hierarchy, x=x, zeta=zeta, **layers, _real="x zeta", _free="zeta"),
    ]


def _on_disk(folder):
    """Experiments, data, training, runs and saved models; a run of two steps and a saved model are made first."""
    data = str(write_data(folder / "data" / "mine.npy"))
    dataset = dv.load_dataset("file", path=data)
    config = dv.own_experiment(data, size="smoke")
    changed = {"num_epochs": 2, "validate_every": 1, "num_examples": None, "num_validation_examples": None}
    config = config.model_copy(update={"training": config.training.model_copy(update=changed)})
    run, saved = folder / "run", folder / "saved"
    dv.train(config, dataset, run, progress=QuietProgress())
    dv.load_run(run).model.save_pretrained(saved)

    def train(**k):
        return dv.train(**k, run_dir=run, progress=QuietProgress()).best_elbo

    def bias(load):
        return lambda **k: load(**k).model.prior.bias

    def saved_bias(**k):
        return dv.DiscreteVAE.from_pretrained(**k).prior.bias

    split = {"valid_fraction": 0.2, "test_fraction": 0.2}
    own = {"path": data, "likelihood": "bernoulli", "size": "smoke"}
    return [
        _call("load_experiment", dv.load_experiment, name="digits", size="smoke"),
        _call("load_dataset", dv.load_dataset, name="digits", data_dir=None, _optional="data_dir"),
        _call("load_dataset of a file", partial(dv.load_dataset, "file", split_seed=1), path=data, **split),
        _call("own_experiment", dv.own_experiment, **own, _optional="likelihood"),
        _call("train", train, config=config, dataset=dataset, device="cpu"),
        _call("load_run", bias(dv.load_run), run=str(run), checkpoint="best", device="cpu"),
        _call("load_pretrained", bias(dv.load_pretrained), name="digits", device="cpu"),
        _call("DiscreteVAE.from_pretrained", saved_bias, path=str(saved), device="cpu"),
    ]
