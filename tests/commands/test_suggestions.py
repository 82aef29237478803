"""What a mistyped word may have meant."""

import pytest

from discrete_vae.overrides import suggest_setting


@pytest.mark.parametrize(
    ("word", "settings"),
    [
        ("epochs", ["training.num-epochs"]),
        ("epoch", ["training.num-epochs"]),
        ("n-epochs", ["training.num-epochs"]),
        ("steps", ["training.num-epochs"]),
        ("batch", ["training.batch-size"]),
        ("batch_size", ["training.batch-size"]),
        ("lr", ["training.optimizer.learning-rate"]),
        ("learning-rate", ["training.optimizer.learning-rate"]),
        ("training.lr", ["training.optimizer.learning-rate"]),
        ("layers", ["model.hierarchy.num-layers"]),
        ("hidden", ["model.decoder.hidden", "model.posterior.hidden"]),
        ("hiden", ["model.decoder.hidden", "model.posterior.hidden"]),
        ("beta", ["model.smoothing.beta"]),
        ("chains", ["training.sampler.num-chains"]),
        ("sweeps", ["training.num-sweeps"]),
        ("units", ["model.hierarchy.num-units", "model.prior.num-units"]),
        ("groups", ["model.posterior.groups"]),
        ("smoothing", ["model.smoothing"]),
        ("prior", ["model.prior"]),
        ("decoder", ["model.decoder"]),
        ("samples", ["evaluation.num-samples"]),
        ("examples", ["evaluation.num-examples", "training.num-examples"]),
        ("train.num-epochs", ["training.num-epochs"]),
        ("model.prior.num-lefts", ["model.prior.num-left"]),
    ],
)
def test_the_likeliest_setting_is_named(word, settings):
    named = " or ".join(f"--{name}" for name in settings)
    assert suggest_setting(word) == f"Did you mean {named}? --settings lists them all."


def test_nothing_is_named_for_what_is_like_nothing():
    assert suggest_setting("qqq.zzz") == "Add --settings to list them all."


@pytest.mark.parametrize(
    ("words", "repair"),
    [
        ("train digits --epochs 3", "Did you mean --training.num-epochs?"),
        ("train digits --batch 3", "Did you mean --training.batch-size?"),
        ("train digits --sed 3", "Did you mean --seed?"),
        ("train digits --run x", "Did you mean --run-dir?"),
        ("train digit", "Did you mean digits?"),
        ("train mnist", "Did you mean mnist-"),
        ("train mine.npy", "Did you mean --data mine.npy?"),
        ("validate mine.npy", "Did you mean --data mine.npy?"),
        ("evaluate digits", "Did you mean runs/digits-smoke?"),
        ("evaluate runs/digits-smok", "Did you mean runs/digits-smoke?"),
        ("sample digits-smok", "Did you mean runs/digits-smoke?"),
        ("log-partition nothing-like-it", "Check the path"),
        ("evaluate --run-dir runs/digits-smoke", "Name the run without an option: dvae evaluate RUN."),
        ("evaluate runs/digits-smoke --data x.npy", "It is one of dvae validate, train, encode, score,"),
        ("validate digits --resume", "It is one of dvae train."),
        ("train digits --model.smoothing spikeslab", "Did you mean spike-slab?"),
        ("train digits --size smoke --resume --run-dir digits", "Did you mean runs/digits-smoke?"),
    ],
)
def test_words_that_were_meant_for_something_else(refused, tmp_path, monkeypatch, words, repair):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.npy").touch()
    (tmp_path / "runs" / "digits-smoke").mkdir(parents=True)
    (tmp_path / "runs" / "digits-smoke" / "config.json").touch()
    assert repair in refused(*words.split())


def test_a_picture_gets_an_ending_that_can_be_drawn(refused, trained):
    assert "received 'x.npy'. Did you mean x.png?" in refused("sample", trained, "--out", "x.npy")
