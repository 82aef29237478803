"""Tables and pictures of made-up records: every figure of the table follows from records and the paper's values."""

import csv
import io
import math

import numpy as np
import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.model import DiscreteVAE
from discrete_vae.presets import SIZES, load_experiment
from reproduction import paper_values
from reproduction.estimates import mean_log_likelihood, paired_difference, spread
from reproduction.record import StoredRun
from reproduction.registry import REPRODUCTIONS
from reproduction.table import Column, ResultTable, Value
from reproduction.tests import made_up as made_up_runs
from reproduction.tests.made_up import made_up, make_up, tiny
from reproduction.wanted import Wanted

TRAINED = [name for name, entry in REPRODUCTIONS.items() if entry.needs]
OF_RECORDS = [name for name in TRAINED if REPRODUCTIONS[name].has_seeds]


def rows_of(result):
    return list(csv.DictReader(io.StringIO(result.table.csv())))


def made(name, folder, values=None, **wanted):
    asked = Wanted(**{"size": "short", "num_seeds": REPRODUCTIONS[name].num_seeds} | wanted)
    reproduction = REPRODUCTIONS[name].load()
    count = len(reproduction.plan(asked))
    return reproduction.make(
        asked, made_up(reproduction, asked, folder, values or [-80.0 - i for i in range(count)])
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TRAINED)
def test_every_plan_is_of_runs_of_their_own(name, size):
    entry = REPRODUCTIONS[name]
    planned = entry.load().plan(Wanted(size, num_seeds=entry.num_seeds))
    names = [each.name for each in planned]
    assert len(names) == len(set(names)) > 0
    assert all(each.config.size == size and len(each.name) <= 100 for each in planned)
    assert {each.seed for each in planned} == set(range(entry.num_seeds))


def test_tables_share_the_runs_that_they_have_in_common():
    def names(name, size="short"):
        return {run.name for run in REPRODUCTIONS[name].load().plan(Wanted(size))}

    main = names("table-1")
    assert len(main) == 4
    assert names("figure-10") == names("training") == main
    assert names("table-1", "cpu") < names("without-rbm", "cpu")
    assert not names("without-rbm") & main  # narrower networks
    for name in ("figure-5", "figure-11", "figure-12", "figure-13"):
        assert names(name) < main
    for name, shared in [
        ("figure-6b", "dynamic"),
        ("figure-6c", "dynamic"),
        ("figure-9a", "static"),
        ("figure-9b", "static"),
    ]:
        assert names(name, "cpu") & names("table-1", "cpu") == {f"mnist-{shared}-cpu-seed-0"}
        assert not names(name) & main  # size short makes them smaller
    assert len(names("figure-6b") & names("figure-6c")) == len(names("figure-9a") & names("figure-9b")) == 1
    assert not names("figure-6a") & names("figure-6b")  # size short takes 30 sweeps
    assert names("figure-6a", "paper") & names("figure-6b", "paper")  # ten layers


@pytest.mark.parametrize("size", ["cpu", "paper"])
@pytest.mark.parametrize("name", OF_RECORDS)
def test_every_table_is_made_of_records_alone(name, size, tmp_path):
    result = made(name, tmp_path, size=size)
    assert result.picture is not None
    text = "\n".join([result.table.markdown(), *result.notes])
    assert "nan" not in text
    assert ("Other sizes than in size paper" in text) == (size != "paper")
    assert "of training and" in text
    assert "0123456789" in text
    assert all(len(line) <= 80 for line in result.table.terminal(80).splitlines())


def test_table_1(tmp_path):
    values = [-82.0, -82.5, -104.0, -102.0]
    first, static, *_ = rows_of(made("table-1", tmp_path, values))
    assert (first["data_set"], float(first["log_likelihood"]), float(first["paper"])) == (
        "mnist-dynamic",
        -82.0,
        -80.15,
    )
    assert float(first["difference"]) == pytest.approx(-1.85)
    assert float(first["difference_std_error"]) == float(first["log_likelihood_std_error"]) > 0.003
    assert (float(static["paper_elbo"]), first["paper_elbo"]) == (-84.58, "")
    assert first["next_best"] == "Ladder VAE −81.74"  # noqa: RUF001
    assert first["spread"] == ""


def test_without_rbm_differences_are_paired(tmp_path):
    rows = rows_of(
        made("without-rbm", tmp_path, [-82.0, -82.5, -83.0, -82.0, -104.0, -105.0, -102.0, -102.0])
    )
    assert [float(row["difference"]) for row in rows] == pytest.approx([-0.5, 1.0, -1.0, 0.0], abs=1e-5)
    assert [float(row["paper_difference"]) for row in rows] == [-0.09, -0.37, -0.69, -0.66]
    assert float(rows[1]["difference_from_paper"]) == pytest.approx(1.37)


