"""Does an edit by position change what it should, and no other byte?"""

from __future__ import annotations

import pytest

from dragoman.migrate.yamledit import CannotEdit, Editor

BLOCK = "a: 1   # one\nb:\n  # above\n  c: x\n  d: [1, 2]\ne: |\n  text\n\nf: end\n"


def test_a_field_goes_with_its_comments() -> None:
    ed = Editor(BLOCK)
    assert ed.remove(("b", "c")) == (("# above",), "")
    ed.check()
    assert ed.text == BLOCK.replace("  # above\n  c: x\n", "")


def test_a_field_behind_a_block_scalar_keeps_its_blank_line() -> None:
    ed = Editor(BLOCK)
    ed.insert((), "g", {"h": ["i"]}, after="e")
    ed.check()
    assert ed.text == BLOCK.replace("  text\n", "  text\ng:\n  h:\n  - i\n")


def test_flow_style_keeps_its_commas() -> None:
    ed = Editor("{a: {b: 1, c: 2, d: 3}}\n")
    ed.remove(("a", "c"))
    ed.remove(("a", "d"))
    ed.insert(("a",), "e", [{"f": "x: y"}], before="b")
    ed.check()
    assert ed.text == '{a: {e: [{f: "x: y"}], b: 1}}\n'


def test_scalars_keep_their_quotes() -> None:
    ed = Editor('a: \'x\'\nb: "y"\n"c": z\n')
    ed.set_scalar(("a",), "it's")
    ed.set_scalar(("b",), 3)
    ed.rename(("c",), "d")
    ed.check()
    assert ed.text == "a: 'it''s'\nb: \"3\"\n\"d\": z\n"


def test_the_first_field_of_an_entry_hands_its_dash_on() -> None:
    ed = Editor("- a: 1\n  b: 2\n")
    ed.remove((0, "a"))
    ed.check()
    assert ed.text == "- b: 2\n"


def test_a_shared_anchor_is_refused() -> None:
    ed = Editor("a: &x {b: 1, c: 2}\nd: *x\n")
    ed.remove(("a", "b"))
    with pytest.raises(CannotEdit, match="anchors"):
        ed.check()


def test_what_comes_through_a_merge_key_is_refused() -> None:
    with pytest.raises(CannotEdit):
        Editor("a: &x {b: 1}\nd:\n  <<: *x\n").remove(("d", "b"))
