"""Tables and pictures of made-up records: every figure of the table follows from records and the paper's values."""

import numpy as np
import pandas as pd
import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.model import DiscreteVAE
from discrete_vae.presets import load_experiment
from reproduction import paper
from reproduction.__main__ import REPRODUCTIONS
from reproduction.display import Column, Options, Table, notes_of
from reproduction.records import Value, plan_run
from reproduction.relaxations import RELAXATIONS
from reproduction.sizes import load_sized
from reproduction.tables import plan_main_runs
from reproduction.tests import made_up as made_up_runs
from reproduction.tests.made_up import made_up

TRAINED = [name for name, entry in REPRODUCTIONS.items() if entry.trains]
OF_RECORDS = [name for name in TRAINED if REPRODUCTIONS[name].num_seeds and name not in RELAXATIONS]


def result_of(name, folder, values=None, **options):
    reproduction = REPRODUCTIONS[name]
    asked = Options(**{"size": "short", "num_seeds": reproduction.num_seeds or 1} | options)
    count = len(reproduction.plan(asked))
    sweep = made_up(reproduction, asked, folder, values or [-80.0 - i for i in range(count)])
    return reproduction.make(asked, sweep)


def numbers(*words, **options):
    return result_of(*words, **options).table.numbers()


@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for name in TRAINED for size in REPRODUCTIONS[name].sizes]
)
def test_every_plan_is_of_runs_of_their_own(name, size):
    entry = REPRODUCTIONS[name]
    num_seeds = entry.num_seeds or 1
    planned = entry.plan(Options(size, num_seeds=num_seeds))
    names = [each.name for each in planned]
    assert len(names) == len(set(names)) > 0
    assert all(each.config.size == size and len(each.name) <= 100 for each in planned)
    assert {each.seed for each in planned} == set(range(num_seeds))


def test_tables_share_the_runs_that_they_have_in_common():
    def names(name, size="short"):
        return {run.name for run in REPRODUCTIONS[name].plan(Options(size))}

    main = names("table-1")
    assert len(main) == 4
    assert names("figure-10") == names("training") == main
    assert names("table-1", "cpu") < names("without-rbm", "cpu")
    assert not names("without-rbm") & main  # narrower networks
    for name in ("figure-5", "figure-11", "figure-12", "figure-13"):
        assert names(name) < main
    for part, shared in (("6b", "dynamic"), ("6c", "dynamic"), ("9a", "static"), ("9b", "static")):
        name = f"figure-{part}"
        assert names(name, "cpu") & names("table-1", "cpu") == {f"mnist-{shared}-cpu-seed-0"}
        assert not names(name) & main  # size short makes them smaller
    assert len(names("figure-6b") & names("figure-6c")) == len(names("figure-9a") & names("figure-9b")) == 1
    assert not names("figure-6a") & names("figure-6b")  # size short takes 30 sweeps
    assert names("figure-6a", "paper") & names("figure-6b", "paper")  # ten layers


@pytest.mark.parametrize("name", ["table-1", "training"])
def test_a_data_set_alone_is_shown_with_those_that_are_complete_besides(name, tmp_path):
    entry = REPRODUCTIONS[name]
    for part in ("omniglot", "mnist-static"):
        asked = Options("large", only=(part,))
        (planned,) = entry.plan(asked)
        assert planned.experiment == part
        found = entry.make(asked, made_up(entry, asked, tmp_path, [-80.0])).table.numbers().data_set.tolist()
        assert found == (["omniglot"] if part == "omniglot" else ["mnist-static", "omniglot"])


@pytest.mark.parametrize("size", ["cpu", "paper"])
@pytest.mark.parametrize("name", OF_RECORDS)
def test_every_table_is_made_of_records_alone(name, size, tmp_path):
    result = result_of(name, tmp_path, size=size)
    assert result.picture is not None
    text = "\n".join([result.table.markdown(), *result.notes])
    assert "nan" not in text
    assert ("Other sizes than in size paper" in text) == (size != "paper")
    assert "of training and" in text
    assert "0123456789" in text


