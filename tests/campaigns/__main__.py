"""Fault campaigns from the command line: all of them, one, or a single case with its output.

python -m tests.campaigns                     all campaigns at their long size; writes docs/reliability.md's table
python -m tests.campaigns NAME --cases 200    one campaign, without writing
python -m tests.campaigns NAME --case 17      one case, with what it did
python -m tests.campaigns --serve             one bounded campaign per name on standard input, for the tests
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.campaigns import engine, planted, table
from tests.campaigns.all import CAMPAIGNS

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=list(CAMPAIGNS), help="one campaign; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, help="how many; default: the campaign's long size")
    parser.add_argument("--case", type=int, help="one case alone, with its output")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: one per core"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="where the table of all campaigns is written")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1" or os.environ.get("NUMBA_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1 and NUMBA_NUM_THREADS=1: cases are forked")
    engine.warm_up()
    if options.serve:
        for line in sys.stdin:
            campaign = (CAMPAIGNS | {"planted": planted.CAMPAIGN})[line.strip()]
            report = engine.run(campaign, seed=options.seed, numbers=range(campaign.bounded))
            print(report.to_json(), flush=True)
        return 0
    reports = []
    for campaign in [CAMPAIGNS[options.name]] if options.name else CAMPAIGNS.values():
        numbers = range(options.cases or campaign.long) if options.case is None else [options.case]
        report = engine.run_shared(campaign, seed=options.seed, numbers=numbers, jobs=options.jobs)
        for number, outcome, detail in report.faults:
            print(f"--- {campaign.name} --seed {options.seed} --case {number}: {outcome}\n{detail}\n")
        print(table.line(report), flush=True)
        reports.append(report)
    text = table.table([CAMPAIGNS[report.name] for report in reports], reports)
    print(text)
    if not options.name:
        table.write(options.page, text)
    return 1 if any(report.faults for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
