from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api import yamltext
from dragoman.api.yamltext import Broken

# sentence: text, value by kubectl's rules
SCALARS: dict[str, tuple[str, Any]] = {
    "yes, on and y are true": ("[yes, On, y, TRUE]", [True, True, True, True]),
    "no, off and N are false": ("[no, Off, N, false]", [False, False, False, False]),
    "quoted words are text": ("['yes', \"on\"]", ["yes", "on"]),
    "other spellings are text": ("[yEs, oN, tRUE]", ["yEs", "oN", "tRUE"]),
    "a leading zero is octal": ("0777", 511),
    "0o is octal, 0x hexadecimal, 0b binary": ("[0o17, 0x1F, 0b11]", [15, 31, 3]),
    "digits that are not octal are a number": ("08", 8),
    "underscores are skipped": ("1_000", 1000),
    "an exponent makes a number": ("[1e3, 1.5E+2]", [1000, 150]),
    "a whole float is an integer": ("1.0", 1),
    "a fraction stays": ("[1.5, .5, -.5]", [1.5, 0.5, -0.5]),
    "more than 64 bits are a float": ("123456789012345678901234567890", int(1.2345678901234568e29)),
    "a date is text": ("2026-01-01", "2026-01-01"),
    "a time is text": ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    "colons do not make a number": ("1:30", "1:30"),
    "nothing, ~ and Null are null": ("[~, Null, ]", [None, None]),
    "keys become text": ("{1: a, true: b, yes: c, 1.5: d, a: e}", {"1": "a", "true": "c", "1.5": "d", "a": "e"}),
    "the last of equal keys wins": ("{a: 1, a: 2}", {"a": 2}),
    "merge keys merge": ("{u: &u {a: 1, b: 1}, v: {<<: *u, b: 2}}", {"u": {"a": 1, "b": 1}, "v": {"a": 1, "b": 2}}),
    "an equals sign is text": ("=", "="),
    "!!str makes text": ("!!str 1", "1"),
    "a tag of somebody's own is ignored": ("[!thing a, !thing {b: 1}]", ["a", {"b": 1}]),
}


@pytest.mark.parametrize(("text", "value"), SCALARS.values(), ids=SCALARS)
def test_scalars_are_read_as_kubectl_reads_them(text: str, value: Any) -> None:
    got = yamltext.parse_exact(f"a: {text}", "f")["a"]
    if isinstance(value, int) and value > 2**64:
        assert got == pytest.approx(value)
    else:
        assert json.dumps(got) == json.dumps(value)
    fast = yamltext.parse_fast(f"a: {text}\n")
    assert fast is None or json.dumps(fast["a"]) == json.dumps(value)


plain = st.one_of(
    st.sampled_from(
        [
            "yes",
            "no",
            "on",
            "off",
            "y",
            "n",
            "Y",
            "N",
            "true",
            "True",
            "~",
            "null",
            "0",
            "00",
            "07",
            "0o7",
            "08",
            "1_0",
            "1e3",
            "1.",
            ".5",
            "-.5",
            "+1",
            "0x1f",
            "0b1",
            ".inf",
            "-.INF",
            ".nan",
            "1:30",
            "<<",
            "=",
            "1.0",
            "2026-01-01",
            "abc",
            "a-b",
            "a.b",
            "on-off",
            "1.2.3",
            "1Gi",
            "100m",
            "12",
            "-3",
            "!foo",
        ]
    ),
    st.from_regex(r"[a-zA-Z0-9_.+-]{1,6}", fullmatch=True),
)
KUBECTL = Path(sys.executable).with_name("kubectl")
ODD = """
a: [yes, No, y, N, on, OFF, true, False, yEs, "yes"]
b: [0777, 08, 09.5, 0o17, 0O17, 0x1F, 0X1f, 0x, 0b11, -0b11, 0B11, 0b_1, 1_0, 1__0, 1_, 0_7, 1_0.5, 1_0e2, +1, -0.0]
c: [1e3, 1e+3, 1e-7, 1.0, 1., .5, -.5, +.5, 0.1e1, 1.5e300, 1e400]
d: [2026-01-01, 2026-01-01T00:00:00Z, 1:30, =, <<, 1.2.3, 100m, 1Gi]
e: {1: a, 1.5: b, true: c, off: d, 1e3: f, 2.0: g, 0x10: h}
f: [!!str 1, !!float 1, !!int "7", !!binary aGk=, !thing x]
g: [~, null, NULL, Null, ""]
h: {u: &u {a: 1, b: 1}, v: {<<: *u, b: 2}, w: *u}
i: {a: 1, a: 2}
"""


