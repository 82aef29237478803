"""What cannot be done is refused in one line that begins with what was typed; nothing is written or lost."""

import shutil

import matplotlib.font_manager  # noqa: F401  which writes a cache into a new home
import numpy as np
import pytest

from discrete_vae.runs.io import read_json, write_json
from tests.cli.conftest import TINY, refusal, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:the last doubling", "ignore:bridge sampling")

LADDER = "--training.sampler.inverse-temperatures 0.5 0.2"
BASELINE = "--training.gradient.baseline learned --training.gradient.baseline.hidden 1000000000000"

# an argument, a colon, and the command line that it is wrong in
CASES = """
VERB:
VERB: frobnicate
--frob: --frob
RUN: sample
--out: sample RUN --out
--seed: sample RUN --seed=--
dvae sample: sample RUN RUN2 RUN3
--accept-changed-config: sample RUN --accept-changed-config=1
--std-error: log-partition RUN --std-error x
--health-sweeps: log-partition RUN --health-sweeps 3
--seed: sample RUN --seed 18446744073709551616
--num-examples: evaluate RUN --num-examples 1e3
--model.smoothing: evaluate RUN --model.smoothing ramps
KIND: list digits
--resume: train digits --resume=yes
--training.num-epochs: train digits --training.num-epochs
dvae train: train digits --training.num-epochs 1 2
--run-dir: train digits --size smoke --run-dir file
--run-dir: train digits --run-dir ~nouser/x
--data.missing-values: train --data x.npy --data.missing-values -999
--data.decimal: train --data x.npy --data.decimal ,
--data.label-units: train --data x.npy --data.label-units y
--data.label-units: train --data other.npz --data.label-units y
--logger: train digits --logger wandb
--device: validate digits --device cuda:99
--data: validate --data ~nouser/x.npy
RUN: evaluate none
RUN: score ~nouser/x
NAME: cite ~nouser/x
RUN: evaluate .
RUN: evaluate trained/config.json
--checkpoint: evaluate empty
--checkpoint: evaluate trained --checkpoint 3
--checkpoint: evaluate trained --checkpoint -1
--num-examples: evaluate trained --num-examples 7
--precision: evaluate trained --precision half
--num-samples: evaluate trained --num-samples 0
--data-dir: evaluate trained --data-dir /no/such/folder
--out: evaluate trained --out x.txt
--per-example: evaluate trained --per-example x.txt
--out: evaluate --pretrained digits
--pretrained: sample trained --pretrained digits
--pretrained: sample --pretrained digist
--checkpoint: sample --pretrained digits --checkpoint 3
--out: sample trained --out grid.jpg
pairs.npy/grid.png: sample trained --out pairs.npy/grid.png
taken.png: sample trained --out taken.png
--start: sample trained --start fersh
none.npy: sample trained --start none.npy
--start: sample trained --start pairs.npy
--num-chains: sample trained --num-chains 21
--burn-in: sample trained --burn-in -3
--num-draws: sample trained --num-draws 5
images: sample images --start fresh --num-chains 99999999999999999
images: sample images --num-draws 100000
NAME: figure evolutio
RUN: figure evolution
dvae figure: figure evolution RUN RUN2
--out: figure training-curves trained --out a.jpg
taken.csv: figure training-curves trained --out taken.svg
--data-dir: figure training-curves trained --data-dir=
RUN: figure log-partition-histogram trained
--std-error: log-partition trained --std-error 0
--out: log-partition trained --out histogram.txt
file/z.json: log-partition trained --out file/z.json
--out: refit trained --out trained/new
--out: refit trained --out trained
--out: refit trained --out file
--out: refit trained --out loop
--batch-size: refit trained --batch-size 200
--model-share: refit trained --model-share 1.5
--learning-rate: refit trained --learning-rate 0
--out: release trained --license mit
--license: release trained --out new
trained/evaluation.json: release trained --out new --license mit
--out: report trained --out page.pdf
taken.html: report trained --out taken.html
--labels: report trained --labels few.npy
--labels: report trained --labels two.csv
--labels: report trained --labels labels.txt
NAME: cite mnist-statik
--out: encode trained
--out: encode trained --out x.txt
wide.npy/x.npz: encode trained --out wide.npy/x.npz
--out: encode trained --out wide.npy --data wide.npy
wide.npy: encode trained --out x.npz --data wide.npy
twos.npy: encode trained --out x.npz --data twos.npy
none.npy: encode trained --out x.npz --data none.npy
gaps.npy: encode trained --out x.npz --data gaps.npy
--part: encode trained --out x.npz --data gaps.npy --part test
--what: encode trained --out x.npz --what continuous
--label-column: encode trained --out x.npz --label-column kind
--num-examples: encode trained --out x.npz --num-examples 100
none.npy: score trained --threshold-from none.npy
--num-draws: reconstruct trained --statistic mode --num-draws 2
--data: denoise trained
--data: denoise table
--noise: denoise trained --noise 0.7
--noise: denoise table --noise 0.1
RUN: predict trained
--to: interpolate trained --from 1 --to 99
--num-pairs: interpolate trained --num-pairs 4
--picture: interpolate trained --picture x.png
--data: impute trained --data short.npy --out o.npz
--mask: impute trained --data gaps.npy --out o.npz --mask short.npy
--mask: impute trained --data gaps.npy --out o.npz --mask number.npy
--mask: impute trained --data gaps.npy --out o.npz --mask twos.npy
--mask: impute trained --data gaps.npy --out o.npz --mask records.npy
--num-steps: impute trained --data gaps.npy --out o.npz --num-steps 5
--truncated: impute trained --data gaps.npy --out o.npz --method chains --truncated
--num-rounds: impute trained --data gaps.npy --out o.npz --num-samples 3
--mode: impute table --data gaps.csv --out o.npz --mode
--num-examples: impute table --data gaps.csv --out o.csv --num-examples 1
--out: impute table --data gaps.csv --out gaps.csv
-n: generate trained --out o.npz
--out: generate trained -n 3
--clamp: generate trained -n 3 --out o.npz --clamp 1=2
--clamp: generate trained -n 3 --out o.npz --clamp 1=1,1=0
--clamp: generate trained -n 3 --out o.npz --clamp 5=1
--clamp: generate trained -n 3 --out o.npz --clamp 0=1,1=1,2=1,3=0,4=0
--bias: generate trained -n 3 --out o.npz --bias 7=0.5
--bias: generate trained -n 3 --out o.npz --bias field.npy
--label: generate trained -n 3 --out o.npz --label 1
--label: generate trained -n 3 --out o.npz --label 7 --labels labels.npy
--labels: generate trained -n 3 --out o.npz --label 1 --labels few.npy
--labels: generate trained -n 3 --out o.npz --label 1 --labels many.npy --data short.npy
--data: generate trained -n 3 --out o.npz --data gaps.npy
--part: generate trained -n 3 --out o.npz --part valid
--labels: generate trained -n 3 --out o.npz --labels labels.npy
-k: neighbors trained --out o.npz -k 49
--start: sample trained --start words.npy
--start: sample trained --start twos.npy
--start: sample trained --start nothing.npy
--start: sample trained --start field.npy
--data: evaluate --data x.npy
EXPERIMENT: train
EXPERIMENT: validate digits --data x.npy
--data-dir: validate digits --data-dir /no/such/folder
--training.batch-size: validate digits --training.batch-size 1
model.posterior: validate digits --size smoke --model.posterior.hidden 3000000000
"""

