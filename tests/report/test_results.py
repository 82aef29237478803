"""Verdicts on a course of training."""

from discrete_vae.figures.curves import training_curves_table
from discrete_vae.report.results import training_verdict


def test_a_model_of_independent_columns_is_no_best_of_training():
    lines = [{"step": 0, "epoch": 0.0, "validation_elbo": -6.8}, {"step": 1, "epoch": 0.1, "elbo": -15.0}]
    lines += [{"step": 10 * n, "epoch": float(n), "validation_elbo": -14.0 - n} for n in (1, 2)]
    said = training_verdict(training_curves_table(lines))
    assert not said.healthy
    assert "fell" not in said.text
    assert "15.0" in said.text


def verdict(values, scores=None):
    lines = [{"step": 1, "epoch": 0.1, "elbo": -100.0}]
    for number, elbo in enumerate(values, 1):
        found = {"validation_elbo": elbo}
        if scores is not None:
            found["validation_score"] = scores[number - 1]
        lines.append({"step": 10 * number, "epoch": float(number)} | found)
    return training_verdict(training_curves_table(lines))


def test_a_fall_of_the_elbo_alone_is_not_overfitting_and_one_of_the_score_is():
    elbo, score = [-95.0, -88.0, -90.0], [-94.0, -87.0, -86.5]
    said = verdict(elbo, score)
    assert said.healthy
    assert "validation ELBO -90.00 nats" in said.text.replace("\N{MINUS SIGN}", "-")
    assert "epoch 3 of 3" in said.text
    assert not verdict(elbo).healthy  # of a run that logged nothing else
    assert "fell by 2.0" in verdict(elbo).text
    fallen = verdict([-95.0, -88.0, -88.0], [-94.0, -86.0, -87.5])
    assert not fallen.healthy
    assert "epoch 2 of 3" in fallen.text
    assert verdict([]) is verdict([-90.0]) is None  # too few to say anything