@pytest.mark.slow
@pytest.mark.skipif(not KUBECTL.exists(), reason="kubectl is not installed beside the interpreter")
def test_odd_texts_are_read_as_the_real_kubectl_reads_them() -> None:
    spec = "".join(f"  {line}\n" for line in ODD.strip().splitlines())
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\nspec:\n{spec}"
    command = [KUBECTL, "label", "--local", "-f", "-", "x=y", "-o", "json"]
    shown = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=30).stdout
    theirs, ours = json.loads(shown)["spec"], yamltext.parse_exact(text, "f")["spec"]
    assert {key: json.dumps(value, sort_keys=True) for key, value in ours.items()} == {
        key: json.dumps(value, sort_keys=True) for key, value in theirs.items()
    }


quoted = st.sampled_from(["'yes'", '"on"', "'0777'", '"a: b"', "'- x'"])
scalar = st.one_of(plain, quoted)


@st.composite
def yaml_texts(draw: st.DrawFn) -> str:
    """Block mappings and sequences, flow collections, comments and block scalars with odd plain scalars."""
    lines = []
    for index in range(draw(st.integers(1, 5))):
        key = draw(st.one_of(st.just(f"k{index}"), plain))
        match draw(st.integers(0, 5)):
            case 0:
                lines.append(f"{key}: {draw(scalar)}")
            case 1:
                lines += [f"{key}:", *(f"- {draw(scalar)}" for _ in range(draw(st.integers(1, 3))))]
            case 2:
                lines.append(f"{key}: [{draw(scalar)}, {draw(scalar)}]  # on")
            case 3:
                lines.append(f"{key}: {{a: {draw(scalar)}, {draw(scalar)}: b}}")
            case 4:
                lines += [f"{key}: |", f"  {draw(plain)}", "  depends on"]
            case _:
                lines += [f"{key}:", f"  - {draw(plain)}: {draw(scalar)}", f"    z: {draw(scalar)}"]
    return "\n".join(lines) + "\n"


@given(yaml_texts())
def test_the_fast_parser_never_differs(text: str) -> None:
    fast = yamltext.parse_fast(text)
    if fast is not None:
        assert json.dumps(fast) == json.dumps(yamltext.parse_exact(text, "f"))


ITEM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b\n\nc", "on": "yes"}}


def dump(count: int, **more: Any) -> str:
    items = [json.loads(json.dumps({**ITEM, "metadata": {"name": f"x{i}"}})) for i in range(count)]
    return yaml.safe_dump(
        {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}, **more}
    )


def test_a_dump_is_cut_into_its_items() -> None:
    text = dump(400)
    assert len(text) > yamltext.FAST_FROM
    found = list(yamltext.chunks(text, "f"))
    assert [c.item for c in found] == list(range(400))
    assert [c.value for c in found] == yaml.safe_load(text)["items"]
    assert max(len(c.text) for c in found) < 300, "an item knows its own text only"
    lines = text.splitlines()
    for chunk in found[::37]:
        assert lines[yamltext.span_of(chunk, ("metadata", "name")).line - 1].strip() == f"name: x{chunk.item}"