def test_what_makes_a_table_another_than_the_papers_is_said(tmp_path):
    def words_of(name, **options):
        notes = result_of(name, tmp_path / name, **options).notes
        return next((note for note in notes if "Other sizes than in size paper" in note), " ".join(notes))

    words = words_of("figure-6b")
    assert "epochs 64 (1000)" in words
    assert "Gaussian layers 4 (10)" in words  # not the 18 of Table 1
    assert "posterior networks of the binary latents 100+100 (2000+2000)" in words
    assert "decoder 400 (no hidden layer)" in words
    planned = [run.config.training for run in REPRODUCTIONS["figure-6b"].plan(Options("short"))]
    assert {each.beta_bound.start + 64 * each.beta_bound.slope for each in planned} == {8.0}
    for name, varied in {"figure-9a": "their prior networks", "figure-9b": "posterior networks"}.items():
        assert varied not in words_of(name)  # what a figure varies is no difference
    large = words_of("table-1", size="large")
    assert "decoder convolutions of 32+64 channels (no hidden layer)" in large
    assert [planned.config.size for planned in plan_main_runs(Options("large"))] == ["large"] * 4
    with pytest.raises(InvalidInputError, match="size large"):
        load_sized("digits", "large")
    timed = result_of("without-rbm", tmp_path / "timed", size="paper", budget=30.0)
    assert "as many epochs as 30 minutes had room for" in " ".join(timed.notes)
    assert "nothing else changed" not in " ".join(timed.notes)
    assert "30 minutes each" in timed.picture.get_suptitle()
    assert "nothing else changed" in words_of("without-rbm", size="paper")


def test_table_1(tmp_path):
    found = numbers("table-1", tmp_path, [-82.0, -82.5, -104.0, -102.0])
    first, static = found.iloc[0], found.iloc[1]
    assert (first.data_set, first.log_likelihood, first.paper) == ("mnist-dynamic", -82.0, -80.15)
    assert first.difference == pytest.approx(-1.85)
    assert first.difference_std_error == first.log_likelihood_std_error > 0.003
    assert static.paper_elbo == -84.58
    assert np.isnan(first.paper_elbo)
    assert first.next_best == "Ladder VAE −81.74"  # noqa: RUF001
    assert np.isnan(first.spread)


def test_without_rbm_differences_are_paired(tmp_path):
    values = [-82.0, -82.5, -83.0, -82.0, -104.0, -105.0, -102.0, -102.0]
    found = numbers("without-rbm", tmp_path, values)
    assert found.difference.tolist() == pytest.approx([-0.5, 1.0, -1.0, 0.0], abs=1e-5)
    assert found.paper_difference.tolist() == [-0.09, -0.37, -0.69, -0.66]
    assert found.difference_from_paper[1] == pytest.approx(1.37)


def test_training_shows_bounds_against_time(tmp_path, monkeypatch):
    result = result_of("training", tmp_path, [-82.0, -82.5, -104.0, -102.0], size="cpu")
    first, second = result.table.numbers().iloc[0], result.table.numbers().iloc[1]
    # validated at 60, 90 and 120 of 120 minutes; the first has importance samples from 90 on, the second none
    names = ["validation_elbo_half", "validation_elbo_three_quarters", "validation_elbo", "gap"]
    assert first[names].tolist() == pytest.approx([-88.5, -86.8, -86.5, 0.8])
    assert second.gap == pytest.approx(1.5)
    assert first.difference == pytest.approx(-82.0 + 80.15)
    ours, papers = (load_experiment("mnist-dynamic", size) for size in ("cpu", "paper"))
    models = [DiscreteVAE.from_config(each.model) for each in (ours, papers)]
    weights = [sum(p.numel() for p in model.parameters()) for model in models]
    epochs = [each.training.num_epochs for each in (ours, papers)]
    assert first.work_of_paper == pytest.approx(weights[1] * epochs[1] / (weights[0] * epochs[0]))
    assert [axes.get_title(loc="left") for axes in result.picture.axes] == list(paper.MAIN_RESULTS)
    late = {"step": 1000, "seconds": 7200.0, "epoch": 10.0, "elbo": -80.0, "validation_elbo": -81.0}
    monkeypatch.setattr(made_up_runs, "history", lambda value: pd.DataFrame([late]))
    found = numbers("training", tmp_path / "late", [-80.0] * 4, size="cpu")
    np.testing.assert_array_equal(found.gap, [np.nan, 1.0, np.nan, 1.0])  # none before importance samples


