"""Does the page work in a real Chromium: seen, by keyboard, in both languages, light and dark, without a violation?

Needs Chromium (Debian's package `chromium`, or the path in DRAGOMAN_TEST_CHROMIUM); skipped by name without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.page import DRIVER

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = os.environ.get("DRAGOMAN_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: install Debian's package `chromium`"),
    pytest.mark.slow,
]
PATIENCE_MS = 20_000
ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / ".venv/axe/package/axe.min.js"
RUN_AXE = """async () => (await axe.run(document, { resultTypes: ['violations'] })).violations
  .map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 3), v.nodes[0].failureSummary])"""

# Accessible name, in short: what a screen reader says of a control.
NAMELESS = """() => [...document.querySelectorAll('button, a[href], input, select, textarea, [role=img]')]
  .filter((e) => e.offsetParent !== null)
  .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || e.title ||
    (e.labels && [...e.labels].some((l) => l.textContent.trim()))))
  .map((e) => e.outerHTML.slice(0, 120))"""
# WCAG 2.2, 1.4.3: contrast of text on the colour behind it, where both are plain colours.
CONTRAST = """() => {
  const parse = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return { rgb: m.slice(0, 3), a: m[3] ?? 1 }; };
  const light = (rgb) => rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.offsetParent === null || e.closest('.out, .skip, option')) continue;
    let back = e, colour = null;
    while (back) {
      const style = getComputedStyle(back);
      if (style.backgroundImage !== 'none') break;
      const one = parse(style.backgroundColor);
      if (one.a === 1) { colour = one.rgb; break; }
      back = back.parentElement;
    }
    if (!colour) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color).rgb), light(colour)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push([e.textContent.trim().slice(0, 40), e.className, ratio.toFixed(2)]);
  }
  return found;
}"""


@pytest.fixture
def address(cluster_file: str) -> Iterator[str]:
    """`dragoman web` over the file; its address."""
    command = [sys.executable, "-m", "dragoman.cli", "web", "-f", cluster_file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium."""
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


class Seen:
    """A page, and what its console and network said."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **{"locale": "en-US", **options})
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.host = address.split("/")[2]
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")

    def go(self, place: str) -> None:
        """Another view."""
        self.page.evaluate("place => { location.hash = place }", place)

    def check(self) -> None:
        """Nothing broke, nobody else was asked, everything has a name and can be read."""
        assert not self.errors
        assert self.hosts == {self.host}
        assert self.page.evaluate(NAMELESS) == []
        assert self.page.evaluate(CONTRAST) == []


def test_the_address_leaves_no_token_and_every_view_is_in_order(browser: Any, address: str) -> None:
    seen = Seen(browser, address)
    page = seen.page
    assert "token" not in page.url
    page.get_by_role("button", name="gpu-0: held").wait_for()
    seen.check()
    for place, text in {
        "waiting": "pods wait for the same reason",
        "time?since=0": "FailedScheduling: nothing fits <img src=x onerror=alert(1)>",
        "editor": "Manifest (YAML or JSON)",
        "fleet?tab=problems": "node not ready",
        "fleet?tab=holders": "lab/mine",
    }.items():
        seen.go(place)
        page.get_by_text(text).first.wait_for()
        for theme in ("dark", "light"):
            page.get_by_label("Theme").select_option(theme)
            seen.check()


def test_by_keyboard_alone_to_the_holder_of_a_device(browser: Any, address: str) -> None:
    seen = Seen(browser, address)
    page = seen.page
    page.get_by_role("button", name="gpu-0: held").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('article[aria-label=\"node-2\"] button.tile')"):
            break
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("gpu-1")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"device {DRIVER}/node-2/gpu-0").wait_for()
    assert page.evaluate("document.activeElement.id") == "detail-title"
    page.locator("aside").get_by_role("button", name="lab/mine").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="claim lab/mine").wait_for()
    page.keyboard.press("Escape")
    page.locator("aside").wait_for(state="detached")
    seen.check()


def test_a_cel_error_is_shown_and_a_filter_works(browser: Any, address: str) -> None:
    seen = Seen(browser, address)
    page = seen.page
    field = page.get_by_label("CEL expression")
    field.fill("device.driver == nothing")
    page.get_by_role("alert").wait_for()
    assert "nothing" in page.get_by_role("alert").inner_text()
    assert field.get_attribute("aria-invalid") == "true"
    seen.errors.clear()  # the browser logs an answer of status 400
    field.fill("model=B7")
    page.get_by_role("alert").wait_for(state="detached")
    page.locator('article[aria-label="node-10"]').wait_for(state="detached")
    seen.check()


def test_a_hint_is_tried_with_one_click(browser: Any, address: str) -> None:
    seen = Seen(browser, address)
    page = seen.page
    page.get_by_role("link", name="Waiting").click()
    page.get_by_role("button", name="Show what would happen").first.click()
    page.get_by_role("heading", name="After").wait_for()
    assert page.locator(".tile.changed").count() > 0
    seen.check()


def test_korean_pages_have_no_english_text_of_ours(browser: Any, address: str) -> None:
    seen = Seen(browser, address, locale="ko-KR")
    page = seen.page
    assert page.evaluate("document.documentElement.lang") == "ko"
    page.get_by_role("heading", name="전체 장비").wait_for()
    page.get_by_role("link", name="대기 중").click()
    page.get_by_role("heading", name="무엇이 왜 대기 중인가").wait_for()
    page.get_by_label("언어").select_option("en")
    page.get_by_role("heading", name="What waits, and why").wait_for()
    seen.check()


def test_a_manifest_is_judged_as_it_is_typed(browser: Any, address: str) -> None:
    seen = Seen(browser, address)
    page = seen.page
    page.get_by_role("link", name="Editor").click()
    spec = "{devices: {requests: [{name: g, exactly: {deviceClassName: %s}}]}}"
    claim = f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: a}}\nspec: {spec}\n"
    page.get_by_label("Manifest").fill(claim % "gpuz")
    page.locator(".finding").first.wait_for()
    page.get_by_label("Manifest").fill(claim % "gpus")
    page.get_by_text("No problems found.").wait_for()
    seen.check()


PLACES = [
    "fleet",
    "fleet?tab=holders",
    "fleet?tab=problems",
    "waiting",
    "time?since=0",
    "editor",
    "fleet?open=node||node-2",
]


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: run `make axe`")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
def test_axe_finds_no_violation(browser: Any, address: str, theme: str, locale: str) -> None:
    seen = Seen(browser, address, color_scheme=theme, locale=locale)
    script = AXE.read_text()
    found = {}
    for place in PLACES:
        seen.go(place)
        seen.page.locator(".loading").first.wait_for(state="detached")
        seen.page.locator("main h1").wait_for()
        seen.page.evaluate(script)
        assert seen.page.evaluate("axe.version")
        if violations := seen.page.evaluate(RUN_AXE):
            found[place] = violations
    assert not found
