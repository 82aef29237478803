"""Fault campaigns from the command line: all of them, one, or a single case with its output.

python -m tests.campaigns                     all campaigns at their long size; writes docs/reliability.md's table
python -m tests.campaigns NAME --cases 200    one campaign, without writing
python -m tests.campaigns NAME --case 17      one case, with what it did
python -m tests.campaigns --serve             one bounded campaign per name on standard input, for the tests
"""

import argparse
import importlib
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from tests.campaigns import engine
from tests.campaigns.engine import FAULTS, Outcome

for module in (
    *("kills", "processes", "disks", "run_folders", "forged_results", "names", "arrays"),
    *("command_lines", "api_calls", "steps", "planted"),
):
    importlib.import_module(f"tests.campaigns.{module}")
CAMPAIGNS = {name: campaign for name, campaign in engine.CAMPAIGNS.items() if name != "planted"}

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_BEGIN, _END = "<!-- counts: written by make campaign -->", "<!-- end of counts -->"
_HEADS = {Outcome.REFUSED: "refused", Outcome.EQUAL: "unharmed", Outcome.OTHER: "other"}


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=list(CAMPAIGNS), help="one campaign; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, help="how many; default: the campaign's long size")
    parser.add_argument("--case", type=int, help="one case alone, with its output")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, help="processes; default: one per core")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the table of all campaigns is written")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1" or os.environ.get("NUMBA_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1 and NUMBA_NUM_THREADS=1: cases are forked")
    engine.warm_up()
    if options.serve:
        for line in sys.stdin:
            campaign = engine.CAMPAIGNS[line.strip()]
            report = engine.run(campaign, seed=options.seed, numbers=campaign.sample)
            print(json.dumps(report._asdict()), flush=True)
        return 0
    reports = []
    for campaign in [CAMPAIGNS[options.name]] if options.name else CAMPAIGNS.values():
        numbers = range(options.cases or campaign.long) if options.case is None else [options.case]
        report = engine.run(
            campaign, seed=options.seed, numbers=numbers, jobs=min(options.jobs, len(numbers))
        )
        for number, outcome, detail in report.faults:
            print(f"--- {campaign.name} --seed {options.seed} --case {number}: {outcome}\n{detail}\n")
        counts = ", ".join(f"{count} {name}" for name, count in sorted(report.counts.items()))
        struck, faults = f"{report.struck} struck", f"{len(report.faults)} faults"
        print(f"{report.name}: {report.cases} cases, {struck}, {counts}; {faults}; {report.seconds:.0f} s")
        reports.append(report)
    text = _table(reports)
    print(text)
    if not options.name:
        _write(options.page, text)
    return int(any(report.faults for report in reports))


def _table(reports):
    """The counts of several campaigns in Markdown, after a line that names the machine."""
    lines = [["campaign", "cases", "struck", *_HEADS.values(), "faults"], ["---", *["---:"] * 6]]
    for each in reports:
        counts = [each.counts.get(outcome, 0) for outcome in (*_HEADS, *FAULTS)]
        what = f"`{each.name}`: {CAMPAIGNS[each.name].what}"
        lines.append([what, each.cases, each.struck, *counts[:3], sum(counts[3:])])
    shown = "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)
    packages = ("discrete-vae", "torch", "numpy", "numba")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    minutes = sum(report.seconds for report in reports) / 60
    return (
        f"Python {platform.python_version()}, {versions}; {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, one thread; {minutes:.0f} minutes in all.\n\n{shown}"
    )


def _write(page, text):
    """Put the table between the marks of a page."""
    before, mark, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not mark or not end:
        raise SystemExit(f"{page} lacks the lines {_BEGIN} and {_END}")
    page.write_text(f"{before}{mark}\n\n{text}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