# the same of settings of dvae train digits --size smoke
SETTINGS = f"""
--training.batch-size: --training.batch-size 5000
--evaluation.num-annealed-chains: --evaluation.num-annealed-chains 1
--evaluation.num-examples: --evaluation.num-examples 251
--evaluation.seed: --evaluation.seed {2**64}
--training.beta-bound.start: --training.beta-bound.start 1e300
--training.num-sweeps: --training.num-sweeps {2**63 - 1}
--training.num-epochs: --training.num-epochs many
--training.num-epochs: --training.num-epochs {"9" * 5000}
--evaluation.max-memory: --evaluation.max-memory 1e308
--training.sampler.inverse-temperatures: --training.sampler parallel-tempering {LADDER}
--training.sampler.num-chains: --training.sampler.num-chains 3000000000
--evaluation.num-annealed-chains: --evaluation.num-annealed-chains 3000000000
model.prior: --model.prior.num-left 3000000000
model: --model.posterior.hidden 3000000000 3000000000
--model.prior: --model.prior graph --model.prior.num-units 9999999 --model.prior.edges complete
--model.event-shape: --model.event-shape 65
num_groups: --model.posterior.groups 100
num_valid + num_test: --data.num-valid 5000
ExperimentConfig.training.num_importance_samples: --training.gradient disarm --training.num-importance-samples 4
--training.gradient.num-samples: --training.gradient leave-one-out --training.gradient.num-samples 1
--training.gradient: --training.gradient reinforce {BASELINE}
--training.gradient: --training.gradient straight-through
--training.gradient.baseline: --training.gradient disarm --training.gradient.baseline none
"""


