"""Wrong and extreme command lines, made from the tables of verbs, options and settings themselves."""

import os
import re
import shlex
import shutil

import click
import numpy as np

from discrete_vae.cli import dvae
from discrete_vae.cli.options import VERBS
from discrete_vae.config.overrides import settings, slots
from discrete_vae.figures.registry import FIGURES
from tests.campaigns.engine import Campaign, Finding, Outcome, refusal
from tests.campaigns.forked import call
from tests.campaigns.tiny_runs import prepare, snapshot
from tests.cli.conftest import TINY

_NEVER_NUMBERS = ("", " ", *re.split(" ", "x nan NaN inf -inf 1e400 1,5 0x10 true? None? ζ {} [ --"))
_NUMBERS = re.split(
    r"\s+",
    """0 -1 1 2 3 0.5 1e-300 -0.0 1e300 1.5 1e9 3000000000 9223372036854775807 9223372036854775808
    -9223372036854775809 18446744073709551616 ٣ 1_000 +5 007""",
)
_NUMBERS.append("1" + "0" * 400)
_WORDS = ("", *re.split(" ", "- -- \udcff \x1b[31m ζ 😀 ~nouser/x . none true '"))
_TEXTS = (*_NEVER_NUMBERS, *_NUMBERS, *_WORDS, "a" * 5000, "[1, 2]", "a\nb")
_PLACES = ". ~nouser/x /dev/null/x /proc/x \udcff missing/x.png x.tiff ζ.png data"
_PATHS = ("", "a" * 300, *re.split(" ", _PLACES))
_STRANGE_STATES = ("<f4", ">f4", "|b1", "<u8", "<f2", "<c8", "<U3", "<M8[D]", "<f16", "|S2", ">i8", "<i2")


@Campaign(
    "command-lines",
    "a command line with a wrong, extreme, missing or repeated word",
    bounded=16,
    long=2200,
    prepare=prepare,
)
def command_lines(stage, chosen, number, folder):
    """Make a command line, run it in the empty folder, and judge it."""
    shutil.copytree(stage.unbroken, folder / "run")
    make = chosen.choice([*[_with_setting] * 3, *[_with_option] * 2, _swapped, _words])
    words, never = make(stage, chosen, folder)
    before = snapshot(folder)
    long = any(re.fullmatch(r"(.*=)?\+?[\d_]{4,}|.*e\d+", word) for word in words)
    ended = call(words, limit=2.5 if long else 30.0, first=lambda: os.chdir(folder))
    if ended.status is None:
        began = long and words[0] != "validate"
        return Finding(Outcome.OTHER if began else Outcome.CRASHED, str(ended))
    if ended.status == 0:
        fault = "Traceback" in ended.err or never
        return Finding(Outcome.WRONG if fault else Outcome.OTHER, f"taken\n{ended}")
    found = refusal(ended, statuses=(1, 2), before=ended.status == 2)
    if found.outcome == Outcome.REFUSED and ended.status == 2 and snapshot(folder) != before:
        return Finding(Outcome.WRONG, f"refused, but something was written\n{ended}")
    return found


def _base(stage, chosen):
    verb = chosen.choice(["train", "train", "validate"])
    return [verb, "--data", str(stage.data), *TINY, *(["--run-dir", "new"] if verb == "train" else [])]


def _with_setting(stage, chosen, folder):
    """One setting with any value; the component that it belongs to is put in first."""
    found = settings()
    path = chosen.choice(sorted(found))
    setting = chosen.choice(found[path])
    kinds = re.findall(r"int|float|str|bool|Literal", str(setting.field.annotation))
    number = bool(kinds) and set(kinds) <= {"int", "float"}
    value = chosen.choice(_NUMBERS if number and chosen.random() < 0.6 else _TEXTS)
    words = [*_base(stage, chosen), *_owners(setting), f"--{path}={value}"]
    if chosen.random() < 0.1:
        words.append(f"--{path}={chosen.choice(_TEXTS)}")  # the last of two counts
        value = words[-1].partition("=")[2]
    if chosen.random() < 0.1:
        words[-1] = f"--{path}"
        value = "--"
    return words, number and value in _NEVER_NUMBERS and not setting.many


def _owners(entry):
    """What puts a setting's component into its slot."""
    words = []
    while entry.owner is not None:
        slot, name = entry.owner
        words = [f"--{slot}", name, *words]
        entry = slots()[slot]
    return [] if words[:1] == ["--data"] else words


def _swapped(stage, chosen, folder):
    """Several components swapped and settings small: extreme, but often right."""
    words = _base(stage, chosen)
    for path, slot in chosen.sample(sorted(slots().items()), 2):
        if path != "data":
            words += [f"--{path}", chosen.choice([*slot.members, "nothing"])]
    for path in chosen.sample(sorted(settings()), chosen.randint(0, 2)):
        words += [f"--{path}", chosen.choice(["0", "1", "2", "3", "0.5", "1e-9", "true", "5 5"])]
    return words, False


def _options(verb):
    command = dvae.get_command(click.Context(dvae), verb)
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


_NEEDED = {
    "sample": "--num-rows 2 --num-sweeps 3",
    "refit": "--num-steps 3",
    "encode": "--out codes.npz",
    "release": "--out new --license mit --precision float32",
    "denoise": "--noise 0.1",
    "impute": "--out filled.npz",
    "generate": "-n 3 --num-sweeps 3 --out new.npz",
    "neighbors": "-k 2 --out near.npz",
}


def _with_option(stage, chosen, folder):
    """One option of a verb with any value, or twice, or without one."""
    verb = chosen.choice([name for name in VERBS if _options(name)])
    words = _base(stage, chosen) if verb in ("train", "validate") else [verb, "run"]
    words[0] = verb
    if verb == "figure":
        words[1:1] = [chosen.choice(list(FIGURES))]
    if verb == "validate" and "--run-dir" in words:
        words = words[:-2]
    words += _NEEDED.get(verb, "").split()
    parameter = chosen.choice(_options(verb))
    option, kind = parameter.opts[-1], chosen.random()
    if parameter.is_flag or kind < 0.1:
        return [*words, *[option] * chosen.randint(1, 2)], not parameter.is_flag
    if option == "--start" and kind < 0.7:
        return [*words, option, _states(folder, chosen)], False
    names_place = option in ("--run-dir", "--out", "--data", "--data-dir", "--start", "--labels")
    value = chosen.choice(_PATHS if names_place and kind < 0.7 else _TEXTS)
    reads_number = parameter.callback is not None and option not in ("--size", "--checkpoint")
    return [*words, f"{option}={value}"], value == "" or (reads_number and value in _NEVER_NUMBERS)


def _states(folder, chosen):
    """A file of states for chains, of any type, mostly of another shape than theirs."""
    shape = chosen.choice([(4, 5), (4, 5), (5,), (0, 5), (4, 6), (2, 4, 5), ()])
    values = np.random.default_rng(0).integers(0, 2, shape)
    np.save(folder / "states.npy", values.astype(chosen.choice(_STRANGE_STATES)))
    return "states.npy"


def _words(stage, chosen, folder):
    """Any words in any order."""
    verb = chosen.choice([*VERBS, *VERBS, "trian", "--help ", "-", ""])
    more = shlex.split("run --seed --data --resume --model.prior --Seed -s ---x --x.y=1")
    return [verb, *chosen.choices([*_TEXTS, "digits ", *more], k=chosen.randint(0, 4))], False
