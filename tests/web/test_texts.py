"""Are the catalogues of all languages complete, and is every text that the page shows in them?"""

from __future__ import annotations

import json
import re
from importlib.resources import files

from dragoman.explain.objects import DeviceDescription
from dragoman.web.fleet import STATES

STATIC = files("dragoman.web").joinpath("static")
CATALOGUES = {
    file.name.removesuffix(".json"): json.loads(file.read_text()) for file in STATIC.joinpath("lang").iterdir()
}
SOURCES = {file.name: file.read_text() for file in STATIC.iterdir() if file.name.endswith(".js")}
USED = re.compile(r"""\bt\(\s*["'`]([\w.-]+)["'`]""")
BUILT = re.compile(r"""\bt\(\s*(?:`([\w.-]+\.)\$\{|["']([\w.-]+\.)["']\s*\+)""")
LITERALS = re.compile(r"""["']([a-z]+\.[\w.-]+)["']""")


def test_all_languages_have_the_same_texts_with_the_same_places() -> None:
    assert set(CATALOGUES) >= {"en", "ko"}
    english = CATALOGUES["en"]
    for language, catalogue in CATALOGUES.items():
        assert list(catalogue) == sorted(catalogue), language
        assert catalogue.keys() == english.keys(), language
        for key, text in catalogue.items():
            assert text.strip(), (language, key)
            assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", english[key])), (language, key)


def test_the_korean_catalogue_is_korean() -> None:
    same = [key for key, text in CATALOGUES["ko"].items() if not re.search(r"[가-힣]", text)]
    assert not same


def test_every_text_that_is_shown_is_in_the_catalogue_and_no_other() -> None:
    english = CATALOGUES["en"]
    used = {key for source in SOURCES.values() for key in USED.findall(source)}
    prefixes = {a or b for source in SOURCES.values() for a, b in BUILT.findall(source)}
    literals = {key for source in SOURCES.values() for key in LITERALS.findall(source)}
    assert prefixes, "some keys are built"
    missing = sorted(key for key in used if key not in english and not key.endswith("."))
    assert not missing
    idle = [key for key in english if key not in used | literals and not any(map(key.startswith, prefixes))]
    assert not idle


def test_every_state_has_a_name_and_a_meaning() -> None:
    assert DeviceDescription.__doc__
    for state in STATES:
        assert f"state.{state}" in CATALOGUES["en"]
        assert f"meaning.{state}" in CATALOGUES["en"]


def test_the_page_makes_no_html_from_text_and_asks_nobody_else() -> None:
    for name, source in SOURCES.items():
        for wrong in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert wrong not in source, (name, wrong)
        assert "//" not in re.sub(r"^\s*//.*$", "", source, flags=re.MULTILINE), name
    index = STATIC.joinpath("index.html").read_text()
    assert not re.search(r"""(?:src|href)="(?!/static/)""", index)
    assert "style=" not in index
