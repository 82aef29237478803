"""Sparse matrices: the same data, digits and refusals as their dense twins, and never dense as a whole."""

import gzip

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.io import mmwrite

from discrete_vae import load_run, train
from discrete_vae.cli import main
from discrete_vae.config import LikelihoodConfig, ModelConfig, instantiate
from discrete_vae.config.base import by_kind
from discrete_vae.data.files import TableReading
from discrete_vae.data.rows import load_file, read_rows, rows_of_part
from discrete_vae.data.splits import PARTS, summarize
from discrete_vae.evaluation import independent_features
from discrete_vae.inference.encode import encode_rows
from discrete_vae.inference.evaluate_run import evaluate_run
from discrete_vae.inference.score import score_rows
from discrete_vae.likelihoods import NegativeBinomialLikelihood
from discrete_vae.likelihoods.scaling import feature_moments
from discrete_vae.own_data import read_own_experiment
from discrete_vae.sparse import SparseRows
from tests.refusals import refused, refused_argument

RANDOM = np.random.default_rng(0)
COUNTS = RANDOM.poisson(0.2, (90, 7)).astype(np.int32)
VALUES = {
    "bernoulli": (COUNTS > 0).astype(np.uint8),
    "categorical": COUNTS.clip(max=2),
    "negative-binomial": COUNTS,
    "gaussian": np.where(COUNTS > 0, RANDOM.normal(size=COUNTS.shape), 0.0),
}


def twins(folder, values):
    """The same values as a sparse and as a dense file."""
    sp.save_npz(folder / "sparse.npz", sp.csr_array(values))
    np.savez(folder / "dense.npz", x=values)
    return folder / "sparse.npz", folder / "dense.npz"


def test_rows_that_would_not_fit_in_memory_are_read(tmp_path):
    values = sp.csr_array(([1.0], ([5], [7])), shape=(1_000_000, 100_000))
    sp.save_npz(tmp_path / "x.npz", values)
    rows = read_rows(tmp_path / "x.npz", ModelConfig(num_features=100_000))
    assert (len(rows), float(rows.x[5:6].sum())) == (1_000_000, 1.0)


def write(path, layout):
    if layout == "mtx":
        mmwrite(path, sp.coo_array(COUNTS))
    elif layout == "mtx.gz":
        mmwrite(path.with_suffix(""), sp.coo_array(COUNTS))
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
    elif layout == "twice.npz":
        row, column = np.nonzero(COUNTS)
        halves = np.concatenate([COUNTS[row, column] - 1, np.ones(len(row), np.int32)]).astype(np.uint8)
        places = np.tile(row, 2), np.tile(column, 2)
        sp.save_npz(path, sp.coo_array((halves, places), COUNTS.shape))
    else:
        sp.save_npz(path, sp.coo_array(COUNTS).asformat(layout.split(".")[0]))


@pytest.mark.parametrize("layout", ["csr.npz", "csc.npz", "coo.npz", "twice.npz", "mtx", "mtx.gz"])
def test_a_sparse_file_holds_the_data_of_its_dense_twin(tmp_path, layout):
    write(tmp_path / f"mine.{layout}", layout)
    np.save(tmp_path / "dense.npy", COUNTS)
    found, wanted = load_file(path=tmp_path / f"mine.{layout}"), load_file(path=tmp_path / "dense.npy")
    for part in PARTS:
        rows = getattr(found, part)
        assert isinstance(rows, SparseRows)
        assert torch.equal(rows[:], getattr(wanted, part))
    assert found.summaries == wanted.summaries
    assert found.event_shape == wanted.event_shape


@pytest.mark.parametrize("kind", VALUES)
def test_training_evaluation_and_use_have_the_digits_of_the_dense_twin(tmp_path, kind):
    found = []
    for path in twins(tmp_path, VALUES[kind]):
        overrides = [("model.likelihood", [kind]), ("training.num-epochs", ["2"])]
        config, dataset = read_own_experiment(path, overrides, size="smoke")
        train(config, dataset, tmp_path / path.stem)
        loaded, rows = load_run(tmp_path / path.stem), rows_of_part(dataset, "train")
        result = evaluate_run(loaded, dataset, indices=np.arange(4)).result
        scores = score_rows(loaded.model, rows.x[:5], log_partition=0.0, num_samples=3)
        found.append([result.log_likelihood.value, result.elbo.elbo, result.independent_features.value])
        found[-1] += [encode_rows(loaded.model, rows.x).probabilities, scores.value]
        found[-1] += list(loaded.model.state_dict().values())
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


def with_gaps(values, gaps):
    """The values as dense and as sparse rows, with a gap in some of them if asked."""
    values = values.astype(np.float32)
    if gaps:
        values[3:9, 2] = np.nan
    return torch.from_numpy(values), SparseRows(sp.csr_array(values))