def test_training_shows_bounds_against_time(tmp_path):
    result = made("training", tmp_path, [-82.0, -82.5, -104.0, -102.0], size="cpu")
    first, second, *_ = rows_of(result)
    # validated at 60, 90 and 120 of 120 minutes; the first has importance samples from 90 on, the second none
    names = ("validation_elbo_half", "validation_elbo_three_quarters", "validation_elbo", "gap")
    assert [float(first[name]) for name in names] == pytest.approx([-88.5, -86.8, -86.5, 0.8])
    assert float(second["gap"]) == pytest.approx(1.5)
    assert float(first["difference"]) == pytest.approx(-82.0 + 80.15)
    ours, papers = (load_experiment("mnist-dynamic", size) for size in ("cpu", "paper"))
    numbers = [
        sum(p.numel() for p in DiscreteVAE.from_config(each.model).parameters()) for each in (ours, papers)
    ]
    epochs = [each.training.num_epochs for each in (ours, papers)]
    assert float(first["work_of_paper"]) == pytest.approx(numbers[1] * epochs[1] / (numbers[0] * epochs[0]))
    itself = rows_of(made("training", tmp_path / "paper", [-80.0] * 4, size="paper"))
    assert [float(row["work_of_paper"]) for row in itself] == [1.0] * 4
    assert [axes.get_title(loc="left") for axes in result.picture.axes] == list(paper_values.MAIN_EXPERIMENTS)


def test_training_without_a_validation_before_importance_samples_has_no_gap(tmp_path, monkeypatch):
    late = {"step": 1000, "seconds": 7200.0, "epoch": 10.0, "elbo": -80.0, "validation_elbo": -81.0}
    monkeypatch.setattr(
        made_up_runs, "course", lambda value: {name: np.array([n]) for name, n in late.items()}
    )
    rows = rows_of(made("training", tmp_path, [-80.0] * 4, size="cpu"))
    assert [row["gap"] for row in rows] == ["", "1.0", "", "1.0"]


COLUMNS = b"step,seconds,elbo,validation_elbo\n"


@pytest.mark.parametrize(
    "content", [None, b"", COLUMNS + b"1,2\n", COLUMNS + b"1,2,x,3\n", b"step\n1\n", b"\xff"]
)
def test_a_damaged_course_is_named(tmp_path, content):
    stored = make_up(tiny(), tmp_path, -80.0)
    stored.course_path.unlink() if content is None else stored.course_path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=rf"{tiny().name}.csv must hold the course of training"):
        _ = stored.course


def test_simplified_models_have_the_gaps_between_neighbors(tmp_path):
    values = [-103.0, -98.0, -94.0, -90.0, -88.0, -86.0]
    rows = rows_of(made("simplified-models", tmp_path, values))
    assert rows[0]["gap"] == ""
    assert [float(row["log_likelihood_limit"]) for row in rows] == pytest.approx([v + 0.1 for v in values])
    assert {row["doubling_gain"] for row in rows} == {"0.05"}
    assert [float(row["gap"]) for row in rows[1:]] == pytest.approx([5.0, 4.0, 4.0, 2.0, 2.0])
    assert [float(row["paper_gap"]) for row in rows[1:]] == pytest.approx([5.9, 4.3, 3.9, 1.9, 1.7])


def test_a_sweep_compares_with_its_reference_seed_by_seed(tmp_path):
    values = [-84.0, -83.0, -82.5, -84.2, -83.4, -82.6]
    rows = rows_of(made("figure-6c", tmp_path, values, num_seeds=2))
    assert [row["point"] for row in rows] == ["1", "2", "4"]
    assert [float(row["effect"]) for row in rows] == pytest.approx([-1.55, -0.65, 0.0])
    assert [float(row["log_likelihood"]) for row in rows] == pytest.approx([-84.1, -83.2, -82.55])
    assert float(rows[0]["spread"]) == pytest.approx(np.std([-84.0, -84.2], ddof=1))
    assert [float(row["paper_effect"]) for row in rows] == pytest.approx([-0.23391, 0.01573, 0.0])


def test_a_sweep_in_size_short_says_what_makes_it_smaller(tmp_path):
    result = made("figure-6b", tmp_path)
    (words,) = [note for note in result.notes if "Other sizes than in size paper" in note]
    assert "epochs 64 (1000)" in words
    assert "Gaussian layers 4 (10)" in words  # not the 18 of Table 1
    assert "posterior networks of the binary latents 100+100 (2000+2000)" in words
    assert "decoder 400 (no hidden layer)" in words
    planned = REPRODUCTIONS["figure-6b"].load().plan(Wanted("short"))
    ends = {
        run.config.training.beta_bound.start + 64 * run.config.training.beta_bound.slope for run in planned
    }
    assert ends == {8.0}
    assert all("training.num-epochs" in dict(run.overrides) for run in planned)


def test_table_2_says_that_size_paper_is_the_papers():
    result = REPRODUCTIONS["table-2"].load().make(Wanted("paper"), None)
    assert "Every number of size paper is the paper's" in result.notes[0]
    rows = rows_of(result)
    assert len(rows) == 8
    for paper, ours in zip(rows[::2], rows[1::2], strict=True):
        assert {**paper, "whose": ""} == {**ours, "whose": ""}


