"""Runs to report on: images with labels, a table with strange names and missing values, layers."""

import shlex
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest

from discrete_vae.cli import main
from discrete_vae.report import make_report
from tests.cli.conftest import TINY

STRANGE = '<script>alert("1")</script>'
_TINY = shlex.join([*TINY, "--training.num-epochs", "4", "--training.sampler.num-chains", "40"])
_VOID = {"meta", "link", "img", "br", "hr"}


class Page(HTMLParser):
    """A page's elements; refuses tags that do not close as they opened."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.values, self.sections, self.words = text, [], [], [], []
        self._open = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        assert len(given) == len(attrs), attrs
        self.tags.append((tag, given))
        if tag == "data":
            self.values.append(given["value"])
        if tag == "section":
            self.sections.append(given["id"])
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def said(self):
        return " ".join(" ".join(self.words).split())

    def of(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


def page_of(run, **asked):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Page(make_report(run, **asked))


def trained(folder, *words):
    run = folder / "run"
    assert main(["train", *map(str, words), "--run-dir", str(run), *shlex.split(_TINY)]) == 0
    return run


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Digits in 8x8 pixels, which have labels, with two Gaussian layers; trained, evaluated, with repeats of log Z."""
    layers = shlex.split(
        "--model.hierarchy gaussian --model.hierarchy.num-layers 2 --model.hierarchy.num-units 3 "
        "--model.hierarchy.posterior-hidden 6 --model.hierarchy.prior-hidden 6"
    )
    run = trained(tmp_path_factory.mktemp("images"), "digits", "--training.num-examples", "300", *layers)
    assert main(["evaluate", str(run), "--num-samples", "20", "--num-examples", "30"]) == 0
    asked = ["--repeats", "3", "--std-error", "0.1", "--health-sweeps", "20"]
    assert main(["log-partition", str(run), *asked]) == 0
    return run


@pytest.fixture(scope="session")
def table_file(tmp_path_factory):
    """A table of 120 rows in three clusters, one feature of which is called like a script."""
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, 120)
    bits = (random.random((120, 9)) < np.eye(3).repeat(3, 1)[kind] * 0.8 + 0.1).astype(int)
    names = [STRANGE.replace('"', '""'), *(f"gene_{index}" for index in range(8))]
    lines = [",".join([f'"{name}"' for name in names])]
    lines += [",".join(map(str, row)) for row in bits.tolist()]
    file = tmp_path_factory.mktemp("table") / "clusters.csv"
    file.write_text("\n".join(lines) + "\n")
    np.save(file.with_name("kinds.npy"), kind)
    return file


@pytest.fixture(scope="session")
def table(tmp_path_factory, table_file):
    """A run of that table, never evaluated."""
    return trained(tmp_path_factory.mktemp("run-of-table"), "--data", table_file)


@pytest.fixture(scope="session")
def image_page(images):
    return page_of(images)


@pytest.fixture(scope="session")
def table_page(table, table_file):
    return page_of(table, labels=table_file.with_name("kinds.npy"))
