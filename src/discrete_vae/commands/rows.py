"""What the verbs share that take examples through a trained model: where these come from, and where results go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discrete_vae.commands.options import data_dir_option, one_of, option, together, whole_number
from discrete_vae.commands.trained import AskedRun, takes_run
from discrete_vae.paths import user_path

if TYPE_CHECKING:
    import numpy as np

    from discrete_vae.data.rows import Rows
    from discrete_vae.runs.output_file import OutputFile
    from discrete_vae.training.load import LoadedRun

OPTIONS = together(
    option(
        "--data FILE",
        "examples to read, a .npy, .npz, .csv or .parquet file as for training; default: the run's own test part",
    ),
    option(
        "--part train|valid|test",
        "which part of the run's own data, or of a .npz file that has parts; default: test",
        one_of("train", "valid", "test"),
    ),
    option(
        "--label-column NAME",
        "column of the file that holds labels and is no feature; default: the run's, if the file has it",
    ),
    option("--num-examples N", "a fixed random choice of N examples; default: all", whole_number()),
    data_dir_option,
)


@dataclass(frozen=True)
class AskedRows:
    """The examples that the command line names.

    Attributes:
        data: A file; None is the run's own data.
        part: Which part of them.
        label_column: The column of labels.
        num_examples: How many; None is all.
        data_dir: The folder of the data sets.
        at_most: Whether fewer than num_examples will do.
        argument: What messages call the file.
    """

    data: str | None
    part: str | None
    label_column: str | None
    num_examples: int | None
    data_dir: str | None
    at_most: bool = False
    argument: str = "--data"

    def output(
        self, asked: AskedRun, out: str | None, *, argument: str = "--out", **besides: str | None
    ) -> OutputFile | None:
        """Where a result goes, checked before the work; None where it goes nowhere.

        Args:
            asked: The run.
            out: The file.
            argument: What messages call it.
            besides: Other files that the verb reads or writes, by option; none of them may be replaced.

        Raises:
            InvalidInputError: If it cannot be written.
        """
        from discrete_vae.distributed import compute_on_rank_zero
        from discrete_vae.runs.output_file import OutputFile

        if out is None:
            return None
        named = {self.argument: self.data} | {
            f"--{name.replace('_', '-')}": word for name, word in besides.items()
        }
        others = asked.sources + [user_path(name, word) for name, word in named.items() if word is not None]
        return compute_on_rank_zero(lambda: OutputFile(out, argument=argument, others=others))

    def read(
        self, asked: AskedRun, loaded: LoadedRun, *, missing: bool | None = None, labels: str | None = None
    ) -> Rows:
        """Read them.

        Args:
            asked: The run.
            loaded: What was loaded of it.
            missing: Whether values may be missing; None is what the model says.
            labels: A file of their labels, in place of those that they have.

        Raises:
            InvalidInputError: If they cannot be read, or the model cannot read them.
        """
        from discrete_vae.inference.run_rows import rows_of_run

        return rows_of_run(
            asked.directory,
            loaded,
            self.data,
            part=self.part,
            label_column=self.label_column,
            num_examples=self.num_examples,
            at_most=self.at_most,
            missing=missing,
            data_dir=self.data_dir,
            argument=self.argument,
            labels=labels,
        )


def takes_rows(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb a trained run, as its argument `asked`, and examples for it, as its argument `rows`."""

    @wraps(function)
    def run(asked: AskedRun, **given: Any) -> int:
        named = ("data", "part", "label_column", "num_examples", "data_dir")
        source = AskedRows(**{name: given.pop(name) for name in named})
        return function(asked, source, **given)

    return takes_run(OPTIONS(run))


def headline(asked: AskedRun, loaded: LoadedRun, rows: Rows) -> str:
    """The run, its checkpoint and the examples, for the first line that a verb prints."""
    what = f"{asked.name}, checkpoint of step {loaded.step}; {rows.name.rstrip(',')}: {len(rows)} examples"
    if rows.binarized:
        what += "\nValues between 0 and 1 are read as probabilities: bits were drawn with them, once."
    return what


def identity(rows: Rows) -> dict[str, np.ndarray]:
    """What says which example a row of a result is: its number, and its label if it has one."""
    labels = {} if rows.labels is None or rows.labels.ndim != 1 else {"label": rows.labels}
    return {"index": rows.index} | labels


def feature_columns(rows: Rows, x: np.ndarray) -> dict[str, np.ndarray]:
    """The values of examples as columns with the features' names, which --data reads again.

    Args:
        rows: The examples that they belong to.
        x: (row, *event).
    """
    flat = x.reshape(len(x), -1)
    names = rows.columns or [f"x_{number}" for number in range(flat.shape[1])]
    return {name: flat[:, number] for number, name in enumerate(names)}


def write_examples(
    output: OutputFile | None, rows: Rows, x: np.ndarray, arrays: dict[str, np.ndarray]
) -> None:
    """Write what became of examples, a table with the features as columns, and say where it is.

    Args:
        output: Where it goes; None is nowhere.
        rows: The examples.
        x: What became of them, (row, *event).
        arrays: What a .npz file holds besides their numbers and labels.
    """
    if output is not None:
        say_written(output.write(identity(rows) | arrays, array=x, columns=feature_columns(rows, x)))


def say_written(path: Path) -> None:
    """Say where a result is."""
    print(f"Written to {path}")
