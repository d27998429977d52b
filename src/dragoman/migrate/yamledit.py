"""What does this YAML or JSON text look like with one field changed? Every other byte stays: comments, order, quotes,
indentation, line ends.

An `Editor` holds a text and the value that it says; each edit changes both. In the end the text is read again: it must
say that value, else the edit is refused (`CannotEdit`), as with anchors that two places share.
"""

from __future__ import annotations

import copy
import json
import re
from itertools import pairwise
from typing import Any, NamedTuple

import yaml

from dragoman.api import yamltext

Path = tuple[str | int, ...]

_BLANK_AND_COMMENT = re.compile(r"[ \t]*(?:#[^\n\r]*)?")
_PLAIN = re.compile(r"[A-Za-z0-9_./][^\n\r]*")


class CannotEdit(Exception):
    """The text is written in a way that an edit by position cannot keep. str() says which."""


class Comments(NamedTuple):
    """Of a field that was taken out: lines above it without their indentation, and what followed on its line."""

    above: tuple[str, ...] = ()
    behind: str = ""

    @property
    def present(self) -> bool:
        """Whether there is any."""
        return bool(self.above or self.behind.strip())


NO_COMMENTS = Comments()


class QuotedScalar(NamedTuple):
    """A scalar with the quotes that it is to be written with: ' or " or none."""

    value: Any
    quote: str = ""


class Flow(NamedTuple):
    """A list or map to be written in one line."""

    value: Any


