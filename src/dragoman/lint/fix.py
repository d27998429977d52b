"""What does the text look like with its findings fixed? Comments, order and quoting stay; other documents stay as is.

Applies the edits of findings; a finding without edits is for people. Never writes a file.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, FoldedScalarString, ScalarString

from dragoman.api.yamltext import parse_exact
from dragoman.lint.finding import Edit, Finding, ItemPath, Lift, Nest, Remove, Rename, ReplaceText, SetValue

_SEQUENCE = re.compile(r"^( *)\S[^\n]*:[ \t]*\n( *)- ", re.MULTILINE)
_WIDTH = 4096


def fixed(text: str, findings: Iterable[Finding]) -> tuple[str, list[Finding]]:
    """The text of one file with the edits of its findings applied, and the findings that this fixes.

    A document is written again only if something in it changes. Items of a list are edited in their list.
    """
    wanted: dict[int, list[Finding]] = {}
    for finding in findings:
        if finding.edits and finding.document is not None:
            wanted.setdefault(finding.number, []).append(finding)
    if not wanted:
        return text, []
    if text.lstrip()[:1] in ("{", "[") and _is_json(text):
        return _fix_json(text, wanted)
    lines = text.splitlines(keepends=True)
    # From the last to the first, so that lines above stay where they are.
    for number in sorted(wanted, reverse=True):
        document = wanted[number][0].document
        assert document is not None
        start = document.chunk.line - 1
        start = _document_start(lines, start)
        end = _document_end(lines, start)
        part = "".join(lines[start:end])
        lines[start:end] = _rewritten(part, wanted[number]).splitlines(keepends=True)
    return "".join(lines), [finding for number in sorted(wanted) for finding in wanted[number]]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _fix_json(text: str, wanted: dict[int, list[Finding]]) -> tuple[str, list[Finding]]:
    root = json.loads(text)
    done = wanted.get(1, [])
    for path, edit in _edits(done):
        _apply(root, path, edit)
    indent = 2 if "\n" in text.strip() else None
    return json.dumps(root, indent=indent, ensure_ascii=False) + "\n", done


def _is_mark(line: str) -> bool:
    return line.startswith("---") and (len(line) == 3 or line[3].isspace())


def _document_start(lines: list[str], at: int) -> int:
    """The first line of the document that a line is in, without its `---` if that stands alone."""
    while at > 0 and not _is_mark(lines[at]):
        at -= 1
    return at + 1 if _is_mark(lines[at]) and lines[at][3:].split("#")[0].strip() == "" else at


def _document_end(lines: list[str], start: int) -> int:
    end = start + 1
    while end < len(lines) and not _is_mark(lines[end]):
        end += 1
    return end


def _rewritten(part: str, findings: list[Finding]) -> str:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    found = _SEQUENCE.search(part)
    offset = len(found[2]) - len(found[1]) if found else 0
    yaml.indent(mapping=2, sequence=2 + offset, offset=offset)
    root = yaml.load(part)
    for path, edit in _edits(findings):
        _apply(root, path, edit)
    out = io.StringIO()
    yaml.dump(root, out)
    return out.getvalue()


def _edits(findings: list[Finding]) -> list[tuple[ItemPath, Edit]]:
    """Each edit once, with the path of its object in the document; removals of entries come last."""
    seen: list[tuple[ItemPath, Edit]] = []
    for finding in findings:
        base: ItemPath = () if finding.item is None else ("items", finding.item)
        seen += [(base, edit) for edit in finding.edits if (base, edit) not in seen]
    return sorted(seen, key=lambda entry: isinstance(entry[1], Nest | Lift | Remove))


def _apply(root: Any, base: ItemPath, edit: Edit) -> None:
    """One edit, in place; one whose place is gone, because another did its work, changes nothing."""
    try:
        match edit:
            case SetValue(path, value):
                holder, key = _holder(root, base, path)
                holder[key] = _plain(value)
            case Remove(path):
                holder, key = _holder(root, base, path)
                del holder[key]
            case Rename(path, name):
                holder, key = _holder(root, base, path)
                _replace(holder, str(key), {name: holder[key]})
            case ReplaceText(path, old, new):
                holder, key = _holder(root, base, path)
                holder[key] = _replaced(holder[key], old, new)
            case Nest(path, fields, into):
                _nest(_at(root, (*base, *path)), fields, into)
            case Lift(path, child):
                holder = _at(root, (*base, *path))
                _replace(holder, child, dict(holder[child]))
    except (KeyError, IndexError, TypeError):
        return


def _plain(value: Any) -> Any:
    """Text that kubectl would take for something else is quoted."""
    if isinstance(value, str) and not isinstance(parse_exact(f"x: {value}", "")["x"], str):
        return DoubleQuotedScalarString(value)
    return value


def _replaced(text: str, old: str, new: str) -> str:
    """The text with another part, in the style it was written in; a folded one keeps its folds."""
    if not isinstance(text, ScalarString):
        return str(text).replace(old, new)
    made: ScalarString = type(text)(text.replace(old, new))
    if isinstance(text, FoldedScalarString):
        folds = getattr(text, "fold_pos", ())
        made.fold_pos = [at + text.count(old, 0, at) * (len(new) - len(old)) for at in folds]
    if (comment := getattr(text, "comment", None)) is not None:
        made.comment = comment
    assert isinstance(made, str)
    return made


def _at(root: Any, path: ItemPath) -> Any:
    for step in path:
        root = root[step]
    return root


def _holder(root: Any, base: ItemPath, path: ItemPath) -> tuple[Any, str | int]:
    return _at(root, (*base, *path[:-1])), path[-1]


def _nest(holder: Any, fields: tuple[str, ...], into: str) -> None:
    present = [field for field in fields if field in holder]
    if not present:
        return
    inner: Any = CommentedMap() if isinstance(holder, CommentedMap) else {}
    target = holder.get(into)
    if isinstance(target, dict):
        inner = target
    elif isinstance(holder, CommentedMap) and holder.fa.flow_style():
        inner.fa.set_flow_style()
    for field in present:
        inner[field] = holder[field]
        _move_comment(holder, field, inner)
    if not isinstance(target, dict):
        _replace(holder, present[0], {into: inner})
    for field in present:
        holder.pop(field, None)


def _replace(holder: Any, key: str, entries: dict[str, Any]) -> None:
    """Other entries in the place of one; entries that already exist win."""
    old = holder[key]
    place = list(holder).index(key)
    fresh = {name: value for name, value in entries.items() if name == key or name not in holder}
    if isinstance(holder, CommentedMap):
        for name in entries:
            _move_comment(old, name, holder)
        comment = holder.ca.items.get(key)
        del holder[key]
        for index, (name, value) in enumerate(fresh.items()):
            holder.insert(place + index, name, value)
        if comment is not None and len(entries) == 1:
            holder.ca.items.setdefault(next(iter(entries)), comment)
        return
    kept = list(holder.items())
    holder.clear()
    holder.update([*kept[:place], *fresh.items(), *kept[place + 1 :]])


def _move_comment(source: Any, key: str, target: Any) -> None:
    if isinstance(source, CommentedMap) and isinstance(target, CommentedMap) and key in source.ca.items:
        target.ca.items[key] = source.ca.items.pop(key)
