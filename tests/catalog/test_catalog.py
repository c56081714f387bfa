"""The catalog: what it refuses, what its pages say, and that a browser shows them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("core_conformance.report")

from browser import Browser, chromium
from core_conformance.report import digest, summary
from made_reports import made, put

from catalog.site.benchmarks import read_benchmarks
from catalog.site.build import build, bundled_texts, read_content
from catalog.site.content import Content
from catalog.site.names import CatalogError, read_names
from catalog.site.reports import REPORTS, digest_of
from catalog.site.stages import read_stages

ROOT = Path(__file__).resolve().parents[2]
TODAY = date(2026, 12, 1)
NAN = "semantics::SemanticsTests::relu_keeps_nan"
CHOLESKY = "ops::OpTests::op[cholesky-float32]"


def content_of(reports: Path, today: date = TODAY, benchmarks: Path | None = None) -> Content:
    return read_content(today, reports=reports, benchmarks=benchmarks or reports / "none")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A site with reports of three backends and one benchmark."""
    reports, benchmarks = tmp_path_factory.mktemp("reports"), tmp_path_factory.mktemp("benchmarks")
    put(reports, made("inductor"))
    put(reports, made("inductor", profile="smoke", ended="2026-03-01T00:00:00Z"))
    put(reports, made("aot_eager", profile="inference-full", declared=(CHOLESKY,)))
    put(reports, made("dynamo:openvino", failing=(NAN, CHOLESKY), version="2026.4.1"))
    rows = [
        {"model": "mlp", "backend": "eager", "run_us": 200.0},
        {"model": "mlp", "backend": "inductor", "run_us": 100.0, "compile_s": 1.25},
    ]
    benchmark = {"machine": {"cpu": "Made-up 9000", "threads": 2}, "date": "2026-11-20", "rows": rows}
    (benchmarks / "made-up.json").write_text(json.dumps(benchmark))
    out = tmp_path_factory.mktemp("site") / "catalog"
    build(content_of(reports, benchmarks=benchmarks), out)
    return out


# -- what is refused --------------------------------------------------------------------------------------------------


def test_the_catalogs_own_files_are_in_order_and_its_reports_verify():
    content = read_content(TODAY)
    assert {row["name"] for row in content.rows} >= {"eager", "inductor", "openvino", "fx2trt", "nvfuser", "ts"}
    assert len(content.reports) == len(list(REPORTS.rglob("*.json")))


def test_the_tables_that_core_carries_are_those_of_the_catalog():
    stale = [path.name for path, text in bundled_texts(read_content(TODAY)).items() if path.read_text() != text]
    assert not stale, f"run `python -m catalog.site --bundle`: {stale}"


FAILED = made(failing=(NAN,))["summary"]


def changed(data: dict, **changes) -> dict:
    return {**data, **changes}


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lambda data: changed(data, seed=8), "digest"),
        (lambda data: changed(data, digest="0" * 64), "digest"),
        (lambda data: made(changes=1, schema=2), "schema"),
        (lambda data: made(summary={**data["summary"], "passed": 8}), "passed = 8"),
        (lambda data: made(summary={**data["summary"], "total": 8}), "8 tests"),
        (
            lambda data: made(failing=(NAN,), summary={**made(failing=(NAN,))["summary"], "certified": True}),
            "certified",
        ),
        (lambda data: made(tests={**data["tests"], NAN: {"outcome": "wonderful"}}), "wonderful"),
        (lambda data: made(summary={}), "incomplete"),
        (lambda data: made(ended="yesterday"), "incomplete"),
        (lambda data: made(suite="2020.01"), "never released"),
        (lambda data: made("unheard_of"), "no backend"),
        (lambda data: made(precision="partial"), "belong at"),
        (lambda data: made(nonce=""), "nonce"),
        (lambda data: made(declared=(NAN,)), "must-pass"),
    ],
)
def test_a_report_that_does_not_verify_is_refused(spoil, why, tmp_path):
    put(tmp_path, spoil(made()))
    with pytest.raises(CatalogError, match=re.escape(why)):
        content_of(tmp_path)


def test_a_report_in_another_place_is_refused(tmp_path):
    path = put(tmp_path, made())
    path.rename(path.with_name("9.9.9-inference-core-cpu.json"))
    with pytest.raises(CatalogError, match="belong at 2026.12/inductor/0.1.0-inference-core-cpu"):
        content_of(tmp_path)
    path.with_name("9.9.9-inference-core-cpu.json").write_text("{")
    with pytest.raises(CatalogError, match="not JSON"):
        content_of(tmp_path)