class Editor:
    """One document that is edited. text: as it stands; value: what it says. Raises CannotEdit."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self.value: Any = yamltext.parse_exact(text, "")
        except yamltext.Broken as error:
            raise CannotEdit(f"how it is written ({error.what})") from None
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.changed = False
        self._json = _is_json(text)
        self._ends = text.endswith("\n")
        self._root: Any = None

    # ---- reading

    def node(self, path: Path) -> Any:
        """PyYAML's node of the value at the path. Raises CannotEdit where there is none."""
        return self._entry(path)[1]

    def quote_of(self, path: Path) -> str:
        """The quotes of a scalar: ', " or none."""
        return self.node(path).style or "" if self.node(path).style in ("'", '"') else ""

    def keys(self, path: Path) -> list[str]:
        """The keys of a map in their order."""
        node = self.node(path)
        return [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []

    def line_of(self, path: Path) -> int:
        """The line of a field, from 0."""
        return int(self._entry(path)[0].start_mark.line)

    @property
    def sequence_offset(self) -> int:
        """Blanks by which lists are deeper than their key, as the document has them."""
        return _sequence_offset(self._compose())

    def is_flow(self, path: Path) -> bool:
        """Whether the value is written in braces or brackets."""
        return bool(getattr(self.node(path), "flow_style", False))

    def at(self, path: Path) -> Any:
        """The value at the path, None where there is none."""
        return _at(self.value, path)

    def comments_of(self, path: Path) -> Comments:
        """Those that belong to a field of a block: lines right above it with its indentation, and behind it."""
        key, value = self._entry(path)
        if self._in_flow(path):
            return NO_COMMENTS
        first = self._line_start(key.start_mark.index)
        indent = self.text[first : key.start_mark.index]
        if isinstance(path[-1], int):
            indent = indent[: -len(indent.lstrip(" "))] if indent.strip() == "-" else indent
            if isinstance(value, yaml.MappingNode) and value.value:
                key, value = value.value[0]
        above: list[str] = []
        at = first
        while indent.strip() == "" and at > 0:
            before = self._line_start(at - 1)
            line = self.text[before:at].rstrip("\r\n")
            if not line.startswith(indent + "#"):
                break
            above.insert(0, line[len(indent) :])
            at = before
        behind = ""
        if not _is_block(value):
            found = _BLANK_AND_COMMENT.match(self.text, self._end_of(value, key))
            behind = found[0] if found and "#" in found[0] else ""
        return Comments(tuple(above), behind)

    # ---- edits

    def remove(self, path: Path) -> Comments:
        """Take out a field or an entry, with its comments, which are returned. It must not be the only one."""
        comments = self.comments_of(path)
        parent = self.node(path[:-1])
        key, value = self._entry(path)
        if self._in_flow(path):
            self._cut(*self._flow_extent(parent, path[-1]))
        else:
            start = self._line_start(key.start_mark.index)
            lead = self.text[start : key.start_mark.index]
            if isinstance(path[-1], int):
                lead = lead.rstrip(" -")
            end = self._line_end(self._end_of(value, key))
            if lead.strip():
                # The first field of a list entry: its dash passes to the next one.
                following = self._next_key(parent, path[-1])
                if following is None:
                    raise CannotEdit("the only field of a list entry")
                self._cut(key.start_mark.index, following.start_mark.index)
            else:
                for line in reversed(comments.above):
                    start = self._line_start(start - 1)
                    assert self.text[start:].lstrip(" ").startswith(line)
                self._cut(start, end)
        _remove(self.value, path)
        return comments

    def replace(self, path: Path, key: str, value: Any, comments: Comments = NO_COMMENTS) -> None:
        """Another field in the place of one."""
        parent = path[:-1]
        old_key, old_value = self._entry(path)
        rendered_in_flow = self._in_flow(path)
        if rendered_in_flow:
            start, end = old_key.start_mark.index, self._end_of(old_value, old_key)
            self._set(start, end, self._flow_field(parent, key, value))
        else:
            column = old_key.start_mark.column
            start = old_key.start_mark.index
            end = self._end_of(old_value, old_key)
            if comments.present:  # what stands behind is among them
                behind = _BLANK_AND_COMMENT.match(self.text, end)
                end = behind.end() if behind is not None and "#" in behind[0] else end
            lines = self._block_field(parent, key, value, column, comments)
            heading = self._heading(old_key, old_value)
            if heading:
                at = next(n for n, line in enumerate(lines) if line.lstrip(" ").startswith(f"{_scalar(key, '')}:"))
                lines[at] += heading
            text = self.newline.join(lines)
            self._set(start, end, text.lstrip(" "))
        _replace(self.value, path, key, _bare(value))

    def insert(
        self,
        parent: Path,
        key: str,
        value: Any,
        *,
        before: str | None = None,
        after: str | None = None,
        comments: Comments = NO_COMMENTS,
    ) -> None:
        """A new field of a map: before or after another, else as the last."""
        node = self.node(parent)
        if not isinstance(node, yaml.MappingNode) or not node.value:
            raise CannotEdit("an empty map")
        names = [name.value for name, _ in node.value]
        position = names.index(before) if before is not None else (names.index(after) + 1 if after else len(names))
        if node.flow_style:
            self._flow_insert(node, position, self._flow_field(parent, key, value))
        elif position < len(names) and (before is not None or position == 0):
            mark = node.value[position][0].start_mark
            start = self._line_start(mark.index)
            if self.text[start : mark.index].strip():
                raise CannotEdit("before the first field of a list entry")
            lines = self._block_field(parent, key, value, mark.column, comments)
            self._set(start, start, self.newline.join(lines) + self.newline)
        else:
            name, last = node.value[position - 1]
            lines = self._block_field(parent, key, value, name.start_mark.column, comments)
            self._add_lines(self._line_end(self._end_of(last, name)), lines)
        _insert(self.value, parent, key, _bare(value), position)

    def append(self, path: Path, value: Any, comments: Comments = NO_COMMENTS) -> None:
        """A new last entry of a list that has some."""
        node = self.node(path)
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise CannotEdit("an empty list")
        if node.flow_style:
            self._flow_insert(node, len(node.value), self._flow(value, self._pretty_indent(node)))
        else:
            last = node.value[-1]
            lines = _block_entry(value, node.start_mark.column, self.sequence_offset, comments)
            self._add_lines(self._line_end(self._end_of(last, last)), lines)
        _at(self.value, path).append(_bare(value))

    def set_scalar(self, path: Path, value: Any) -> None:
        """Another value, with the quotes of the old one."""
        node = self.node(path)
        if not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">"):
            raise CannotEdit("a scalar of several lines")
        quote = node.style if node.style in ("'", '"') else ""
        self._set(node.start_mark.index, node.end_mark.index, _scalar(value, quote, in_flow=self._in_flow(path)))
        _at(self.value, path[:-1])[path[-1]] = str(value) if quote else value

    def rename(self, path: Path, key: str) -> None:
        """Another name for a field, with the quotes of the old one."""
        node, _ = self._entry(path)
        quote = node.style if node.style in ("'", '"') else ""
        self._set(node.start_mark.index, node.end_mark.index, _scalar(key, quote, in_flow=True))
        _replace(self.value, path, key, _at(self.value, path))

    def check(self) -> None:
        """The text must say the value. Raises CannotEdit."""
        if not self.changed:
            return
        if not self._ends:
            self.text = self.text.removesuffix("\n").removesuffix("\r")
        try:
            read = yamltext.parse_exact(self.text, "")
        except yamltext.Broken as error:
            raise CannotEdit(f"how it is written ({error.what})") from None
        if read != self.value:
            raise CannotEdit("anchors, aliases or merge keys that several places share")

    # ---- places

    def _compose(self) -> Any:
        if self._root is None:
            try:
                self._root = yaml.compose(self.text, Loader=yaml.CSafeLoader)
            except yaml.YAMLError as error:
                raise CannotEdit(f"how it is written ({error})") from None
        return self._root

    def _entry(self, path: Path) -> tuple[Any, Any]:
        key, value = None, self._compose()
        for step in path:
            found = _child(value, step)
            if found is None:
                raise CannotEdit(f"{step} is not written here, but through an anchor or a merge key")
            key, value = found
        return (key or value), value

    def _in_flow(self, path: Path) -> bool:
        return any(bool(getattr(self.node(path[:n]), "flow_style", False)) for n in range(len(path)))

    def _end_of(self, node: Any, key: Any) -> int:
        """Behind the last character of a value; of none, behind the colon of its key."""
        if isinstance(node, yaml.ScalarNode):
            if node.start_mark.index == node.end_mark.index:
                end: int = key.end_mark.index
                colon = self.text.find(":", end)
                return colon + 1 if colon >= 0 and not self.text[end:colon].strip() else max(end, node.end_mark.index)
            if node.style in ("|", ">"):
                return len(self.text[: node.end_mark.index].rstrip("\r\n \t"))
            return int(node.end_mark.index)
        if node.flow_style or not node.value:
            return int(node.end_mark.index)
        if isinstance(node, yaml.MappingNode):
            last_key, last = node.value[-1]
            return self._end_of(last, last_key)
        return self._end_of(node.value[-1], node.value[-1])

    def _heading(self, key: Any, value: Any) -> str:
        """The comment on the line of a key whose value begins below."""
        if not _is_block(value):
            return ""
        colon = self.text.find(":", key.end_mark.index)
        found = _BLANK_AND_COMMENT.match(self.text, colon + 1)
        return found[0] if found and "#" in found[0] else ""

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        """Behind the line break of the line."""
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found + 1

    def _next_key(self, parent: Any, name: str | int) -> Any:
        names = [key for key, _ in parent.value] if isinstance(parent, yaml.MappingNode) else []
        for this, following in pairwise(names):
            if this.value == name:
                return following
        return None

    def _flow_extent(self, parent: Any, step: str | int) -> tuple[int, int]:
        pairs = parent.value if isinstance(parent, yaml.MappingNode) else [(entry, entry) for entry in parent.value]
        at = next(n for n, (key, _) in enumerate(pairs) if key.value == step or n == step)
        if len(pairs) == 1:
            raise CannotEdit("the only entry")
        if at + 1 < len(pairs):
            return pairs[at][0].start_mark.index, pairs[at + 1][0].start_mark.index
        return self._end_of(pairs[at - 1][1], pairs[at - 1][0]), self._end_of(pairs[at][1], pairs[at][0])

    # ---- writing

    def _cut(self, start: int, end: int) -> None:
        self._set(start, end, "")

    def _set(self, start: int, end: int, new: str) -> None:
        self.text = self.text[:start] + new + self.text[end:]
        self._root = None
        self.changed = True

    def _add_lines(self, at: int, lines: list[str]) -> None:
        body = self.newline.join(lines)
        if at == len(self.text) and not self.text.endswith("\n"):
            self._set(at, at, self.newline + body)
        else:
            self._set(at, at, body + self.newline)

    def _block_field(self, parent: Path, key: str, value: Any, column: int, comments: Comments) -> list[str]:
        return block_field(key, value, column, self.sequence_offset, comments)

    def _flow_field(self, parent: Path, key: str, value: Any) -> str:
        node = self.node(parent)
        if self._json:
            return f"{json.dumps(key)}: {self._flow(value, self._pretty_indent(node))}"
        return f"{_scalar(key, '', in_flow=True)}: {self._flow(value, None)}"

    def _pretty_indent(self, node: Any) -> int | None:
        """The column of the entries of a JSON value of several lines; None for one in a line."""
        if not self._json or node.start_mark.line == node.end_mark.line:
            return None
        first = node.value[0][0] if isinstance(node, yaml.MappingNode) else node.value[0]
        return int(first.start_mark.column)

    def _flow(self, value: Any, indent: int | None) -> str:
        value = _bare(value)
        if not self._json:
            return _flow(value)
        if indent is None:
            return json.dumps(value, ensure_ascii=False)
        step = _json_step(self.text)
        lines = json.dumps(value, indent=step, ensure_ascii=False).split("\n")
        return (self.newline + " " * indent).join(lines)

    def _flow_insert(self, node: Any, position: int, written: str) -> None:
        pairs = node.value if isinstance(node, yaml.MappingNode) else [(entry, entry) for entry in node.value]
        indent = self._pretty_indent(node)
        between = ", " if indent is None else "," + self.newline + " " * indent
        if position < len(pairs):
            at = pairs[position][0].start_mark.index
            self._set(at, at, written + between)
        else:
            at = self._end_of(pairs[-1][1], pairs[-1][0])
            self._set(at, at, between + written)


