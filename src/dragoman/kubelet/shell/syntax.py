"""What does a script say? The grammar of a POSIX shell, as far as container commands use it, read into a tree.

Not read: here-documents inside substitutions, aliases, coprocesses, arrays. It runs nothing.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from dragoman.errors import Invalid

DEEPEST = 60
"""How deep a script may nest."""


class Literal(msgspec.Struct, frozen=True):
    """Text as it stands; quoted text is neither split nor matched against file names."""

    text: str
    quoted: bool


class Parameter(msgspec.Struct, frozen=True):
    """`$name` or `${name OP word}`; op is one of `:- - := = :? ? :+ + # ## % %%`, or `length`."""

    name: str
    op: str
    word: Word | None
    quoted: bool


class CommandSubstitution(msgspec.Struct, frozen=True):
    """`$(script)`."""

    script: ScriptNode
    quoted: bool


class Arithmetic(msgspec.Struct, frozen=True):
    """`$((expression))`."""

    word: Word
    quoted: bool


Part: TypeAlias = Literal | Parameter | CommandSubstitution | Arithmetic
Word: TypeAlias = tuple[Part, ...]


class Redirect(msgspec.Struct, frozen=True):
    """`fd OP word`; op is one of `< > >> >& <& << <<<`; for `<<` the word is the text itself."""

    fd: int
    op: str
    word: Word


class Simple(msgspec.Struct, frozen=True):
    """Assignments, words, redirections."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


class Pipeline(msgspec.Struct, frozen=True):
    """Commands whose outputs are inputs; negated: `!`."""

    commands: tuple[ScriptNode, ...]
    negated: bool


class AndOr(msgspec.Struct, frozen=True):
    """left && right, left || right."""

    left: ScriptNode
    op: str
    right: ScriptNode


class Sequence(msgspec.Struct, frozen=True):
    """One after the other; background: those that end with `&`."""

    nodes: tuple[ScriptNode, ...]
    background: tuple[bool, ...]


class If(msgspec.Struct, frozen=True):
    """Conditions with their bodies, and the else."""

    branches: tuple[tuple[ScriptNode, ScriptNode], ...]
    otherwise: ScriptNode | None


class For(msgspec.Struct, frozen=True):
    """words None: the positional parameters."""

    name: str
    words: tuple[Word, ...] | None
    body: ScriptNode


class Loop(msgspec.Struct, frozen=True):
    """while, or until."""

    condition: ScriptNode
    body: ScriptNode
    until: bool


class CaseClause(msgspec.Struct, frozen=True):
    """A word against patterns."""

    word: Word
    arms: tuple[tuple[tuple[Word, ...], ScriptNode], ...]


class Group(msgspec.Struct, frozen=True):
    """`{ }`, or `( )` with own variables; compound commands with redirections are groups, too."""

    body: ScriptNode
    subshell: bool
    redirects: tuple[Redirect, ...]


class FunctionDefinition(msgspec.Struct, frozen=True):
    """name() body."""

    name: str
    body: ScriptNode


ScriptNode: TypeAlias = Simple | Pipeline | AndOr | Sequence | If | For | Loop | CaseClause | Group | FunctionDefinition

_BREAKS = " \t\n;&|<>()"
_RESERVED = {"if", "then", "elif", "else", "fi", "for", "do", "done", "while", "until", "case", "esac", "{", "}", "!"}
_SPECIAL = "?#@*$!-0123456789"
_OPS = (":-", ":=", ":?", ":+", "##", "%%", "-", "=", "?", "+", "#", "%")


class SyntaxFault(Invalid):
    """The script cannot be read."""

    def __init__(self, what: str) -> None:
        super().__init__("syntax error", what)


def parse(text: str) -> ScriptNode:
    """The tree of a script. Raises SyntaxFault."""
    reader = _Reader(text)
    node = reader.sequence(())
    reader.skip_lines()
    if not reader.at_end:
        raise SyntaxFault(f"unexpected {reader.peek_word() or reader.char!r}")
    return node


def is_name(text: str) -> bool:
    """Whether it can name a variable."""
    return bool(text) and text.isascii() and text.isidentifier()


