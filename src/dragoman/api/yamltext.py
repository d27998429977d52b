"""What does this YAML or JSON text say, as kubectl understands it?

kubectl reads YAML 1.1 as Go's library does: `yes`, `on` and `y` are booleans, `0777` is octal, `1e3` and `1.0` are
numbers, dates are text, keys become text, the last of equal keys wins. A fast parser of YAML 1.2 serves whatever
means the same in both; a scan for what does not sends the rest to PyYAML with those rules. Never opens a file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import re2
import ryaml
import yaml

from dragoman.api import deepjson
from dragoman.errors import Invalid

FAST_FROM = 16 * 1024
"""Characters from which on the fast parser is worth its scan."""

NODES_MAX = 20_000_000
"""Values in one text, aliases counted each time: a ceiling for texts that multiply themselves."""

_DEPTH_MAX = 200
_OPEN_MAX = 5_000
"""Brackets open at once: libyaml refuses 1,000, but needs the square of their number to see it."""


class Chunk(msgspec.Struct, frozen=True):
    """One object of a text. document counts from 1, item from 0 (None: the document itself is the object).

    `text` is the part of the source that starts at `line` (from 1) and holds the object; of a list that could not
    be cut it is the whole document, and `within` leads to the object.
    """

    document: int
    item: int | None
    line: int
    text: str
    value: dict[str, Any]
    within: tuple[str | int, ...] = ()


class Broken(Invalid):
    """The text is not YAML or JSON. line counts from 1, 0 if unknown."""

    def __init__(self, name: str, document: int, line: int, what: str) -> None:
        place = f"{name}, document {document}" + (f", line {line}" if line else "")
        super().__init__(place, what)
        self.file = name
        self.document = document
        self.line = line


def chunks(text: str, name: str, broken: list[Broken] | None = None) -> Iterator[Chunk]:
    """The objects of a text, lists cut into their items. Empty documents are passed over.

    Raises Broken; given a list, documents that are broken are put there and the others are still read.
    """
    text = text.removeprefix("\ufeff")
    try:
        documents = _json_documents(text, name) if text.lstrip()[:1] in ("{", "[") else None
    except Broken as error:
        if broken is None:
            raise
        broken.append(error)
        return
    for number, (line, part) in enumerate(documents or _yaml_documents(text), 1):
        try:
            if isinstance(part, str):
                yield from _of_yaml(part, name, number, line)
            else:
                yield from _items_of(part, name, number, line, text)
        except Broken as error:
            if broken is None:
                raise
            broken.append(error)


# ---- JSON


_NOT_BLANK = re.compile(r"\S")


def _json_documents(text: str, name: str) -> list[tuple[int, Any]] | None:
    """Values of one or several JSON texts; None if it is YAML in flow style, or broken in a way YAML explains."""
    try:
        return [(1, _checked(_scalars(deepjson.loads(text), text), name, 1))]
    except msgspec.DecodeError:
        pass
    except ValueError:
        raise Broken(name, 1, 0, "broken JSON: a number has too many digits") from None
    decoder, at = json.JSONDecoder(), 0
    found: list[tuple[int, Any]] = []
    while (started := _NOT_BLANK.search(text, at)) is not None:
        at = started.start()
        try:
            value, end = decoder.raw_decode(text, at)
            value = _scalars(value, text)
        except (ValueError, RecursionError) as error:
            if _is_yaml(text):
                return None
            line = getattr(error, "lineno", 0)
            what = "a number has too many digits"
            if isinstance(error, json.JSONDecodeError):
                what = error.msg
            elif isinstance(error, RecursionError):
                what = "nested too deeply"
            raise Broken(name, len(found) + 1, line, f"broken JSON: {what}") from error
        found.append((text.count("\n", 0, at) + 1, _checked(value, name, len(found) + 1)))
        at = end
    return found


_SURROGATE = re.compile(r"\\u[dD][89abAB]")


def _scalars(value: Any, text: str) -> Any:
    """The value with U+FFFD for half characters, as Go reads them; nothing else can write such text again."""
    return _whole(value) if _SURROGATE.search(text) else value


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole(key): _whole(inner) for key, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list) else value


def _is_yaml(text: str) -> bool:
    if _opened_at_once(text) > _OPEN_MAX:
        return False
    try:
        for _event in yaml.parse(text, Loader=yaml.CSafeLoader):
            pass
    except yaml.YAMLError:
        return False
    return True


def _checked(value: Any, name: str, document: int) -> Any:
    if value is not None and not isinstance(value, dict):
        raise Broken(name, document, 0, f"must be an object with apiVersion and kind, got {_kind_of(value)}")
    return value


# ---- YAML

_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_DIRECTIVES = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n|%[^\n]*\n)*")


def _yaml_documents(text: str) -> Iterator[tuple[int, str]]:
    """First line and text of each document, those without content left out."""
    start, line = 0, 1
    starts = [*(found.start() for found in _SEPARATOR.finditer(text)), len(text)]
    for end in starts:
        part = text[start:end]
        if part.startswith("---"):
            part = "   " + part[3:]
        if part.strip() and not _DIRECTIVES.fullmatch(part if part.endswith("\n") else part + "\n"):
            yield line, part
        line += text.count("\n", start, end)
        start = end


def _of_yaml(part: str, name: str, number: int, line: int) -> Iterator[Chunk]:
    cut = _cut_list(part) if len(part) >= FAST_FROM else None
    if cut is not None:
        try:
            yield from list(_of_cut(cut, name, number, line))
        except (Broken, _NotAlone):
            # An alias into another item, or a real fault: the whole document says which.
            pass
        else:
            return
    value = parse(part, name, document=number, line=line)
    if value is not None:
        yield from _items_of(_checked(value, name, number), name, number, line, part)


def _items_of(value: Any, name: str, number: int, line: int, text: str) -> Iterator[Chunk]:
    if value is None:
        return
    if not is_list(value):
        yield Chunk(number, None, line, text, value)
        return
    for index, item in enumerate(value["items"]):
        if not isinstance(item, dict):
            raise Broken(name, number, line, f"items[{index}] must be an object, got {_kind_of(item)}")
        yield Chunk(number, index, line, text, _named(item, value), ("items", index))


def is_list(value: dict[str, Any]) -> bool:
    """Whether the object is a List, or a list of one kind, with its items."""
    return str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list)


def _named(item: dict[str, Any], of: dict[str, Any]) -> dict[str, Any]:
    """An item of a `PodList` does not say its kind again."""
    kind = str(of.get("kind"))
    if kind == "List" or "kind" in item:
        return item
    return {"apiVersion": of.get("apiVersion"), "kind": kind.removesuffix("List"), **item}


class _NotAlone(Exception):
    """An item that cannot be read without the rest of its list."""


class _Cut(msgspec.Struct, frozen=True):
    header: str
    items: list[tuple[int, str]]


def _cut_list(part: str) -> _Cut | None:
    """A block-style list cut into its items (line from 0, text); None if it is not written as kubectl writes it."""
    lines = part.splitlines(keepends=True)
    try:
        first = lines.index("items:\n")
    except ValueError:
        return None
    starts = [first + 1]
    end = len(lines)
    for index in range(first + 1, len(lines)):
        head = lines[index][:2]
        if head == "- ":
            starts.append(index)
        elif head[:1] not in (" ", "#", "\n"):
            end = index
            break
    header = "".join(lines[:first]) + "".join(lines[end:])
    if len(starts) < 2 or "".join(lines[first + 1 : starts[1]]).strip():
        return None
    bounds = [*starts[1:], end]
    return _Cut(header, [(a, "".join(lines[a:b])) for a, b in pairwise(bounds)])


def _of_cut(cut: _Cut, name: str, number: int, line: int) -> Iterator[Chunk]:
    header = parse(cut.header, name, document=number, line=line)
    if not isinstance(header, dict) or not is_list({**header, "items": []}):
        raise _NotAlone
    for index, (start, text) in enumerate(cut.items):
        value = parse(text, name, document=number, line=line + start)
        if not isinstance(value, list) or len(value) != 1:
            raise _NotAlone
        if not isinstance(value[0], dict):
            raise _NotAlone
        yield Chunk(number, index, line + start, text, _named(value[0], header), (0,))


# ---- one YAML document

# Plain scalars that YAML 1.2 and kubectl read differently, where one may stand; keys that are no text; tags, merges.
_BOOLEANS = "y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF"
_ODD_INTEGERS = r"[-+]?0[bBoOxX]?[0-9a-fA-F_]+|[-+]?[0-9][0-9_]*_[0-9_]*"
_FLOATS = r"[-+]?(?:\.[0-9_]+|[0-9][0-9_]*\.[0-9_]*)(?:[eE][-+]?[0-9_]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9_]+"
_SPECIAL = r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)"
_KEYS = r"[-+]?[0-9][0-9a-fA-FoxX]*|true|True|TRUE|false|False|FALSE|~|null|Null|NULL"
_HERE = r"(?:^[ \t]*|[:,\[{?-][ \t]+|[,\[{]|[\"']:)"
_DIFFERS = re2.compile(
    f"(?m){_HERE}(?:(?:{_BOOLEANS}|{_ODD_INTEGERS}|{_FLOATS}|{_SPECIAL})"
    r"[ \t\r]*(?:$|#|[,\]}:])"
    rf"|(?:{_KEYS})[ \t]*:(?:\s|$)|<<[ \t]*:|!\S*(?:\s|$))"
)


def parse(text: str, name: str, *, document: int = 1, line: int = 1) -> Any:
    """The JSON-shaped value of one YAML document that starts at `line` of its file. Raises Broken."""
    _check_brackets(text, name, document, line)
    if len(text) >= FAST_FROM or text.startswith("- "):
        fast = parse_fast(text)
        if fast is not None:
            return fast
    return parse_exact(text, name, document=document, line=line)


def parse_fast(text: str) -> Any:
    """The value if both versions of YAML agree on it, else None."""
    if _DIFFERS.search(text):
        return None
    try:
        return ryaml.loads(text)
    except (ryaml.InvalidYamlError, ValueError):
        return None


def parse_exact(text: str, name: str, *, document: int = 1, line: int = 1) -> Any:
    """The value by kubectl's rules. Raises Broken."""
    _check_brackets(text, name, document, line)
    try:
        value = yaml.load(text, Loader=_KubectlLoader)  # noqa: S506 - a safe loader with other scalars
        return _JsonShape().of(value, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = line + mark.line if mark else line
        what = ", ".join(filter(None, (error.problem, error.context)))
        raise Broken(name, document, at, f"broken YAML: {what}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = str(error).replace("\n", " ") or type(error).__name__
        raise Broken(name, document, line, f"broken YAML: {what}") from error


# Values of a document up to which 99 % of them may come from aliases, and from which on 10 % may.
_ALIASES_FREE = 400_000
_ALIASES_STRICT = 4_000_000
_BRACKET = re.compile(r"[\[\]{}]")


def _opened_at_once(text: str) -> int:
    """The most brackets that are open at a place, those inside of strings too."""
    if text.count("[") + text.count("{") <= _OPEN_MAX:
        return 0
    most = depth = 0
    for found in _BRACKET.finditer(text):
        depth += 1 if found[0] in "[{" else -1
        most = max(most, depth)
    return most


def _check_brackets(text: str, name: str, document: int, line: int) -> None:
    if _opened_at_once(text) > _OPEN_MAX:
        raise Broken(name, document, line, f"broken YAML: more than {_OPEN_MAX} brackets are open at once")


class _JsonShape:
    """Turns what PyYAML made into JSON: text keys, whole floats as integers, no infinities, bounded size."""

    def __init__(self) -> None:
        self.nodes = 0
        self.of_aliases = 0
        self._seen: set[int] = set()

    def of(self, value: Any, depth: int, *, alias: bool = False) -> Any:
        self.nodes += 1
        self.of_aliases += alias
        if depth > _DEPTH_MAX:
            raise ValueError(f"nested deeper than {_DEPTH_MAX} levels")
        if self.nodes > NODES_MAX:
            raise ValueError(f"more than {NODES_MAX} values")
        if isinstance(value, dict | list):
            self._check_aliases()
            alias = alias or id(value) in self._seen
            self._seen.add(id(value))
        if isinstance(value, dict):
            return {key: self.of(inner, depth + 1, alias=alias) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.of(inner, depth + 1, alias=alias) for inner in value]
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"{value} is not a number of JSON")
            return int(value) if value.is_integer() and abs(value) < 1e21 else value
        if value is None or isinstance(value, str | int):
            return value
        if isinstance(value, bytes):
            return value.decode("latin-1")
        raise ValueError(f"{_kind_of(value)} has no form in JSON")

    def _check_aliases(self) -> None:
        """A text may not multiply itself by its aliases: the rule of go-yaml, which kubectl reads with."""
        if self.of_aliases <= 100 or self.nodes <= 1000:
            return
        beyond = min(max(self.nodes - _ALIASES_FREE, 0) / (_ALIASES_STRICT - _ALIASES_FREE), 1.0)
        if self.of_aliases / self.nodes > 0.99 - 0.89 * beyond:
            raise ValueError("document contains excessive aliasing")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return f"{key:g}" if isinstance(key, float) else str(key)
    raise ValueError(f"a key must be a string, got {_kind_of(key)}")


def _kind_of(value: Any) -> str:
    names = {type(None): "null", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


class _KubectlLoader(yaml.CSafeLoader):
    """Safe loading with the plain scalars of Go's YAML 1.1."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Keys become text before they meet: for Python 1 and True are one key."""
        if not isinstance(node, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(None, None, f"expected a mapping, got a {node.id}", node.start_mark)
        self.flatten_mapping(node)
        return {
            _key(self.construct_object(key, deep=True)): self.construct_object(value, deep=deep)
            for key, value in node.value
        }


def _resolve(tag: str, pattern: str, first: str) -> None:
    _KubectlLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})$"), list(first))


_resolve("bool", f"{_BOOLEANS}|true|True|TRUE|false|False|FALSE", "yYnNtTfFoO")
_resolve("null", "~|null|Null|NULL|", "~nN")
_KubectlLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("$"), [""])
_resolve("merge", "<<", "<")
_resolve("int", r"[-+]?(?:0[bB][01_]+|0[oO]?[0-7_]+|0[xX][0-9a-fA-F_]+|[1-9][0-9_]*|0)", "-+0123456789")
_resolve("float", r"[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?", "-+.0123456789")
_resolve("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.")


