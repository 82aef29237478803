"""The benchmark of the log-likelihood: its products, its line of JSON."""

import json
import sys

from discrete_vae.model import DiscreteVAE
from tests.benchmarks.test_training_step import LEFT, RIGHT, X, tiny_experiment

SAMPLES = 20


def test_what_reads_x_alone_counts_once_per_image():
    from likelihood_floor import products_of

    products = products_of(DiscreteVAE.from_config(tiny_experiment().model), SAMPLES)
    # the first group alone, the share of x in the others
    once = [(X, 11), (11, 4), (X, 11), (X, 12), (X, 12)]
    often = [(4, 11), (11, 4), (8, 12), (12, 4), (10, 12), (12, 4)]
    often += [(8, 13), (13, 4), (10, 13), (13, 4), (12, 14), (14, X)]
    expected = [(1, *sizes) for sizes in once] + [(SAMPLES, *sizes) for sizes in often]
    assert sorted(product.shape for product in products if not product.energy) == sorted(expected)
    assert [product.shape for product in products if product.energy] == [(SAMPLES, LEFT, RIGHT)]


def test_one_line_of_json(capsys, monkeypatch):
    import likelihood as benchmark

    words = "likelihood.py digits --size smoke --json --seconds 0 --num-samples 500 --num-images 1"
    monkeypatch.setattr(sys, "argv", words.split())
    benchmark.main()
    found = json.loads(capsys.readouterr().out)
    assert found["ratio"] == round(found["likelihood_ms"] / found["products_ms"], 3) > 0
    assert found["likelihood_ms_median"] >= found["likelihood_ms"]