def test_table_2_would_say_if_it_were_not(monkeypatch):
    other = {"mnist-static": paper_values.Architecture(19, 256, 2000, "groups", 2)}
    monkeypatch.setattr("reproduction.table_2.ARCHITECTURES", other)
    result = REPRODUCTIONS["table-2"].load().make(Wanted("paper"), None)
    assert "is not the paper's" in result.notes[0]


def test_a_paired_difference_by_hand(tmp_path):
    runs = [
        make_up(tiny(seed=seed), tmp_path, value, seed=seed, log_partition_error=0.3)
        for seed, value in enumerate([-80.0, -81.0, -79.0, -79.5])
    ]
    found = paired_difference(runs[:2], runs[2:])
    examples = [run.examples[1] for run in runs]
    differences = np.array([examples[2] - examples[0], examples[3] - examples[1]])
    over_examples = differences.mean(0).std(ddof=1) / math.sqrt(20)
    over_seeds = abs(1.0 - 1.5) / 2
    assert found.value == pytest.approx(1.25, abs=1e-5)
    assert found.std_error == pytest.approx(math.hypot(over_examples, over_seeds), rel=1e-4)
    single = paired_difference(runs[:1], runs[2:3])
    of_examples = (examples[2] - examples[0]).std(ddof=1) / math.sqrt(20)
    assert single.std_error == pytest.approx(math.hypot(of_examples, 0.3, 0.3), rel=1e-4)
    assert mean_log_likelihood(runs[:2]).value == -80.5
    assert spread(runs[:2]) == pytest.approx(math.sqrt(0.5))
    assert math.isnan(spread(runs[:1]))


def test_other_examples_are_not_paired(tmp_path):
    one, other = make_up(tiny(), tmp_path, -80.0), make_up(tiny(seed=1), tmp_path, -80.0, num_examples=19)
    with pytest.raises(InvalidInputError, match="must be of the same test examples"):
        paired_difference([one], [other])


@pytest.mark.parametrize("content", [None, b"", b"PK", b"\x93NUMPY"])
def test_damaged_examples_are_named(tmp_path, content):
    stored = make_up(tiny(), tmp_path, -80.0)
    stored.examples_path.unlink() if content is None else stored.examples_path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=rf"{tiny().name}.npz must hold log-likelihoods of examples"):
        _ = stored.examples


def test_any_flipped_bit_of_the_examples_is_named_or_harmless(tmp_path):
    stored = make_up(tiny(), tmp_path, -80.0)
    whole, expected = stored.examples_path.read_bytes(), stored.examples
    messages = []
    for place in range(0, 8 * len(whole), 7):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        stored.examples_path.write_bytes(damaged)
        try:
            found = StoredRun(stored.planned, stored.record, stored.path).examples
        except InvalidInputError as error:
            messages.append(str(error))
        else:
            assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))
    assert len(messages) > 100
    assert all("must hold" in message for message in messages)


def test_a_budget_is_said(tmp_path):
    result = made("without-rbm", tmp_path, size="paper", budget=30.0)
    text = " ".join(result.notes)
    assert "as many epochs as 30 minutes had room for" in text
    assert "nothing else changed" not in text
    assert "nothing else changed" in " ".join(made("without-rbm", tmp_path / "whole", size="paper").notes)
    assert "30 minutes each" in result.picture.axes[0].get_title(loc="left")


def test_what_a_figure_varies_is_no_difference_from_size_paper(tmp_path):
    for name, varied in {"figure-9a": "their prior networks", "figure-9b": "posterior networks"}.items():
        (words,) = [n for n in made(name, tmp_path / name).notes if "Other sizes than in size paper" in n]
        assert varied not in words
        assert "Gaussian layers 4 (10)" in words


def test_a_table_in_its_three_forms():
    columns = (Column("what", "what"), Column("nats", "nats"), Column("gap", "gap", signed=True))
    table = ResultTable(columns, (("a", Value(-1.0, 0.25), None), ("bcd", -2.0, 0.5)))
    assert table.markdown().splitlines() == [
        "| what | nats | gap |",
        "| --- | ---: | ---: |",
        "| a | −1.00 ± 0.25 |  |",  # noqa: RUF001
        "| bcd | −2.00 | +0.50 |",  # noqa: RUF001
    ]
    assert table.csv() == "what,nats,nats_std_error,gap\na,-1.0,0.25,\nbcd,-2.0,,0.5\n"
    wide = "what          nats    gap\na     −1.00 ± 0.25\nbcd          −2.00  +0.50"  # noqa: RUF001
    assert table.terminal(80) == wide
    narrow = "what: a\n  nats  −1.00 ± 0.25\nwhat: bcd\n  nats  −2.00\n  gap   +0.50"  # noqa: RUF001
    assert table.terminal(20) == narrow


def test_the_papers_values_follow_its_words():
    simplified = list(paper_values.SIMPLIFIED.values())
    assert simplified == sorted(simplified)  # each component that is added raises the log-likelihood
    for name, result in paper_values.MAIN_RESULTS.items():
        assert result.log_likelihood > result.next_best[1], name  # "state-of-the-art performance"
        assert result.without_rbm > 0
