import pytest

from discrete_vae.cli.summaries import below_baseline
from discrete_vae.evaluation.evaluate import IndependentFeatures


@pytest.mark.parametrize(("value", "told"), [(-27.1, True), (-26.9, False)])
def test_only_a_model_below_the_baseline_is_told(value, told):
    text = below_baseline("log-likelihood", value, IndependentFeatures(-27.0, 0.2, 250))
    assert bool(text) == told
    assert not told or "0.10 nats below" in text
