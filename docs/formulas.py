"""What a page shows better than a terminal: formulas of docstrings in TeX, and numbers for the paper's labels."""

import functools
import re
from pathlib import Path

# A semicolon is where a line may end on a narrow screen.
TEX = {
    "p(x, h, zeta, z) = p(z) r(zeta|z) p(h|zeta) p(x|zeta,h)": (
        r"p(x, h, \zeta, z) =; p(z) \, r(\zeta \mid z) \,; p(h \mid \zeta) \, p(x \mid \zeta, h)"
    ),
    "p(x, h, zeta, z | c) = p(z) r(zeta|z) p(h|zeta,c) p(x|zeta,h,c)": (
        r"p(x, h, \zeta, z \mid c) =; p(z) \, r(\zeta \mid z) \,; p(h \mid \zeta, c) \, p(x \mid \zeta, h, c)"
    ),
    "q(z, zeta, h | x)": r"q(z, \zeta, h \mid x)",
    "q(z, zeta, h | x, c)": r"q(z, \zeta, h \mid x, c)",
    "E(z) = -(z_L^T W z_R + b_L^T z_L + b_R^T z_R)": (
        r"E(z) = -(z_L^\top W z_R + b_L^\top z_L + b_R^\top z_R)"
    ),
    "r(zeta|z)": r"r(\zeta \mid z)",
    "q(z = 1) = sigmoid(l)": r"q(z = 1) = \sigma(l)",
    "q(zeta) = sum_z q(z) r(zeta|z)": r"q(\zeta) = \sum_z q(z) \, r(\zeta \mid z)",
    "zeta = F^-1(rho), rho ~ U(0,1)": r"\zeta = F^{-1}(\rho),; \rho \sim U(0, 1)",
    "r(zeta|z=1) = beta e^(beta zeta) / (e^beta - 1)": (
        r"r(\zeta \mid z = 1) = \beta e^{\beta \zeta} / (e^\beta - 1)"
    ),
    "v = (1 - rho)/q and c = 1 - e^-beta: zeta = 1 + log(1 - v c) / beta": (
        r"v = (1 - \rho) / q,; c = 1 - e^{-\beta}:; \zeta = 1 + \log(1 - v c) / \beta"
    ),
    "e^beta / beta^2": r"e^\beta / \beta^2",
    "log p(x | zeta, h)": r"\log p(x \mid \zeta, h)",
    "(sum w)^2 / sum w^2": r"(\sum w)^2 / \sum w^2",
}
_LONGEST_FIRST = "|".join(re.escape(text) for text in sorted(TEX, key=len, reverse=True))
used: set[str] = set()
"""The formulas that some docstring has; one that none has is out of date."""


def in_tex(line: str) -> str:
    """Set the formulas of a line of a docstring in TeX."""

    def replace(found: re.Match[str]) -> str:
        used.add(found[0])
        return " ".join(f":math:`{part.strip()}`" for part in TEX[found[0]].split(";"))

    return re.sub(rf"(?<![\w`(])(?:{_LONGEST_FIRST})(?![\w`])", replace, line)


@functools.cache
def numbers() -> dict[str, dict[str, str]]:
    """The numbers of the paper's equations and sections by their labels, from the paper map."""
    page = Path(__file__).with_name("paper-map.md").read_text(encoding="utf-8")
    tables = {part.splitlines()[0]: part for part in page.split("\n## ")[1:]}
    found = {}
    for kind, title in {"eq": "Equations", "section": "Sections and appendices"}.items():
        rows = re.findall(r"^\| ([\w.]+) \| `(?:\w+:)?([\w-]+)` \|", tables[title], re.MULTILINE)
        found[kind] = {label: number for number, label in rows}
    return found


def with_numbers(text: str) -> str:
    """Put the number of the paper's equation or section before each label: "eq. 11 (RBM-grad)".

    Examples:
        >>> with_numbers("Source: Rolfe 2017, sections spike-and-exponential and architecture.")
        'Source: Rolfe 2017, sections 2.1 (spike-and-exponential) and H (architecture).'
    """
    for kind, words in {"eq": r"eqs?\.", "section": r"(?:sections?|appendix|appendices)"}.items():
        labels = numbers()[kind]
        label = rf"(?:sec:|eq:)?({'|'.join(sorted(map(re.escape, labels), key=len, reverse=True))})(?![\w-])"
        text = re.sub(
            rf"\b{words}\s+{label}(?:(?:,\s+|,?\s+and\s+){label})*",
            lambda found, label=label, labels=labels: re.sub(
                rf"(?<![\w-]){label}", lambda at: f"{labels[at[1]]} ({at[1]})", found[0]
            ),
            text,
        )
    return text