def _construct_bool(loader: Any, node: Any) -> bool:
    return str(loader.construct_scalar(node)) in _TRUE


_TRUE = frozenset({"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})


_DIGITS_MAX = 255
"""Longer numbers have no value in Go, and stay text."""


def _construct_int(loader: Any, node: Any) -> int | float | str:
    written = str(loader.construct_scalar(node))
    text = written.replace("_", "").lower()
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        digits = f"0o{digits}"
    if len(digits) > _DIGITS_MAX:
        return written
    value = sign * int(digits, 0)
    # Beyond 64 bits Go has no integers.
    return value if -(2**63) <= value < 2**63 else float(value)


def _construct_text(loader: Any, node: Any) -> str:
    return str(loader.construct_scalar(node))


def _construct_float(loader: Any, node: Any) -> float | str:
    text = str(loader.construct_scalar(node))
    if "." in text and text.lower().lstrip("+-") in (".inf", ".nan"):
        return math.nan if text.lower().endswith("nan") else (-math.inf if text[0] == "-" else math.inf)
    value = float(text.replace("_", ""))
    return value if math.isfinite(value) else text


_KubectlLoader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)
_KubectlLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_KubectlLoader.add_constructor("tag:yaml.org,2002:float", _construct_float)


def _construct_untagged(loader: Any, tag: str, node: Any) -> Any:
    """A value with a tag of somebody's own is read as if the tag were not there."""
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_KubectlLoader.add_multi_constructor("!", _construct_untagged)
for _tag in ("timestamp", "merge"):
    _KubectlLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _construct_text)