ARRAYS = {
    "wide": np.zeros((2, 13)),
    "pairs": np.zeros((60, 2)),
    "twos": np.full((2, 12), 2),
    "gaps": np.full((2, 12), np.nan),
    "short": np.zeros((1, 12), bool),
    "number": np.array(True),
    "records": np.zeros((2, 12), "V3"),
    "words": np.full((2, 12), "1"),
    "field": np.zeros(4),
    "few": np.zeros(3, int),
    "many": np.arange(61) % 2,
    "labels": np.arange(48) % 2,
    "nothing": np.zeros((0, 5)),
    "x": np.eye(12),
}


@pytest.fixture(scope="module")
def folder(trained_once, table_run, images_run, tmp_path_factory):
    """A folder with runs and files that do not fit them, and all that is in it."""
    folder = tmp_path_factory.mktemp("refusals")
    for name, array in ARRAYS.items():
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "other.npz", x=np.eye(12))
    runs = {"trained": trained_once, "empty": trained_once, "table": table_run / "run", "images": images_run}
    for name, run in runs.items():
        shutil.copytree(run, folder / name)
    shutil.rmtree(folder / "empty" / "checkpoints")
    for name, ending in (("own", "npz"), ("owntable", "csv")):  # as runs whose data were this file
        shutil.copytree(trained_once, folder / name)
        config = read_json(trained_once / "config.json")
        config["data"]["path"] = str(folder / f"{name}.{ending}")
        write_json(folder / name / "config.json", config)
        (folder / f"{name}.{ending}").write_text("what the run was trained on")
    shutil.copy(table_run / "gaps.csv", folder / "gaps.csv")
    (folder / "two.csv").write_text("a,b\n1,2\n")
    (folder / "labels.txt").write_text("1\n")
    for name in ("taken.html", "taken.csv", "taken.png"):
        (folder / name).mkdir()
    (folder / "file").touch()
    (folder / "loop").symlink_to("loop")
    return folder, snapshot(folder)


@pytest.fixture
def refused(cli, folder, monkeypatch):
    """Run a command in that folder, which must fail and leave everything as it was; returns its error."""
    monkeypatch.chdir(folder[0])

    def run(*words):
        error = refusal(cli(*words))
        assert snapshot(folder[0]) == folder[1]
        return error

    return run


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_what_cannot_be_done_is_refused(refused, case):
    argument, _, words = case.partition(":")
    assert refused(*(words.split() or [""])).startswith(f"error: {argument} ")


def test_settings_that_cannot_work_are_refused_at_the_start(refused):
    for argument, words in (line.split(": ") for line in SETTINGS.strip().splitlines()):
        error = refused("train", "digits", "--size", "smoke", *words.split())
        assert error.startswith(f"error: {argument} "), error
        assert len(error) < 500


@pytest.mark.parametrize(
    "words",
    [
        "encode trained --data ~/x.npy --out ~/x.npy",
        "score trained --data other.npz --threshold-from x.npy --out x.npy",
        "neighbors trained --data other.npz --among ~/x.npy -k 2 --out x.npy",
        "impute trained --data other.npz --mask x.npy --out x.npy",
        "impute trained --data other.npz --mask x.npy --std-errors x.npy --out y.npy",
        "impute trained --data other.npz --mask x.npy --std-errors y-1.csv --draws 2 --out y.csv",
        "generate trained -n 1 --label all --labels x.npy --out x.npy",
        "encode own --data x.npy --out own.npz",
        "score own --threshold-from valid --data x.npy --out own.npz",
        "evaluate own --per-example own.npz",
        "evaluate own --out own/config.json",
        "figure training-curves owntable --out owntable.png",
    ],
)
def test_no_result_replaces_what_is_read_or_trained_on(refused, folder, monkeypatch, words):
    monkeypatch.setenv("HOME", str(folder[0]))
    assert "must be another file than those that are read" in refused(*words.split())


def test_paths_that_are_none_or_that_config_json_could_not_hold_are_refused(refused):
    assert "none.npy must exist" in refused("train", "--data", "none.npy", *TINY)
    assert refused("evaluate", "").startswith("error: RUN must")
    assert refused("train", "--resume", "--run-dir", "").startswith("error: --run-dir must")
    for run_dir in ("", "runs/\udcff", "a\0b"):
        error = refused("train", "--data", "x.npy", "--run-dir", run_dir, *TINY)
        assert error.startswith("error: --run-dir ")
    assert "thousands" in refused("train", "--data", "x.csv", "--data.thousands", "\udcff", *TINY)
    error = refused("train", "--data", "bad\udcff.npy", "--run-dir", "run", *TINY)
    assert error.startswith("error: --data ")
