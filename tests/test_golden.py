"""Digits that a change of layout must leave as they are, of training and use, and the public names.

`python -m tests.test_golden` writes the names of golden.json anew, and with --digits the digits too, which a commit
does that changes them on purpose.
The digits are those of one processor and one release of torch and numba. On others the losses are compared alone, as
far as rounding lets them agree.
"""

import contextlib
import hashlib
import inspect
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import discrete_vae
from discrete_vae import load_pretrained, load_run, pretrained_names, train
from discrete_vae.cli import main
from discrete_vae.cli.options import VERBS
from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.runs.run_directory import describe_environment

GOLDEN = Path(__file__).with_name("golden.json")
_HIERARCHY = {"kind": "gaussian", "num_layers": 2, "num_units": 3}
_HIERARCHY |= {"posterior_hidden": (9,), "prior_hidden": (7,)}
_BFLOAT16 = {"precision": "bfloat16"}
_TEMPERED = {"kind": "parallel-tempering", "num_chains": 20, "inverse_temperatures": (0.0, 0.5, 1.0)}


def _experiment(data, likelihood="bernoulli", training=None, **model):
    usual = {
        "likelihood": {"kind": likelihood} | ({"num_categories": 3} if likelihood == "categorical" else {}),
        "num_features": 12,
        "prior": {"kind": "rbm", "num_left": 6, "num_right": 5},
        "posterior": {"groups": 2, "hidden": (16,)},
        "decoder": {"kind": "mlp", "hidden": (10,)},
    }
    return {"data": data, "model": usual | model, "training": {"precision": "float32", **(training or {})}}


EXPERIMENTS = {
    "spike-exponential": _experiment("bits", hierarchy=_HIERARCHY),
    "spike-exponential, bfloat16": _experiment("bits", training=_BFLOAT16, hierarchy=_HIERARCHY),
    "plain steps": _experiment("bits", training={"record": False}, hierarchy=_HIERARCHY),
    "spike-slab, factorial, linear": _experiment(
        "bits",
        smoothing={"kind": "spike-slab"},
        prior={"kind": "factorial", "num_units": 10},
        decoder={"kind": "mlp"},
        training={"optimizer": {"decoder_weight_decay": 0.01}, "averaging": {"decay": 0.9}},
    ),
    "spike-gaussian, complete sharing, negative binomial": _experiment(
        "counts",
        "negative-binomial",
        smoothing={"kind": "spike-gaussian"},
        hierarchy=_HIERARCHY | {"sharing": {"kind": "complete"}},
    ),
    "ramps, graph, categorical, parallel tempering": _experiment(
        "codes",
        "categorical",
        smoothing={"kind": "ramps"},
        prior={"kind": "graph", "num_units": 8, "edges": "chimera"},
        training={"sampler": _TEMPERED},
    ),
    "overlapping-exponential, gaussian, gaps": _experiment(
        "reals",
        "gaussian",
        smoothing={"kind": "overlapping-exponential", "trainable": True},
        hierarchy=_HIERARCHY | {"num_layers": 4, "sharing": {"kind": "groups", "num_groups": 2}},
        missing=True,
    ),
    "overlapping-power, importance samples, trajectory tempering": _experiment(
        "bits",
        smoothing={"kind": "overlapping-power"},
        training={
            "num_importance_samples": 4,
            "importance_start": 0.4,
            "sampler": {"kind": "trajectory-tempering", "num_chains": 40},
        },
    ),
    "importance samples of the layers, bfloat16": _experiment(
        "bits",
        training=_BFLOAT16 | {"num_importance_samples": 3, "importance_start": 0.4},
        hierarchy=_HIERARCHY,
    ),
    "images, convolutions": _experiment(
        "bits",
        num_features=None,
        event_shape=(1, 4, 3),
        encoder={"kind": "convolutional", "num_features": 8, "widths": (4,)},
        decoder={"kind": "convolutional", "widths": (4,)},
        hierarchy=_HIERARCHY,
    ),
    "REINFORCE, learned baseline": _experiment(
        "bits", training={"gradient": {"kind": "reinforce", "baseline": {"kind": "learned", "hidden": (8,)}}}
    ),
    "leave one out": _experiment("bits", training={"gradient": {"kind": "leave-one-out"}}),
    "DisARM": _experiment("bits", training={"gradient": {"kind": "disarm"}}),
    "naive KL": _experiment("bits", training={"gradient": {"kind": "naive-kl"}}),
}


def digits_of(name, folder):
    """Digests and figures of one experiment in an empty folder: 30 steps, the command's evaluation, samples, codes."""
    described = json.loads(json.dumps(EXPERIMENTS[name]))
    file = folder / "rows.npy"
    np.save(file, _rows(described["data"], described["model"].get("event_shape")))
    described |= {"name": "golden", "seed": 3, "data": {"kind": "file", "path": str(file)}}
    described["training"] |= {"num_epochs": 3, "batch_size": 20, "log_every": 10, "validate_every": 15}
    described["training"]["num_sweeps"] = 5
    described["training"]["warm_up"] = {"epochs": 1.0, "prior_epochs": 2.0}
    described["training"].setdefault("sampler", {"kind": "block-gibbs", "num_chains": 40})
    described["evaluation"] = {"num_samples": 50, "max_tempered_sweeps": 2000, "num_annealed_chains": 20}
    config = ExperimentConfig.model_validate(described)
    data = instantiate(config.data)
    assert train(config, data, folder / "run").step == 30
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    (state,) = folder.glob("run/checkpoints/step-30/state.safetensors")
    assert main(["evaluate", str(folder / "run"), "--out", str(folder / "evaluation.json")]) == 0
    evaluation = json.loads((folder / "evaluation.json").read_text())
    model = load_run(folder / "run").model
    codes = model.encode(data.test, seed=5)
    sample = model.sample(8, num_sweeps=20, seed=6)
    return {
        "elbo": [line["elbo"] for line in lines if "elbo" in line],
        "log_likelihood": evaluation["log_likelihood"]["value"],
        "state": _digest(load_file(state)),
        "evaluation": _digest_of_figures(evaluation),
        "codes": _digest(vars(codes)),
        "sample": _digest(vars(sample)),
    }