# ---- lines of fields


class TextSpan(NamedTuple):
    """A place in a text: the line, from 1, and the characters from start to end, from 0; 0, 0 for the whole line."""

    line: int
    start: int = 0
    end: int = 0


def span_of(chunk: Chunk, path: tuple[str | int, ...], *, named: bool = False) -> TextSpan:
    """The value of a field if it is written on the field's line, else its name; of the nearest one above that is
    written where there is no such field. named: its name in any case."""
    value: Any = _root(chunk)
    name: Any = None
    for step in (*chunk.within, *path):
        found = _child(value, step)
        if found is not None:
            name, value = found
    if value is None:
        return TextSpan(chunk.line)
    line = (name or value).start_mark.line if name is not None or chunk.within else 0
    if name is None and not isinstance(value, yaml.ScalarNode):
        return TextSpan(chunk.line + line)
    on_line = value.start_mark.line == value.end_mark.line == line
    in_flow = isinstance(value, yaml.ScalarNode) or value.flow_style
    is_shown = on_line and in_flow and value.start_mark.column < value.end_mark.column
    node = value if is_shown and not named else name
    if node is None or node.start_mark.line != node.end_mark.line:
        return TextSpan(chunk.line + line)
    return TextSpan(chunk.line + line, node.start_mark.column, node.end_mark.column)


def compose(chunk: Chunk) -> Any:
    """The object as PyYAML's tree of nodes, which knows lines and repeated keys; None if it cannot be made."""
    node: Any = _root(chunk)
    for step in chunk.within:
        found = _child(node, step)
        if found is None:
            return None
        node = found[1]
    return node


def scalar_text(chunk: Chunk, path: tuple[str | int, ...]) -> str | None:
    """A scalar as it is written, None if there is none at the path."""
    node = compose(chunk)
    for step in path:
        found = _child(node, step)
        if found is None:
            return None
        node = found[1]
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None


def _root(chunk: Chunk) -> Any:
    try:
        return yaml.compose(chunk.text, Loader=_KubectlLoader)
    except yaml.YAMLError:
        return None


def _child(node: Any, step: str | int) -> tuple[Any, Any] | None:
    """The node of a field's name (of an entry of a list: the entry's own), and that of its value."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key, value
    return None