def test_a_small_list_is_read_whole_and_knows_its_lines() -> None:
    text = "# head\n---\n" + dump(3)
    found = list(yamltext.chunks(text, "f"))
    assert [c.value["metadata"]["name"] for c in found] == ["x0", "x1", "x2"]
    lines = text.splitlines()
    assert [lines[yamltext.span_of(c, ("metadata", "name")).line - 1].strip() for c in found] == [
        "name: x0",
        "name: x1",
        "name: x2",
    ]


def test_an_alias_across_items_is_read_whole() -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n- kind: A\n  x: &x {big: "
        + "z" * yamltext.FAST_FROM
        + "}\n- kind: B\n  z: *x\n"
    )
    first, second = yamltext.chunks(text, "f")
    assert first.value["x"] == second.value["z"]


def test_items_of_a_typed_list_get_their_kind() -> None:
    text = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n"
    assert [c.value for c in yamltext.chunks(text, "f")] == [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    ]


DOCUMENTS: dict[str, tuple[str, list[tuple[int, int, str]]]] = {
    "documents are separated by ---": ("kind: a\n---\nkind: b\n", [(1, 1, "a"), (2, 2, "b")]),
    "empty documents and comments are passed over": ("# x\n---\n\n---\nkind: a\n---\n# end\n", [(1, 4, "a")]),
    "a null document is nothing": ("~\n---\nkind: a\n", [(2, 2, "a")]),
    "a directive and an end mark are fine": ("%YAML 1.1\n---\nkind: a\n...\n", [(1, 2, "a")]),
    "content may follow the mark": ("--- {kind: a}\n--- # note\nkind: b\n", [(1, 1, "a"), (2, 2, "b")]),
    "a mark inside text is text": ("kind: a\nx: |\n  ---\n  y\n", [(1, 1, "a")]),
    "JSON is read": ('{"kind": "a"}', [(1, 1, "a")]),
    "several JSON texts are read": ('{"kind": "a"}\n\n{"kind": "b"}\n', [(1, 1, "a"), (2, 3, "b")]),
    "YAML in flow style is read": ("{kind: a}\n---\n{kind: b}\n", [(1, 1, "a"), (2, 2, "b")]),
    "a byte order mark is ignored": ("\ufeffkind: a\n", [(1, 1, "a")]),
    "nothing is nothing": ("", []),
    "Windows line ends are fine": ("kind: a\r\n---\r\nkind: b\r\n", [(1, 1, "a"), (2, 2, "b")]),
}


@pytest.mark.parametrize(("text", "expected"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_documents(text: str, expected: list[tuple[int, int, str]]) -> None:
    assert [(c.document, c.line, c.value["kind"]) for c in yamltext.chunks(text, "f")] == expected


BROKEN: dict[str, tuple[str, int, int, str]] = {
    "a tab as indentation": ("kind: a\n---\nkind: b\nspec:\n\tx: 1\n", 2, 5, "broken YAML"),
    "an unclosed bracket": ("kind: [a\n", 1, 2, "broken YAML"),
    "a colon in plain text": ("kind: a\nname: b: c\n", 1, 2, "mapping values are not allowed"),
    "broken JSON": ('{"kind": "a",\n "b" 1}', 1, 2, "broken JSON"),
    "a text instead of an object": ("just words\n", 1, 0, "must be an object with apiVersion and kind, got text"),
    "a list instead of an object": ("- a\n", 1, 0, "must be an object with apiVersion and kind, got a list"),
    "infinity": ("kind: .inf\n", 1, 1, "not a number of JSON"),
    "an alias to itself": ("kind: &a [*a]\n", 1, 1, "nested deeper"),
    "a null key": ("kind: a\n~: b\n", 1, 1, "a key must be a string, got null"),
    "deep JSON that is not closed": ('{"a":' * 6000 + "1" + "}" * 5000, 1, 0, "nested too deeply"),
    "very many brackets": ("a: " + "[" * 100_000, 1, 1, "more than 5000 brackets are open"),
    "very many brackets in a large text": ("a: " + "{a: " * 100_000, 1, 1, "more than 5000 brackets are open"),
    "a mapping that is none": ("kind: a\nx: !!map [1, 2]\n", 1, 2, "expected a mapping"),
    "a list of numbers": ("kind: List\nitems: [1, 2]\n", 1, 1, "items[0] must be an object, got a number"),
    "aliases of aliases": (
        "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)),
        1,
        1,
        "excessive aliasing",
    ),
}


def test_deep_json_is_read() -> None:
    (chunk,) = yamltext.chunks('{"kind": "a", "x": ' + "[" * 5000 + "]" * 5000 + "}", "f")
    assert chunk.value["kind"] == "a"


def test_half_characters_are_replaced_as_go_replaces_them() -> None:
    (chunk,) = yamltext.chunks(r'{"kind": "\ud800", "a": "\ud83d\ude00", "b": "x\udc00y"}', "f")
    assert chunk.value == {"kind": "\ufffd", "a": "\U0001f600", "b": "x\ufffdy"}


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, "-" + "7" * 400])
def test_numbers_beyond_all_types_of_go_stay_text(number: str) -> None:
    assert yamltext.parse_exact(f"a: {number}", "f") == {"a": number}