def start(likelihood, x):
    return [likelihood.initialize_(x), *likelihood.state_dict().values(), likelihood.fit_marginals_(x)]


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("gaps", [False, True])
def test_statistics_of_a_likelihood_are_those_of_dense_values(kind, gaps):
    dense, sparse = with_gaps(VALUES[kind], gaps)
    settings = {"categorical": {"num_categories": 3}, "gaussian": {"shorten_tails": True}}
    config = by_kind(LikelihoodConfig)[kind](**settings.get(kind, {}))
    one, other = (start(instantiate(config, event_shape=(7,)), x) for x in (dense, sparse))
    assert all(map(torch.equal, one, other))
    likelihood = instantiate(config, event_shape=(7,))
    assert independent_features(likelihood, dense, dense) == independent_features(likelihood, sparse, sparse)
    assert summarize(dense) == summarize(sparse)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("zero_inflated", [False, True])
def test_counts_with_an_exposure_start_as_those_of_dense_values(gaps, zero_inflated):
    one, other = (
        start(NegativeBinomialLikelihood((7,), zero_inflated=zero_inflated, exposure="total"), x)
        for x in with_gaps(VALUES["negative-binomial"], gaps)
    )
    for dense, sparse in zip(one, other, strict=True):
        torch.testing.assert_close(dense, sparse, rtol=1e-6, atol=1e-6)


def test_moments_of_many_features_are_those_of_numpy():
    """Of blocks of fewer rows than those of narrow data."""
    sparse = sp.random_array((300, 70_000), density=0.01, rng=np.random.default_rng(2), dtype=np.float32)
    x, found = sparse.toarray(), feature_moments(SparseRows(sparse.tocsr()))
    assert np.allclose(found.mean, x.mean(0, dtype=np.float64), rtol=1e-12)
    assert np.allclose(found.variance, x.astype(np.float64).var(0), rtol=1e-12)


def test_probabilities_are_binarized_as_in_the_dense_twin(tmp_path):
    values = np.where(COUNTS > 0, RANDOM.random(COUNTS.shape), 0.0)
    found, wanted = (load_file(path=path, binarize=True) for path in twins(tmp_path, values))
    assert found.dynamic
    for part in PARTS:
        assert torch.equal(rows_of_part(found, part).x[:], rows_of_part(wanted, part).x)


def test_what_does_not_fit_the_memory_as_dense_rows_is_refused():
    rows = SparseRows(sp.csr_array((10**7, 10**7), dtype=np.float32))
    assert rows[:3].shape == (3, 10**7)
    assert refused_argument(lambda: rows[:]) == "sparse data"


@pytest.mark.parametrize("key", ["indices", "indptr", "data", "shape", "format"])
def test_damaged_matrices_are_refused(tmp_path, key):
    """An index that points outside would write outside of a dense row."""
    path = twins(tmp_path, COUNTS)[0]
    with np.load(path) as file:
        arrays = dict(file)
    arrays[key] = {
        "indices": np.full_like(arrays["indices"], 10**6),
        "indptr": arrays["indptr"][::-1],
        "data": arrays["data"][:-1],
        "shape": np.array([2, 3]),
        "format": np.array(b"bsr"),
    }[key]
    np.savez(path, **arrays)
    assert path.name in refused_argument(load_file, path=path)


@pytest.mark.parametrize(("value", "named"), [(1e300, "feature 3"), (1j, "real numbers")])
def test_values_that_float32_loses_are_named(tmp_path, value, named):
    values = np.zeros((60, 5), type(value))
    values[:, 1], values[4, 3] = 1, value
    sp.save_npz(tmp_path / "mine.npz", sp.csr_array(values))
    assert named in str(refused(load_file, path=tmp_path / "mine.npz"))


def test_new_rows_are_read_for_a_trained_model(tmp_path):
    sparse, dense = twins(tmp_path, VALUES["bernoulli"])
    config, _ = read_own_experiment(dense, size="smoke")
    found, wanted = (read_rows(path, config.model) for path in (sparse, dense))
    assert isinstance(found.x, SparseRows)
    assert torch.equal(found.x[:], wanted.x)
    assert torch.equal(found.subset(np.array([5, 8])).x[:], wanted.x[[5, 8]])
    sp.save_npz(tmp_path / "wide.npz", sp.csr_array((4, 9)))
    assert "7 values" in str(refused(read_rows, tmp_path / "wide.npz", config.model))


# HDF5 and annotated matrices, by libraries that come with the extra `formats`.


