"""What a mistyped setting may have meant."""

from __future__ import annotations

from difflib import get_close_matches

from discrete_vae.experiments.settings import settings, slots

_SHOWN = 3
# words that other programs use for what a setting here calls otherwise
_OTHER_WORDS = {
    "steps": "epochs",
    "iterations": "epochs",
    "optimizer": "optimizer",
    "latents": "units",
    "latent": "units",
    "width": "hidden",
    "widths": "hidden",
    "warmup": "warm-up",
    "depth": "layers",
}


def suggest_setting(path: str) -> str:
    """A sentence that names the settings that a mistyped one may have meant.

    A setting whose last part is the word, "num" aside, comes before one whose last part has the word among others or
    in initials (lr), and that before a part further up; of equals the one nearer to the top comes first.

    Args:
        path: What was typed, without dashes in front.

    Examples:
        >>> suggest_setting("epochs")
        'Did you mean --training.num-epochs? --settings lists them all.'
    """
    known = sorted({*slots(), *settings()}, key=lambda name: (name.count("."), name))
    path = path.replace("_", "-").lower()
    found = _by_word(path.rpartition(".")[2], known)
    in_its_part = [name for name in found if name.rpartition(".")[0] == path.rpartition(".")[0]]
    found = in_its_part or found or get_close_matches(path, known, n=_SHOWN)
    if not found:
        return "Add --settings to list them all."
    return f"Did you mean {' or '.join(f'--{name}' for name in found[:_SHOWN])}? --settings lists them all."


def _by_word(word: str, known: list[str]) -> list[str]:
    """The paths that fit a word best, of those the ones nearest to the top."""
    leaves = {name: name.rpartition(".")[2] for name in known}
    close = get_close_matches(word, set(leaves.values()), n=1, cutoff=0.75)
    for wanted in dict.fromkeys([word, _OTHER_WORDS.get(word, word), *close]):
        bare = wanted.removeprefix("num-")
        ways = [
            [name for name in known if leaves[name].removeprefix("num-") == bare],
            [name for name in known if bare in leaves[name].split("-")],
            [name for name in known if bare == "".join(part[0] for part in leaves[name].split("-"))],
            [name for name in known if bare in name.split(".")],
        ]
        found = next((way for way in ways if way), [])
        if found:
            top = min(name.count(".") for name in found)
            return [name for name in found if name.count(".") == top]
    return []