# ---- rendering


def block_field(key: str, value: Any, column: int, offset: int, comments: Comments = NO_COMMENTS) -> list[str]:
    """Lines of `key: value` in block style; comments stand at the first entry or field inside, else at the field."""
    lead = " " * column
    name = _scalar(key, "")
    if isinstance(value, Flow):
        body = [f"{lead}{name}: {_flow(value.value)}{comments.behind}"]
    elif isinstance(value, dict) and value:
        body = [f"{lead}{name}:"]
        for number, (inner, part) in enumerate(value.items()):
            body += block_field(inner, part, column + 2, offset, comments if number == 0 else NO_COMMENTS)
        return body
    elif isinstance(value, list) and value:
        body = [f"{lead}{name}:"]
        for number, part in enumerate(value):
            body += _block_entry(part, column + offset, offset, comments if number == 0 else NO_COMMENTS)
        return body
    elif isinstance(value, dict | list):
        body = [f"{lead}{name}: {_flow(value)}{comments.behind}"]
    else:
        body = [f"{lead}{name}: {_of_quoted(value)}{comments.behind}"]
    return [*(lead + line for line in comments.above), *body]


def _block_entry(value: Any, column: int, offset: int, comments: Comments) -> list[str]:
    lead = " " * column
    above = [lead + line for line in comments.above]
    if isinstance(value, dict) and value:
        lines: list[str] = []
        for key, part in value.items():
            lines += block_field(key, part, column + 2, offset)
        lines[0] = f"{lead}- {lines[0].lstrip(' ')}{comments.behind}"
        return above + lines
    return [*above, f"{lead}- {_of_quoted(value)}{comments.behind}"]