def test_simplified_models_have_the_gaps_between_neighbors(tmp_path):
    values = [-103.0, -98.0, -94.0, -90.0, -88.0, -86.0]
    found = numbers("simplified-models", tmp_path, values)
    assert found.log_likelihood_limit.tolist() == pytest.approx([v + 0.1 for v in values])
    assert set(found.doubling_gain) == {0.05}
    np.testing.assert_allclose(found.gap, [np.nan, 5.0, 4.0, 4.0, 2.0, 2.0], atol=1e-5)
    np.testing.assert_allclose(found.paper_gap, [np.nan, 5.9, 4.3, 3.9, 1.9, 1.7])
    np.testing.assert_allclose(found.elbo_std_error, np.hypot(0.1, 0.003))


def test_a_figure_compares_with_its_reference_seed_by_seed(tmp_path):
    values = [-84.0, -83.0, -82.5, -84.2, -83.4, -82.6]
    found = numbers("figure-6c", tmp_path, values, num_seeds=2)
    assert found.point.tolist() == ["1", "2", "4"]
    assert found.effect.tolist() == pytest.approx([-1.55, -0.65, 0.0])
    assert found.log_likelihood.tolist() == pytest.approx([-84.1, -83.2, -82.55])
    assert found.spread[0] == pytest.approx(np.std([-84.0, -84.2], ddof=1))
    assert found.paper_effect.tolist() == pytest.approx([-0.23391, 0.01573, 0.0])


def test_table_2_says_that_size_paper_is_the_papers(monkeypatch):
    table_2 = REPRODUCTIONS["table-2"]
    result = table_2.make(Options("paper"), None)
    assert "Every number of size paper is the paper's" in result.notes[0]
    rows = result.table.numbers().drop(columns="whose")
    assert len(rows) == 8
    pd.testing.assert_frame_equal(rows[::2].reset_index(drop=True), rows[1::2].reset_index(drop=True))
    other = {"mnist-static": paper.Architecture(19, 256, 2000, "groups", 2)}
    monkeypatch.setattr(paper, "ARCHITECTURES", other)
    assert "is not the paper's" in table_2.make(Options("paper"), None).notes[0]
    for name, main in paper.MAIN_RESULTS.items():
        assert main.log_likelihood > main.next_best[1], name  # "state-of-the-art performance"
        assert main.without_rbm > 0


def test_a_table_in_words_and_numbers():
    columns = (Column("what", "what"), Column("nats", "nats"), Column("gap", "gap", signed=True))
    table = Table(columns, (("a", Value(-1.0, 0.25), None), ("bcd", -2.0, 0.5)))
    assert table.markdown().splitlines() == [
        "| what | nats | gap |",
        "| --- | ---: | ---: |",
        "| a | −1.00 ± 0.25 |  |",  # noqa: RUF001
        "| bcd | −2.00 | +0.50 |",  # noqa: RUF001
    ]
    lines = table.numbers().to_csv(index=False).splitlines()
    assert lines == ["what,nats,nats_std_error,gap", "a,-1.0,0.25,", "bcd,-2.0,,0.5"]


def test_notes_tell_of_moved_images_and_refits(tmp_path):
    plain, other = (
        " ".join(notes_of([made_up_runs.make_up(plan_run(name, "large"), tmp_path, -90.0)]))
        for name in ("mnist-dynamic", "omniglot")
    )
    assert "0.8" in other
    assert "4,000" in other
    assert "0.8" not in plain
    assert "4,000" not in plain
