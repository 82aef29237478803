"""The report that the site opens, and its picture.

python docs/example_report.py trains the digits in a folder that it forgets. It writes the page into _static and the
picture into images, and needs Chromium.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

from discrete_vae.cli import main

HERE = Path(__file__).parent
PAGE = HERE / "_static" / "example-report.html"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SIZE = 800, 850  # of the part that the picture shows, at two dots per pixel


def make() -> None:
    """Train, judge and report; the run is named as a user's would be."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run = "runs/digits"
        for words in (
            ["train", "digits", "--run-dir", run],
            ["evaluate", run],
            ["log-partition", run, "--repeats", "20"],
            ["report", run],
        ):
            assert main(words) == 0, words
        shutil.copy(Path(run, "report.html"), PAGE)
        shot, options = Path(folder, "shot.png"), "headless no-sandbox disable-gpu hide-scrollbars"
        words = [f"--{option}" for option in options.split()]
        words += [
            f"--window-size={SIZE[0]},{SIZE[1]}",
            "--force-device-scale-factor=2",
            f"--screenshot={shot}",
        ]
        subprocess.run(
            [str(CHROMIUM), *words, f"--user-data-dir={folder}/browser", PAGE.as_uri()], check=True
        )
        Image.open(shot).convert("RGB").quantize(64).save(HERE / "images" / "report.png", optimize=True)


if __name__ == "__main__":
    make()