def _sequence_offset(root: Any) -> int:
    """Blanks by which the first list of a document is deeper than its key; 0 without one."""
    waiting = [root]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, yaml.MappingNode) and not node.flow_style:
            for key, value in node.value:
                if isinstance(value, yaml.SequenceNode) and not value.flow_style and value.value:
                    return int(value.start_mark.column - key.start_mark.column)
                waiting.append(value)
        elif isinstance(node, yaml.SequenceNode) and not node.flow_style:
            waiting += node.value
    return 0


def _of_quoted(value: Any) -> str:
    return _scalar(value.value, value.quote) if isinstance(value, QuotedScalar) else _scalar(value, "")


def _scalar(value: Any, quote: str, *, in_flow: bool = False) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    text = str(value)
    if quote == '"':
        return json.dumps(text, ensure_ascii=False)
    if quote == "'":
        return "'" + text.replace("'", "''") + "'"
    if not isinstance(value, str):
        return text
    if _PLAIN.fullmatch(text) and not (in_flow and re.search(r"[\[\]{},]", text)) and not text.endswith((" ", ":")):
        try:
            if yamltext.parse_exact(f"x: {text}", "") == {"x": text}:
                return text
        except yamltext.Broken:
            pass
    return json.dumps(text, ensure_ascii=False)


def _flow(value: Any) -> str:
    value = value.value if isinstance(value, Flow) else value
    if isinstance(value, dict):
        inner = ", ".join(f"{_scalar(key, '', in_flow=True)}: {_flow(part)}" for key, part in value.items())
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(part) for part in value) + "]"
    if isinstance(value, QuotedScalar):
        return _scalar(value.value, value.quote, in_flow=True)
    return _scalar(value, "", in_flow=True)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _json_step(text: str) -> int:
    """Blanks of one level of a JSON text of several lines."""
    depths = sorted({len(found[1]) for found in re.finditer(r"\n( *)\S", text)})
    return min((deeper - depth for depth, deeper in pairwise(depths)), default=2)


# ---- values


def _is_block(node: Any) -> bool:
    return isinstance(node, yaml.MappingNode | yaml.SequenceNode) and not node.flow_style


def _child(node: Any, step: str | int) -> tuple[Any, Any] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key, value
    return None


def _at(value: Any, path: Path) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _bare(value: Any) -> Any:
    """The value without notes on how it is written."""
    if isinstance(value, QuotedScalar):
        return str(value.value) if value.quote else value.value
    if isinstance(value, Flow):
        return _bare(value.value)
    if isinstance(value, dict):
        return {key: _bare(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_bare(part) for part in value]
    return copy.deepcopy(value)


def _remove(value: Any, path: Path) -> None:
    del _at(value, path[:-1])[path[-1]]


def _replace(value: Any, path: Path, key: str, new: Any) -> None:
    holder = _at(value, path[:-1])
    kept = [(key, new) if name == path[-1] else (name, part) for name, part in holder.items()]
    holder.clear()
    holder.update(kept)


def _insert(value: Any, parent: Path, key: str, new: Any, position: int) -> None:
    holder = _at(value, parent)
    kept = list(holder.items())
    kept.insert(position, (key, new))
    holder.clear()
    holder.update(kept)
