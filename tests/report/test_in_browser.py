"""The page in a browser: nothing is asked of a network, nothing goes wrong, nothing is cut off on a phone."""

from tests.test_site import measure

PAGE = r"""view => {
  const document = view.document, all = at => [...document.querySelectorAll(at)], images = [...document.images];
  const box = at => at.getBoundingClientRect(), observer = new view.ReportingObserver(() => {}, {buffered: true});
  const small = at => at.textContent.trim() && at.getClientRects().length && box(at).height < 9;
  observer.observe();
  return {
    images: images.length,
    broken: images.filter(at => !at.complete || !at.naturalWidth).length,
    asked: view.performance.getEntriesByType("resource").map(e => e.name).filter(name => !name.startsWith("data:")),
    refused: observer.takeRecords().map(report => JSON.stringify(report.body)),
    page: document.documentElement.scrollWidth,
    wide: all("main *").filter(at => !at.closest(".table, .unseen") && box(at).right > view.innerWidth + 1)
      .map(at => at.outerHTML.slice(0, 80)),
    small: all("svg text, p, td, th, dd, li, figcaption").filter(small).map(at => at.outerHTML),
  };
}"""


FAULTS = {
    "whole": ("", []),
    "image": ("<img src='data:image/png;base64,AAAA'>", ["broken"]),
    "style": ("<link rel='stylesheet' href='/none.css'>", ["asked", "refused"]),  # by the page's own policy
    "width": ("<p style='width: 500px'>text</p>", ["wide"]),
    "letters": ("<p style='font-size: 5px; line-height: 1'>text</p>", ["small"]),
}


def test_on_a_phone(image_page, tmp_path):
    for name, (fault, _) in FAULTS.items():
        (tmp_path / f"{name}.html").write_text(image_page.text.replace("</main>", f"{fault}</main>"))
    jobs = [{"page": f"/{name}.html", "name": name, "width": 390} for name in FAULTS]
    found = {job["name"]: job for job in measure(tmp_path, jobs, PAGE, tmp_path / "browser")}
    for name, (_, problems) in FAULTS.items():
        assert [
            each for each in ("broken", "asked", "refused", "wide", "small") if found[name][each]
        ] == problems
    assert found["whole"]["images"] == len(image_page.of("img"))
    assert found["whole"]["page"] == 390
