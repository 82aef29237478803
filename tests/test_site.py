"""The documentation as a reader sees it: it builds, fits a phone and a screen, can be read, and its search finds."""

import functools
import http.server
import json
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built pages, and what the build wrote to standard error."""
    pytest.importorskip("sphinx", reason="Sphinx, of the extra docs, is not installed")
    pytest.importorskip("myst_nb", reason="myst-nb, of the extra docs, is not installed")
    folder = tmp_path_factory.mktemp("site")
    how = ["-W", "--keep-going", "-q", "-E", "-b", "html", "-t", "without_sources"]
    # neither warns, and both take time: names in the navigation of each page, and the page of all names
    how += ["-D", "toc_object_entries=0", "-D", "html_use_index=0"]
    # little of what it makes is garbage, for which Python would look through all of it again and again
    build = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", build, *how, ROOT / "docs", folder]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (folder / "index.html").is_file(), built.stderr
    return folder, built


def test_the_documentation_builds_without_a_warning(site):
    _, built = site
    assert built.returncode == 0, built.stderr


# A page of ours loads the pages of the site in frames of a given size, measures them, and sends what it found here.

HARNESS = """<!doctype html><body><script type="module">
const jobs = JOBS, found = [];
async function frame(job) {
  const frame = document.createElement("iframe");
  frame.width = job.width; frame.height = 900; frame.style.border = "0"; frame.src = job.page;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  try { found.push({...job, ...await MEASURE(frame.contentWindow, job)}); }
  catch (error) { found.push({...job, problems: [String(error)]}); }
  frame.remove();
}
await Promise.all([0, 1, 2, 3].map(async () => { while (jobs.length) await frame(jobs.pop()); }));
fetch("/found", {method: "POST", body: JSON.stringify(found)});
</script>"""

LAYOUT = r"""async (view, job) => {
  const document = view.document, problems = [], label = at =>
    `${at.tagName.toLowerCase()}.${at.className} ${at.textContent.trim().slice(0, 50)}`;
  document.querySelectorAll("img[loading]").forEach(image => image.loading = "eager");
  if (view.MathJax?.startup) await view.MathJax.startup.promise;
  const all = [...document.body.querySelectorAll("*")], style = new Map(all.map(at => [at, view.getComputedStyle(at)]));
  const shown = at => at.checkVisibility({visibilityProperty: true}) && at.getClientRects().length;
  const hidden = "script, style, svg, mjx-assistive-mml, .visually-hidden, .unseen, .sd-stretched-link, .headerlink";
  const drawers = `${hidden}, .sidebar-drawer, .toc-drawer`;  // at 390 px beside the screen until they are asked for
  const whole = document.documentElement.scrollWidth, scrollers = "pre, .table-wrapper, .sig, div.math";
  if (whole > job.width) problems.push(`the page is ${whole} wide`);
  for (const at of all) {
    if (at.closest(drawers) || !shown(at)) continue;
    const overflow = style.get(at).overflowX, box = at.getBoundingClientRect();
    if (at.scrollWidth > at.clientWidth + 1 && at.clientWidth > 0 && style.get(at).display != "inline") {
      if (overflow == "hidden" || overflow == "clip") problems.push(`cut: ${label(at)}`);
      if (overflow == "auto" || overflow == "scroll") {
        if (!at.matches(scrollers)) problems.push(`scrolls: ${label(at)}`);
        else if (!style.get(at).backgroundImage.includes("gradient")) problems.push(`no cue: ${label(at)}`);
      }
    }
    if (box.right > job.width + 1 && !at.closest(scrollers)) problems.push(`outside: ${label(at)}`);
  }
  const channel = value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parse = color => { const n = color.match(/[\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = (top, below) => top.slice(0, 3).map((value, i) => value * top[3] + below[i] * (1 - top[3]));
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  for (const theme of ["light", "dark"]) {
    document.body.dataset.theme = theme;
    const walker = document.createTreeWalker(document.body, view.NodeFilter.SHOW_TEXT), seen = new Set();
    while (walker.nextNode()) {
      const at = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || seen.has(at) || at.closest(hidden) || !shown(at)) continue;
      seen.add(at);
      const layers = [];
      for (let below = at; below; below = below.parentElement)
        layers.push(parse(view.getComputedStyle(below).backgroundColor));
      const back = layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
      const text = light(over(parse(view.getComputedStyle(at).color), back));
      const [low, high] = [text, light(back)].sort((a, b) => a - b);
      const ratio = (high + 0.05) / (low + 0.05);
      if (ratio < 4.5) problems.push(`${theme}: contrast ${ratio.toFixed(1)}: ${label(at)}`);
    }
  }
  return {problems};
}"""

SEARCH = r"""async (view, job) => {
  for (let wait = 0; wait < 200; wait++) {
    const link = view.document.querySelector("ul.search li a");
    if (link && /found|finished/i.test(view.document.querySelector(".search-summary")?.textContent ?? ""))
      return {first: link.getAttribute("href")};
    await new Promise(done => setTimeout(done, 50));
  }
  return {first: null};
}"""


def measure(folder: Path, jobs: list[dict], script: str, scratch: Path) -> list[dict]:
    """What a script finds on pages, each in a frame of a given width."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: pages were not looked at")
    received: queue.Queue[list[dict]] = queue.Queue()
    harness = HARNESS.replace("JOBS", json.dumps(jobs)).replace("MEASURE", f"({script})")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            if self.path != "/harness":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            return self.wfile.write(harness.encode())

        def do_POST(self):
            received.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = "headless no-sandbox disable-gpu disable-quic no-first-run disable-sync hide-scrollbars "
    options += "disable-background-networking disable-component-update remote-debugging-port=0"
    address = f"http://127.0.0.1:{server.server_port}/harness"
    words = [f"--{option}" for option in (*options.split(), f"user-data-dir={scratch}")]
    command = [CHROMIUM, *words, address]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return received.get(timeout=300)
    finally:
        browser.kill()
        browser.wait()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_and_can_be_read(site, width, tmp_path):
    folder, _ = site
    pages = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
    jobs = [{"page": f"/{page}", "width": width} for page in pages]
    found = measure(folder, jobs, LAYOUT, tmp_path / "browser")
    assert len(found) == len(pages)
    problems = [f"{job['page']}: {problem}" for job in found for problem in job["problems"]]
    assert not problems, "\n".join(problems)


def test_a_page_that_does_not_fit_is_found(tmp_path):
    faults = {
        "wide": "<p style='width: 500px'>text</p>",
        "cut": "<div style='overflow: hidden; width: 90px'><p style='width: 300px'>text</p></div>",
        "scrolls": "<div style='overflow: auto; width: 90px'><p style='width: 300px'>text</p></div>",
        "no cue": "<pre style='overflow: auto; width: 90px'>" + "text " * 50 + "</pre>",
        "contrast": "<p style='color: #999'>text</p>",
    }
    for name, body in faults.items():
        page = f"<!doctype html><body style='background: white'>{body}"
        (tmp_path / f"{name}.html").write_text(page)
    jobs = [{"page": f"/{name}.html", "width": 390} for name in faults]
    found = measure(tmp_path, jobs, LAYOUT, tmp_path / "browser")
    assert {job["page"]: bool(job["problems"]) for job in found} == {f"/{name}.html": True for name in faults}


SOUGHT = {
    "csv": "your-own-data",
    "missing values": "impute",
    "own loop": "own-loop",
    "citation": "citing",
    "gpu": "faq",
    "learning rate": "which-settings",
}


def test_the_search_finds_the_page_first(site, tmp_path):
    folder, _ = site
    jobs = [{"page": f"/search.html?q={words.replace(' ', '+')}", "width": 1280} for words in SOUGHT]
    found = {job["page"]: job["first"] or "" for job in measure(folder, jobs, SEARCH, tmp_path / "browser")}
    first = {words: found[f"/search.html?q={words.replace(' ', '+')}"] for words in SOUGHT}
    assert {words: page.partition(".html")[0] for words, page in first.items()} == SOUGHT