def digits_of_pretrained(name):
    """Digests of a model that comes with the library, and of its bounds for bits at random."""
    model = load_pretrained(name).model
    generator = torch.Generator().manual_seed(7)
    x = torch.bernoulli(torch.full((4, *model.event_shape), 0.3), generator=generator)
    bounds = model.elbo(x, log_partition=0.0, generator=generator)
    weights = model.log_likelihood(x, 5, log_partition=0.0, generator=generator)
    return {
        "elbo": float(bounds.value.detach().mean()),
        "state": _digest(model.state_dict()),
        "bounds": _digest({"elbo": bounds.value.detach(), "log_likelihood": weights.value}),
    }


def _rows(kind, shape):
    """250 rows of 12 features that hang together by pairs."""
    random = np.random.RandomState(11)
    hidden = random.uniform(size=(250, 6)).repeat(2, axis=1) * 0.7 + random.uniform(size=(250, 12)) * 0.3
    if kind == "reals":
        rows = np.where(random.uniform(size=hidden.shape) < 0.1, np.nan, 4 * hidden - 1)
    else:
        kinds = {"bits": hidden > 0.5, "codes": hidden * 2.999, "counts": random.poisson(9 * hidden)}
        rows = kinds[kind].astype(int)
    return rows.reshape(-1, *shape) if shape else rows


def _digest(tensors):
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        if tensor is not None:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _digest_of_figures(evaluation):
    """The digest of an evaluation without what differs from run to run: times and file sums."""

    def kept(value):
        if isinstance(value, dict):
            return {k: kept(v) for k, v in value.items() if k != "seconds" and not k.endswith("sha256")}
        return value

    return hashlib.sha256(json.dumps(kept(evaluation), sort_keys=True).encode()).hexdigest()


def public_names():
    """Public names of the package with what their calls take."""
    found = []
    for name in sorted(discrete_vae.__all__):
        value = getattr(discrete_vae, name)
        calls = {name: value}
        if inspect.isclass(value):
            own = [base for base in value.__mro__ if base.__module__.startswith("discrete_vae")]
            each_own = {each for base in own for each in vars(base) if not each.startswith("_")}
            calls |= {f"{name}.{each}": getattr(value, each) for each in dir(value) if each in each_own}
        found += [f"{each}({_parameters(call)})" if callable(call) else each for each, call in calls.items()]
    return found


def _parameters(call):
    try:
        return ", ".join(inspect.signature(call).parameters)
    except (TypeError, ValueError):  # of classes written in C
        return "..."


def verbs(say):
    """Options of every verb, and the settings of an experiment, from what the command says to words."""
    options = re.compile(r"^  (-{1,2}[a-z][a-z-]*)", re.MULTILINE)  # more spaces are a help's further lines
    found = {name: options.findall(say([name, "--help"])) for name in VERBS}
    settings = say(["train", "digits", "--settings"])
    return found | {"settings": re.findall(r"--[a-z][a-z.-]*", settings)}


def here():
    """What decides in which order sums are rounded."""
    environment = describe_environment(seed=0, device="cpu")
    packages, platform = environment["packages"], environment["platform"]
    parts = platform["processor"], platform["vector_instructions"], packages["torch"], packages.get("numba")
    return ", ".join(str(part) for part in parts)


def _golden():
    return json.loads(GOLDEN.read_text())


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_digits(name, tmp_path, one_thread):
    golden, found = _golden(), digits_of(name, tmp_path)
    exact = golden["digits"].get(here())
    if exact is not None:
        assert found == exact[name]
    any_other = next(iter(golden["digits"].values()))[name]
    assert found["elbo"] == pytest.approx(any_other["elbo"], rel=0.02)
    assert found["log_likelihood"] == pytest.approx(any_other["log_likelihood"], rel=0.02)


@pytest.mark.parametrize("name", pretrained_names())
def test_digits_of_pretrained_models(name, one_thread):
    golden, found = _golden()["digits"], digits_of_pretrained(name)
    any_other = next(iter(golden.values()))[name]
    assert found["state"] == any_other["state"]
    if here() in golden:
        assert found == golden[here()][name]
    assert found["elbo"] == pytest.approx(any_other["elbo"], rel=0.02)


def test_public_names():
    assert public_names() == _golden()["names"]


def test_verbs_and_options(capsys):
    def say(words):
        with contextlib.suppress(SystemExit):
            main(words)
        return capsys.readouterr().out

    assert verbs(say) == _golden()["verbs"]


def _write(*, with_digits):
    """Write the names, verbs and options as they are, and with_digits this machine's digits."""

    def say(words):
        command = [sys.executable, "-m", "discrete_vae", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    digits = _golden()["digits"]
    if with_digits:
        torch.set_num_threads(1)
        own = {}
        for name in EXPERIMENTS:
            with tempfile.TemporaryDirectory() as folder:
                own[name] = digits_of(name, Path(folder))
        digits[here()] = own | {name: digits_of_pretrained(name) for name in pretrained_names()}
    golden = {"digits": digits, "names": public_names(), "verbs": verbs(say)}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    _write(with_digits="--digits" in sys.argv)