def test_a_run_with_another_minor_of_torch_stands_beside(tmp_path):
    put(tmp_path, made())
    other = put(tmp_path / "other", made(environment={"core": "0.1.0", "torch": "2.11.0", "python": "3.12.3"}))
    beside = tmp_path / "2026.12" / "inductor" / "0.1.0-inference-core-cpu-torch2.11.json"
    other.rename(beside)
    content = content_of(tmp_path)
    assert sorted(report.certificate().torch for report in content.reports) == ["2.11", "2.13"]
    beside.rename(beside.with_name("0.1.0-inference-core-cpu-torch2.12.json"))
    with pytest.raises(CatalogError, match="belong at"):
        content_of(tmp_path)


def test_a_report_that_lacks_tests_that_another_one_has_is_refused(tmp_path):
    put(tmp_path, made())
    short = {id: test for id, test in made()["tests"].items() if id != NAN}
    put(tmp_path, made("aot_eager", tests=short, summary=summary(short)))
    with pytest.raises(CatalogError, match=f"aot_eager.* lacks 1 tests of the profile, the first is {NAN}"):
        content_of(tmp_path)


def test_the_command_stops_at_a_report_that_does_not_verify(tmp_path):
    put(tmp_path, changed(made(), seed=8))
    command = [sys.executable, "-m", "catalog.site", "--reports", str(tmp_path), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "digest" in done.stderr and not (tmp_path / "out").exists()


KEYS = 'summary=""\ndistribution=""\nowner=""\n'


@pytest.mark.parametrize(
    "text, why",
    [
        ('name = "mine"', "`summary` is missing"),
        (KEYS + 'name = "other"\ntier="official"\nstate="available"\ninstall="x"', "name"),
        (KEYS + 'name = "mine"\ntier="gold"\nstate="available"\ninstall="x"', "tier"),
        (KEYS + 'name = "mine"\ntier="foreign"\nstate="gone"', "note"),
        (KEYS + 'name = "mine"\ntier="foreign"\nstate="available"', "install"),
        (KEYS + 'name = "mine"\ntier="official"\nstate="available"\ncolour="red"', "colour"),
        ("name =", "TOML"),
    ],
)
def test_a_name_with_a_faulty_file_is_refused(text, why, tmp_path):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(CatalogError, match=why):
        read_names(tmp_path)


def test_two_files_may_not_claim_one_name(tmp_path):
    text = 'summary="x"\ndistribution="x"\nowner="x"\ntier="community"\nstate="available"\ninstall="x"\n'
    (tmp_path / "one.toml").write_text('name = "one"\naliases = ["Two"]\n' + text)
    (tmp_path / "two.toml").write_text('name = "two"\n' + text)
    with pytest.raises(CatalogError, match="claimed by"):
        read_names(tmp_path)


def stages_text(**changes) -> str:
    row = {"model": "mlp", "stage": "convert", "outcome": "passed", "parameters": 10, "note": "", "error": 1e-7}
    rows = [row, {**row, "stage": "run", "outcome": "not run", "error": None, "note": "no GPU"}]
    data = {
        "schema": 1,
        "backend": {"name": "tensorrt", "distribution": "core-tensorrt", "version": "0.1.0"},
        "date": "2026-11-20",
        "machine": {"cpu": "Made-up 9000"},
        "versions": {"torch": "2.13.0"},
        "stages": {"convert": "passed", "run": "not run"},
        "rows": rows,
        **changes,
    }
    return json.dumps({**data, "digest": digest_of(data)})


def test_stages_stand_on_their_backends_page_and_certify_nothing(tmp_path):
    (tmp_path / "tensorrt.json").write_text(stages_text())
    content = read_content(TODAY, reports=tmp_path / "none", benchmarks=tmp_path / "none", stages=tmp_path)
    assert content.stages_of("tensorrt").states == {"convert": "passed", "run": "not run"}
    assert not content.reports and not content.columns
    build(content, tmp_path / "site")
    page = (tmp_path / "site" / "backends" / "tensorrt.html").read_text()
    assert "convert passed, run not run" in page and "This is no certificate" in page and "Made-up 9000" in page


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (stages_text().replace("1e-07", "1e-09"), "digest"),
        (stages_text(stages={"convert": "passed", "run": "passed"}), "its rows say"),
        (stages_text(backend={"name": "onnxrt", "version": "0.1.0"}), "it is of 'onnxrt'"),
        (stages_text(schema=2), "its schema"),
        (stages_text(rows=[{"model": "mlp"}]), "incomplete"),
        ("{", "incomplete"),
    ],
)
def test_stages_that_do_not_verify_are_refused(tmp_path, text, why):
    (tmp_path / "tensorrt.json").write_text(text)
    with pytest.raises(CatalogError, match=why):
        read_stages(tmp_path, ["tensorrt", "onnxrt"])