class _Reader:
    def __init__(self, text: str, depth: int = 0) -> None:
        self.text = text
        self.at = 0
        self.depth = depth

    # ---- characters

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.text)

    @property
    def char(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def starts(self, what: str) -> bool:
        return self.text.startswith(what, self.at)

    def take(self, what: str) -> bool:
        if self.starts(what):
            self.at += len(what)
            return True
        return False

    def skip_blanks(self) -> None:
        while not self.at_end:
            if self.char in " \t\r":
                self.at += 1
            elif self.starts("\\\n"):
                self.at += 2
            elif self.char == "#" and (self.at == 0 or self.text[self.at - 1] in " \t\n;&|("):
                while not self.at_end and self.char != "\n":
                    self.at += 1
            else:
                return

    def skip_lines(self) -> None:
        while True:
            self.skip_blanks()
            if self.char != "\n":
                return
            self.at += 1

    def peek_word(self) -> str:
        """The plain word that comes next, "" where it is quoted or none."""
        self.skip_blanks()
        end = self.at
        while end < len(self.text) and self.text[end] not in _BREAKS:
            if self.text[end] in "'\"\\$`":
                return ""
            end += 1
        return self.text[self.at : end]

    def expect(self, word: str) -> None:
        self.skip_lines()
        if self.peek_word() != word:
            found = self.peek_word() or self.char or "end of file"
            raise SyntaxFault(f'unexpected "{found}" (expecting "{word}")')
        self.at += len(word)

    # ---- grammar

    def sequence(self, ends: tuple[str, ...]) -> ScriptNode:
        self.depth += 1
        if self.depth > DEEPEST:
            raise SyntaxFault("nested too deep")
        nodes: list[ScriptNode] = []
        background: list[bool] = []
        while True:
            self.skip_lines()
            if self.at_end or self.char == ")" or self.starts(";;") or self.peek_word() in ends:
                break
            node = self.and_or()
            nodes.append(node)
            self.skip_blanks()
            if self.char == "&" and not self.starts("&&"):
                self.at += 1
                background.append(True)
                continue
            background.append(False)
            if self.starts(";;"):
                break
            if not (self.take(";") or self.char == "\n"):
                break
        self.depth -= 1
        self.skip_lines()
        if len(nodes) == 1 and not background[0]:
            return nodes[0]
        return Sequence(tuple(nodes), tuple(background))

    def and_or(self) -> ScriptNode:
        left = self.pipeline()
        while True:
            self.skip_blanks()
            op = next((op for op in ("&&", "||") if self.starts(op)), "")
            if not op:
                return left
            self.at += 2
            self.skip_lines()
            left = AndOr(left, op, self.pipeline())

    def pipeline(self) -> ScriptNode:
        negated = self.peek_word() == "!"
        if negated:
            self.at += 1
        commands = [self.command()]
        while True:
            self.skip_blanks()
            if self.char != "|" or self.starts("||"):
                break
            self.at += 1
            self.take("&")
            self.skip_lines()
            commands.append(self.command())
        return commands[0] if len(commands) == 1 and not negated else Pipeline(tuple(commands), negated)

    def command(self) -> ScriptNode:
        self.skip_blanks()
        if self.char == "(":
            self.at += 1
            body = self.sequence(())
            self._close(")")
            return self._with_redirects(body, subshell=True)
        readers = {"if": self._if, "for": self._for, "case": self._case, "while": self._loop, "until": self._loop}
        word = self.peek_word()
        if word == "{":
            self.at += 1
            body = self.sequence(("}",))
            self.expect("}")
            return self._with_redirects(body, subshell=False)
        if word in readers:
            self.at += len(word)
            body = readers[word](word)
            made = self._with_redirects(body, subshell=False)
            return made if made.redirects else body
        if word in _RESERVED:
            raise SyntaxFault(f'unexpected "{word}"')
        if word == "function":
            self.at += len(word)
            word = self.peek_word()
            self.at += len(word)
            self.skip_blanks()
            self.take("()")
            self.skip_lines()
            return FunctionDefinition(word, self.command())
        if is_name(word.replace("-", "_")) and self.text[self.at + len(word) :].lstrip(" ").startswith("()"):
            self.at = self.text.index("()", self.at) + 2
            self.skip_lines()
            return FunctionDefinition(word, self.command())
        return self._simple()

    def _close(self, char: str) -> None:
        self.skip_lines()
        if not self.take(char):
            raise SyntaxFault(f'unexpected "{self.peek_word() or self.char or "end of file"}" (expecting "{char}")')

    def _with_redirects(self, body: ScriptNode, *, subshell: bool) -> Group:
        redirects: list[Redirect] = []
        while (redirect := self._redirect()) is not None:
            redirects += redirect
        return Group(body, subshell, tuple(redirects))

    def _if(self, _: str) -> ScriptNode:
        branches: list[tuple[ScriptNode, ScriptNode]] = []
        otherwise: ScriptNode | None = None
        while True:
            condition = self.sequence(("then",))
            self.expect("then")
            branches.append((condition, self.sequence(("elif", "else", "fi"))))
            word = self.peek_word()
            self.at += len(word)
            if word == "elif":
                continue
            if word == "else":
                otherwise = self.sequence(("fi",))
                self.expect("fi")
            elif word != "fi":
                raise SyntaxFault('end of file unexpected (expecting "fi")')
            return If(tuple(branches), otherwise)

    def _for(self, _: str) -> ScriptNode:
        name = self.peek_word()
        if not is_name(name):
            raise SyntaxFault(f"bad for loop variable {name!r}")
        self.at += len(name)
        self.skip_lines()
        words: tuple[Word, ...] | None = None
        if self.peek_word() == "in":
            self.at += 2
            found: list[Word] = []
            while True:
                self.skip_blanks()
                if self.at_end or self.char in ";\n":
                    break
                found.append(self.word())
            words = tuple(found)
        self.skip_blanks()
        self.take(";")
        self.expect("do")
        body = self.sequence(("done",))
        self.expect("done")
        return For(name, words, body)

    def _loop(self, word: str) -> ScriptNode:
        condition = self.sequence(("do",))
        self.expect("do")
        body = self.sequence(("done",))
        self.expect("done")
        return Loop(condition, body, word == "until")

    def _case(self, _: str) -> ScriptNode:
        self.skip_blanks()
        word = self.word()
        self.expect("in")
        arms: list[tuple[tuple[Word, ...], ScriptNode]] = []
        while True:
            self.skip_lines()
            if self.peek_word() == "esac":
                self.at += 4
                return CaseClause(word, tuple(arms))
            if self.at_end:
                raise SyntaxFault('end of file unexpected (expecting "esac")')
            self.take("(")
            patterns = [self.word()]
            self.skip_blanks()
            while self.take("|"):
                self.skip_blanks()
                patterns.append(self.word())
                self.skip_blanks()
            self._close(")")
            arms.append((tuple(patterns), self.sequence(("esac",))))
            self.take(";;")

    def _simple(self) -> ScriptNode:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self.skip_blanks()
            if (redirect := self._redirect()) is not None:
                redirects += redirect
                continue
            if self.at_end or self.char in "\n;&|)(":
                break
            name = self._assigned() if not words else ""
            if name:
                self.at += len(name) + 1
                blank = self.at_end or self.char in _BREAKS
                assignments.append((name, () if blank else self.word()))
            else:
                words.append(self.word())
        if not (assignments or words or redirects):
            raise SyntaxFault(f'unexpected "{self.char or "end of file"}"')
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    def _assigned(self) -> str:
        end = self.text.find("=", self.at)
        name = self.text[self.at : end] if end > 0 else ""
        return name if is_name(name) else ""

    def _redirect(self) -> list[Redirect] | None:
        self.skip_blanks()
        digits = self.at
        while digits < len(self.text) and self.text[digits].isdecimal():
            digits += 1
        both = self.text.startswith("&>", digits) and digits == self.at
        op = "&>" if both else next((op for op in _REDIRECTS if self.text.startswith(op, digits)), "")
        if not op:
            return None
        fd = int(self.text[self.at : digits]) if digits > self.at else (0 if op[0] == "<" else 1)
        self.at = digits + len(op)
        if op in ("<<", "<<-"):
            return [self._document(fd, strip=op == "<<-")]
        if both:
            op = ">>" if self.take(">") else ">"
        self.skip_blanks()
        word = self.word()
        made = [Redirect(fd, ">" if op == ">|" else op, word)]
        return [*made, Redirect(2, ">&", (Literal("1", quoted=False),))] if both else made

    # ---- here-documents

    def _document(self, fd: int, *, strip: bool) -> Redirect:
        self.skip_blanks()
        word = self.word()
        end = "".join(part.text for part in word if isinstance(part, Literal))
        literal = any(isinstance(part, Literal) and part.quoted for part in word)
        # The text stands below the line that is being read; it is cut out of what is still to be read.
        newline = self.text.find("\n", self.at)
        lines = self.text[newline + 1 :].split("\n") if newline >= 0 else []
        body: list[str] = []
        while lines:
            line = lines.pop(0)
            if (line.lstrip("\t") if strip else line) == end:
                break
            body.append(line.lstrip("\t") if strip else line)
        if newline >= 0:
            self.text = self.text[: newline + 1] + "\n".join(lines)
        text = "".join(f"{line}\n" for line in body)
        return Redirect(fd, "<<", (Literal(text, quoted=True),) if literal else self._expanded(text))

    def _expanded(self, text: str) -> Word:
        inner = _Reader(text.replace('"', '\\"') + '"', self.depth)
        return tuple(inner.double_quoted())

    # ---- words

    def word(self) -> Word:
        parts: list[Part] = []
        while not self.at_end and self.char not in _BREAKS:
            char = self.char
            if char == "'":
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise SyntaxFault("unterminated quoted string")
                parts.append(Literal(self.text[self.at + 1 : end], quoted=True))
                self.at = end + 1
            elif char == '"':
                self.at += 1
                parts += self.double_quoted() or [Literal("", quoted=True)]
            elif char == "\\":
                if self.at + 1 < len(self.text) and self.text[self.at + 1] != "\n":
                    parts.append(Literal(self.text[self.at + 1], quoted=True))
                self.at += 2
            elif char in "$`":
                parts.append(self.dollar(quoted=False))
            else:
                start = self.at
                while not self.at_end and self.char not in _BREAKS and self.char not in "'\"\\$`":
                    self.at += 1
                parts.append(Literal(self.text[start : self.at], quoted=False))
        if not parts:
            raise SyntaxFault(f'unexpected "{self.char or "end of file"}"')
        return tuple(parts)

    def double_quoted(self) -> list[Part]:
        """Up to the closing quote, which is taken."""
        parts: list[Part] = []
        text = ""
        while True:
            if self.at_end:
                raise SyntaxFault("unterminated quoted string")
            char = self.char
            if char == '"':
                self.at += 1
                break
            if char == "\\" and self.at + 1 < len(self.text):
                following = self.text[self.at + 1]
                text += following if following in '$`"\\' else "" if following == "\n" else "\\" + following
                self.at += 2
            elif char in "$`":
                if text:
                    parts.append(Literal(text, quoted=True))
                    text = ""
                parts.append(self.dollar(quoted=True))
            else:
                text += char
                self.at += 1
        if text:
            parts.append(Literal(text, quoted=True))
        return parts

    def dollar(self, *, quoted: bool) -> Part:
        if self.take("`"):
            end = self.at
            while end < len(self.text) and self.text[end] != "`":
                end += 2 if self.text[end] == "\\" else 1
            inner = self.text[self.at : end].replace("\\`", "`")
            self.at = end + 1
            return CommandSubstitution(_Reader(inner, self.depth + 1).sequence(()), quoted)
        if self.take("$(("):
            end, level = self.at, 0
            while end < len(self.text) and (level or not self.text.startswith("))", end)):
                level += {"(": 1, ")": -1}.get(self.text[end], 0)
                end += 1
            inner = self.text[self.at : end]
            self.at = end + 2
            return Arithmetic(self._expanded(inner), quoted)
        if self.take("$("):
            body = self.sequence(())
            self._close(")")
            return CommandSubstitution(body, quoted)
        if self.take("${"):
            return self._braced(quoted=quoted)
        self.at += 1
        if self.char and self.char in _SPECIAL:
            self.at += 1
            return Parameter(self.text[self.at - 1], "", None, quoted)
        start = self.at
        while not self.at_end and (self.char == "_" or (self.char.isascii() and self.char.isalnum())):
            self.at += 1
        name = self.text[start : self.at]
        return Parameter(name, "", None, quoted) if name else Literal("$", quoted)

    def _braced(self, *, quoted: bool) -> Part:
        length = self.char == "#" and not self.starts("#}")
        if length:
            self.at += 1
        start = self.at
        if self.char and self.char in _SPECIAL:
            self.at += 1
        while not self.at_end and (self.char == "_" or (self.char.isascii() and self.char.isalnum())):
            self.at += 1
        name = self.text[start : self.at]
        op = "length" if length else next((op for op in _OPS if self.starts(op)), "")
        if op != "length":
            self.at += len(op)
        end, level = self.at, 0
        while end < len(self.text) and (level or self.text[end] != "}"):
            if self.text[end] == "\\":
                end += 1
            elif self.text.startswith("${", end):
                level, end = level + 1, end + 1
            elif self.text[end] == "}":
                level -= 1
            end += 1
        if end >= len(self.text) or not name or (not op and end > self.at):
            raise SyntaxFault("bad substitution")
        inner = self.text[self.at : end]
        self.at = end + 1
        word: Word | None = None
        if op and op != "length":
            text = inner[1:-1] if len(inner) > 1 and inner[0] == inner[-1] and inner[0] in "'\"" else inner
            word = self._expanded(text) if text else ()
        return Parameter(name, op, word, quoted)


_REDIRECTS = ("<<<", "<<-", "<<", "<&", "<", ">>", ">&", ">|", ">")