def test_parts_and_labels_of_an_hdf5_file_are_those_of_npz(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'discrete-vae[formats]'")
    arrays = {"train": COUNTS[:60], "test": COUNTS[60:], "y_train": np.arange(60), "y_test": np.arange(30)}
    np.savez(tmp_path / "mine.npz", **arrays)
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
    found, wanted = (load_file(path=tmp_path / f"mine.{ending}") for ending in ("h5", "npz"))
    for part in PARTS:
        assert torch.equal(getattr(found, part), getattr(wanted, part))
        assert (found.labels[part] == wanted.labels[part]).all()
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file.create_group("train")["x"] = COUNTS
    assert "'train'" in refused_argument(load_file, path=tmp_path / "mine.h5")


KINDS = np.array(["b", "a", "c"])[np.arange(90) % 3]
GENES = [f"gene{place}" for place in range(7)]


@pytest.fixture
def annotated(tmp_path):
    """A .h5ad file: logarithms as X, counts as a layer, a column of kinds."""
    why = "it is not installed: pip install 'discrete-vae[formats]'"
    anndata, pandas = pytest.importorskip("anndata", reason=why), pytest.importorskip("pandas", reason=why)
    path, names = tmp_path / "mine.h5ad", [f"cell{row}" for row in range(90)]
    with anndata.settings.override(allow_write_nullable_strings=True):
        anndata.AnnData(
            X=np.log1p(COUNTS).astype(np.float32),
            obs=pandas.DataFrame({"kind": pandas.Categorical(KINDS)}, index=names),
            var=pandas.DataFrame(index=GENES),
            layers={"counts": sp.csc_matrix(COUNTS)},
        ).write_h5ad(path)
    return path


@pytest.mark.filterwarnings("ignore")  # of anndata about the version of pandas
def test_an_annotated_matrix_gives_a_layer_labels_and_names(tmp_path, annotated):
    np.savez(tmp_path / "dense.npz", x=COUNTS, y=KINDS)
    settings = {"layer": "counts", "label_column": "kind"}
    found, wanted = load_file(path=annotated, **settings), load_file(path=tmp_path / "dense.npz")
    assert isinstance(found.train, SparseRows)
    assert found.description.columns == tuple(GENES)
    for part in PARTS:
        assert torch.equal(getattr(found, part)[:], getattr(wanted, part))
        assert (found.labels[part] == wanted.labels[part]).all()
    assert torch.allclose(load_file(path=annotated).train, wanted.train.log1p())
    anndata = pytest.importorskip("anndata")
    unknown = anndata.read_h5ad(annotated)
    for kind in (unknown.obs["kind"].where(KINDS != "b"), np.where(KINDS == "b", "nan", KINDS)):
        unknown.obs["kind"] = kind
        unknown.write_h5ad(tmp_path / "unknown.h5ad")
        labels = load_file(path=tmp_path / "unknown.h5ad", **settings).labels
        assert set(labels["train"]) == {"a", "c", ""}
    assert load_file(path=annotated, ignored_columns=("gene2",)).event_shape == (6,)
    assert "adata.layers['none'] = adata.X" in refused(load_file, path=annotated, layer="none").repair
    for name in ("layer", "label_column"):
        assert refused_argument(load_file, path=annotated, **{name: "none"}) == name
    # a model finds its genes by their names, in whatever order they stand
    config, _ = read_own_experiment(tmp_path / "dense.npz", [("model.likelihood", ["negative-binomial"])])
    rows = read_rows(annotated, config.model, columns=GENES[::-1], reading=TableReading(layer="counts"))
    assert torch.equal(rows.x[:], torch.from_numpy(COUNTS[:, ::-1].astype(np.float32)))


@pytest.mark.filterwarnings("ignore")  # of anndata about the version of pandas
def test_codes_and_scores_come_back_in_the_annotated_matrix(tmp_path, annotated):
    anndata = pytest.importorskip("anndata")
    run, out, codes, both = (tmp_path / name for name in ("run", "out.h5ad", "codes.npz", "both.h5ad"))

    def status(*words):
        return main([str(word) for word in words])

    words = ["--data.layer", "counts", "--data.label-column", "kind", "--training.num-epochs", "1"]
    words += ["--model.likelihood", "negative-binomial", "--size", "smoke", "--run-dir", run]
    assert status("train", "--data", annotated, *words) == 0
    assert status("encode", run, "--data", annotated, "--out", codes) == 0
    assert status("encode", run, "--data", annotated, "--out", out) == 0
    assert status("score", run, "--data", out, "--num-samples", "3", "--out", both) == 0
    found, before = anndata.read_h5ad(both), anndata.read_h5ad(annotated)
    np.testing.assert_array_equal(found.obsm["X_dvae"], np.load(codes)["bits"])
    assert next(iter(found.obs)) == "kind"
    assert found.obs["dvae_log_likelihood"].dtype == np.float64
    assert (found.obs_names == before.obs_names).all()
    assert (found.layers["counts"] != before.layers["counts"]).nnz == 0
    assert status("encode", run, "--out", out) == 2
    assert status("encode", run, "--data", annotated, "--num-examples", "3", "--out", out) == 2