def test_a_benchmark_without_its_machine_is_refused(tmp_path):
    (tmp_path / "fast.json").write_text(json.dumps({"rows": []}))
    with pytest.raises(CatalogError, match="machine"):
        read_benchmarks(tmp_path)


def test_the_digest_is_the_one_that_the_suite_computes():
    data = made(declarations=[{"reason": "Größe"}])
    assert data["digest"] == digest(data)


def test_a_run_in_a_looser_precision_is_a_claim_of_its_own(tmp_path):
    put(tmp_path, made())
    data = made(precision="bf16")
    put(tmp_path, data).rename(tmp_path / "2026.12/inductor/0.1.0-inference-core@bf16-cpu.json")
    put(tmp_path, made())
    content = content_of(tmp_path)
    assert content.columns == [("inference-core", "cpu"), ("inference-core@bf16", "cpu")]
    assert content.cell("inductor", "inference-core@bf16", "cpu").state == "certified"
    assert {report.certificate().profile for report in content.reports} == {"inference-core", "inference-core@bf16"}


# -- what the pages say -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "today, state", [("2026-12-01", "certified"), ("2027-06-01", "stale"), ("2028-01-01", "expired")]
)
def test_a_certificate_ages_with_the_date_of_the_page(today, state, tmp_path):
    put(tmp_path, made())
    content = content_of(tmp_path, date.fromisoformat(today))
    assert content.cell("inductor", "inference-core", "cpu").state == state
    build(content, tmp_path / "out")
    assert f"mark {state}" in (tmp_path / "out" / "index.html").read_text()


def test_a_newer_version_counts_more_than_an_older_one(tmp_path):
    put(tmp_path, made(version="0.1.0", ended="2026-11-01T00:00:00Z"))
    put(tmp_path, made(version="0.2.0", failing=(NAN,)))
    cell = content_of(tmp_path).cell("inductor", "inference-core", "cpu")
    assert cell.state == "failed" and cell.report.version == "0.2.0"
    assert len(content_of(tmp_path).reports_of("Inductor")) == 2


def test_pages_name_each_failure_and_what_was_seen(site):
    for page in ("backends/dynamo_openvino.html", "reports/2026.12/dynamo-openvino/2026.4.1-inference-core-cpu.html"):
        text = (site / page).read_text()
        assert NAN in text and "nan-positions" in text and "where eager has one" not in text
    assert "No test of inference-core on cpu fails" in (site / "backends/inductor.html").read_text()


def test_a_backend_page_has_its_install_line_and_the_options_of_its_manifest(site):
    text = (site / "backends/inductor.html").read_text()
    assert 'pip install "core[inductor]"' in text and "<code>missing_compiler</code>" in text
    assert "dynamo:openvino" in (site / "backends/dynamo_openvino.html").read_text()
    assert "tensorrt.html" in (site / "backends/fx2trt.html").read_text()


def test_the_operator_table_tells_passing_declared_and_failing_apart(site):
    text = (site / "operators.html").read_text()
    row = next(row for row in text.split("<tr>") if ">cholesky<" in row)
    assert re.findall(r'class="mark (\w+)"', row) == ["stale", "certified", "failed"]


def test_the_benchmark_names_its_machine_and_a_ratio_against_eager(site):
    text = (site / "benchmarks.html").read_text()
    assert "Made-up 9000" in text and "2.00 ×" in text and "1.25" in text


def test_a_pair_of_backends_is_compared_test_by_test(site):
    text = (site / "compare/inductor-dynamo_openvino.html").read_text()
    assert "2 tests of common profiles" in text and NAN in text


