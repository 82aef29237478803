"""Check what a tool can check of the prose: `python docs/lint.py`, a part of `make lint`.

Sentences have at most 25 words, commands fit 76 characters, pictures have a text for those who cannot see them and a
caption, and no line ends between a value and its error.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS, MOST_LETTERS, SHORTEST_ALT = 25, 76, 20
FENCE = re.compile(r"^(\s*)(```+|~~~+|:::+)(.*)$")


def blocks(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Number of the first line, kind ("console", "python", ..., "prose") and lines of each block."""
    open_fence, kind, lines, start = "", "prose", [], 1
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if found and (not open_fence or (found[2].startswith(open_fence) and not found[3].strip())):
            yield start, kind, lines
            closes = bool(open_fence)
            open_fence = "" if closes else found[2]
            kind = "prose" if closes else found[3].strip() or "text"
            lines, start = [], number + 1
        elif not open_fence and not line.strip():
            yield start, kind, lines
            lines, start = [], number + 1
        else:
            lines.append(line)
    yield start, kind, lines


def paragraphs(lines: list[str], start: int) -> Iterator[tuple[int, str]]:
    """Prose without headings, tables and directives, each item of a list by itself."""
    held, at = [], start
    for number, line in enumerate(lines, start):
        item = re.match(r"\s*([-*+]|\d+\.)\s+", line)
        if item or re.match(r"\s*(#|\||:|<|\(\w|\$\$|\[\w+\]:)", line):
            if held:
                yield at, " ".join(held)
            held, at = [], number
            if item:
                held = [line[item.end() :]]
        else:
            if not held:
                at = number
            held.append(line.strip())
    if held:
        yield at, " ".join(held)


def sentences(text: str) -> list[str]:
    """Sentences of a paragraph; code, formulas and targets of links are a word each."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|<[^>]+>", " ", text)
    text = re.sub(r"\{\w+(:\w+)?\}`([^`<]*)(<[^`]*)?`", r"\2", text)
    text = re.sub(r"`+[^`]+`+|\$[^$]+\$", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\b(e\.g|i\.e|vs|al|eq|eqs|Fig|No|approx)\.", r"\1", text)
    return re.split(r"(?<=[.!?:;])[\"')*_]*\s+", text)


def without(pattern: str, text: str) -> str:
    """The text with empty lines in place of what matches."""
    return re.sub(pattern, lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)


def problems(page: Path) -> Iterator[str]:
    """What is wrong on a page, with its line."""
    text = without(r"\A---\n.*?\n---\n|^\$\$\n.*?^\$\$$", page.read_text(encoding="utf-8"))
    for start, kind, lines in blocks(text):
        if kind == "console":
            for number, line in enumerate(lines, start):
                if line.startswith("$ ") and len(line) > MOST_LETTERS + 2:
                    yield f"{number}: a command of {len(line)} characters; at most {MOST_LETTERS}"
        if kind.startswith("{figure}"):
            alt = next((line.partition(":alt:")[2] for line in lines if ":alt:" in line), "")
            caption = [line for line in lines if line.strip() and not line.startswith(":")]
            if len(alt) < SHORTEST_ALT or not caption:
                yield f"{start}: a figure needs :alt: of {SHORTEST_ALT} characters and a caption"
        if kind != "prose":
            continue
        for number, line in enumerate(lines, start):
            if re.search(r"[\d)] ±|± [\d.]", line):
                yield f"{number}: write no-break spaces around ±"
            for alt in re.findall(r"!\[([^\]]*)\]", line):
                if len(alt) < SHORTEST_ALT:
                    yield f"{number}: a picture needs a text that tells its result; has {alt!r}"
        for number, paragraph in paragraphs(lines, start):
            for sentence in sentences(paragraph):
                words = [word for word in sentence.split() if re.search(r"\w", word)]
                if len(words) > MOST_WORDS:
                    yield f"{number}: {len(words)} words: {' '.join(words[:8])} ..."


def main() -> int:
    """Print what is wrong on the pages given, or on all; 1 if anything is."""
    every = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/*.md"))]
    pages = [Path(name).resolve() for name in sys.argv[1:]] or every
    found = [f"{page}:{each}" for page in pages for each in problems(page)]
    print("\n".join(found) or f"{len(pages)} pages read well.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