@pytest.mark.parametrize(("text", "document", "line", "what"), BROKEN.values(), ids=BROKEN)
def test_broken_texts_name_the_place(text: str, document: int, line: int, what: str) -> None:
    with pytest.raises(Broken, match=r"f\.yaml, document") as caught:
        list(yamltext.chunks(text, "f.yaml"))
    assert (caught.value.document, caught.value.line) == (document, line)
    assert what in caught.value.what


def test_texts_that_multiply_themselves_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamltext, "NODES_MAX", 1000)
    text = "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
    with pytest.raises(Broken, match="more than 1000 values"):
        yamltext.parse_exact(text, "f")


TEXT = """\
a: {b: 1, "c d": [x, {y: "é, z"}]}   # text
list:
- name: one
  block:
    k: |
      text
- {n: null, m: }
text: "two
  lines"
"""


@pytest.mark.parametrize(
    ("path", "line", "shown", "named"),
    [
        (("a",), 1, '{b: 1, "c d": [x, {y: "é, z"}]}', "a"),
        (("a", "b"), 1, "1", "b"),
        (("a", "c d", 0), 1, "x", "x"),
        (("a", "c d", 1, "y"), 1, '"é, z"', "y"),
        (("a", "c d", 9), 1, '[x, {y: "é, z"}]', '"c d"'),
        (("a", "z"), 1, '{b: 1, "c d": [x, {y: "é, z"}]}', "a"),
        (("list",), 2, "list", "list"),
        (("list", 0), 3, "", ""),
        (("list", 0, "name"), 3, "one", "name"),
        (("list", 0, "block"), 4, "block", "block"),
        (("list", 0, "block", "k"), 5, "k", "k"),
        (("list", 1, "n"), 7, "null", "n"),
        (("list", 1, "m"), 7, "m", "m"),
        (("text",), 8, "text", "text"),
        (("nowhere",), 1, "", ""),
        ((), 1, "", ""),
    ],
)
def test_the_value_of_a_field_has_its_place_in_the_line(
    path: tuple[str | int, ...], line: int, shown: str, named: str
) -> None:
    (chunk,) = yamltext.chunks(f"# comment\n---\n{TEXT}", "f.yaml")
    for wanted, is_named in ((shown, False), (named, True)):
        at, start, end = yamltext.span_of(chunk, path, named=is_named)
        expected = 2 if not path or path == ("nowhere",) else line + 2
        assert (at, f"# comment\n---\n{TEXT}".splitlines()[at - 1][start:end]) == (expected, wanted)