def test_the_index_for_machines_has_names_and_states(site):
    index = json.loads((site / "index.json").read_text())
    states = {(each["backend"], each["profile"]): each["state"] for each in index["certificates"]}
    assert states == {
        ("inductor", "inference-core"): "certified",
        ("inductor", "smoke"): "stale",
        ("aot_eager", "inference-full"): "certified",
        ("dynamo:openvino", "inference-core"): "failed",
    }
    assert {row["name"] for row in index["backends"]} >= {"inductor", "fx2trt"}
    for each in index["certificates"]:
        assert json.loads((site / each["report"]).read_text())["digest"] == each["digest"]


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[key] for key in ("href", "src") if given.get(key)]
        self.ids += [given["id"]] if "id" in given else []
        if tag == "th" and given.get("scope") not in ("row", "col"):
            self.faults.append("a th without a scope")
        if tag == "html" and "lang" not in given:
            self.faults.append("no language")


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for path in pages:
        page = _Page(path.read_text())
        assert not page.faults and len(page.ids) == len(set(page.ids)), (path.name, page.faults)
        for link in page.links:
            if link.startswith(("https:", "#", "data:")):
                continue
            assert (path.parent / link.partition("#")[0]).exists(), f"{path.name} links {link}"
        assert not re.search(r'(?:src|rel="stylesheet" href)="https?:', path.read_text())
    assert sum(path.stat().st_size for path in site.iterdir() if path.suffix in (".css", ".js")) < 20_000


def test_texts_of_reports_are_shown_as_text(tmp_path):
    data = made()
    data["tests"][NAN] = {"outcome": "failed", "rule": "<b>", "message": "<script>alert(1)</script>"}
    put(tmp_path, made(tests=data["tests"], summary=summary(data["tests"])))
    build(content_of(tmp_path), tmp_path / "out")
    text = (tmp_path / "out/backends/inductor.html").read_text()
    assert "&lt;script&gt;" in text and "<script>alert" not in text


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if chromium() is None:
        pytest.skip("no chromium is installed")
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


VISIBLE_ROWS = "[...document.querySelectorAll('#matrix tbody tr')].filter(row => row.offsetHeight > 0).length"


@pytest.mark.parametrize("scripts", [True, False])
def test_the_matrix_has_its_rows_with_and_without_scripts(browser, site, scripts):
    browser.open(site / "index.html", scripts=scripts)
    rows = (site / "index.html").read_text().partition('id="gone"')[0].count("<tr data-search")
    assert rows >= 10 and browser.value(VISIBLE_ROWS) == rows
    shown = "document.querySelector('form.find').offsetHeight > 0"
    assert browser.value(shown) is scripts


def test_search_leaves_the_rows_that_have_every_word(browser, site):
    browser.open(site / "index.html")
    search = "(() => { const box = document.querySelector('input[name=words]'); box.value = %r;"
    search += " box.dispatchEvent(new Event('input', {bubbles: true})); })()"
    browser.value(search % "official cpu onnx")
    assert browser.value(VISIBLE_ROWS) == 1
    browser.value(search % "")
    assert browser.value(VISIBLE_ROWS) > 5
    browser.open((site / "index.html").as_uri() + "?q=dynamo_openvino")
    assert browser.value(VISIBLE_ROWS) == 1


def test_the_chooser_opens_the_pair(browser, site):
    browser.open(site / "compare.html")
    choose = "(() => { const form = document.querySelector('form[data-pairs]');"
    choose += " form.elements.left.value = 'dynamo_openvino';"
    choose += " form.elements.right.value = 'inductor'; form.requestSubmit(); })()"
    browser.follow(choose)
    assert browser.value("location.pathname").endswith("compare/inductor-dynamo_openvino.html")


@pytest.mark.parametrize("width", [400, 1200])
def test_no_page_is_wider_than_the_window_and_none_has_an_error(browser, site, width):
    browser.messages.clear()
    for path in sorted(site.rglob("*.html")):
        browser.open(path, width=width)
        wide = browser.value("document.documentElement.scrollWidth")
        assert wide <= width, f"{path.name} is {wide} wide"
    assert not browser.messages


CONTRAST = """
(() => {
  const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number)
    .map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => { while (node) { const c = getComputedStyle(node).backgroundColor;
    if (!/, 0\\)$/.test(c)) return c; node = node.parentElement; } return "rgb(255, 255, 255)"; };
  let worst = [99, ""];
  for (const node of document.querySelectorAll("main *, header *, footer *")) {
    if (![...node.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || !node.offsetHeight) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 80)];
  }
  return worst;
})()
"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_has_contrast_in_light_and_dark(browser, site, dark):
    for page in ("index.html", "backends/dynamo_openvino.html", "operators.html"):
        browser.open(site / page, dark=dark)
        ratio, where = browser.value(CONTRAST)
        assert ratio >= 4.5, where
