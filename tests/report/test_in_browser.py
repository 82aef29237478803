"""The page in a browser: nothing is asked of a network, nothing goes wrong, nothing is cut off on a phone."""

import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--window-size=390,844",
]
PROBE = """<script>addEventListener("load", () => {
const images = [...document.images], root = document.documentElement;
const wide = [...document.querySelectorAll("main *")].filter(e => !e.closest(".table, .unseen") &&
  e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80));
const small = [...document.querySelectorAll("svg text, p, td, th, dd, li, figcaption")].filter(e =>
  e.textContent.trim() && e.getClientRects().length && e.getBoundingClientRect().height < 9).map(e => e.outerHTML);
document.body.innerHTML = ""; const found = document.createElement("pre"); found.id = "found";
found.textContent = JSON.stringify({width: innerWidth, page: root.scrollWidth, wide, small, images: images.length,
  broken: images.filter(i => !i.complete || !i.naturalWidth).length,
  asked: performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("data:"))});
document.body.append(found); });</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_on_a_phone(image_page, tmp_path):
    policy = "default-src &#x27;none&#x27;"
    assert policy in image_page.text
    text = image_page.text.replace(policy, f"{policy}; script-src &#x27;unsafe-inline&#x27;")
    file = tmp_path / "page.html"
    file.write_text(text.replace("</body>", f"{PROBE}</body>"))
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ":CONSOLE" not in done.stderr, done.stderr
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr[-2000:]
    found = json.loads(match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert found["images"] == len(image_page.of("img"))
    assert found["broken"] == 0
    assert found["asked"] == []
    assert found["width"] <= 500  # the least that some versions make of a window
    assert found["page"] <= found["width"], found["wide"]
    assert found["wide"] == []
    assert found["small"] == []
