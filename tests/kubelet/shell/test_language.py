"""The language of the simulated shell is that of the machine's own: words, expansions, commands, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubelet.shell.stage import real, simulated

SCRIPTS = {
    "fields of an unquoted value": "x='a  b c'; set -- $x; echo $#; set -- \"$x\"; echo $#",
    "separators of one's own": 'IFS=:; x=a:b::c; set -- $x; echo $# "$3" $4',
    "all positions, joined or apart": 'set -- \'a b\' c; for w in "$*"; do echo "<$w>"; done; for w in "$@"; do echo "<$w>"; done',
    "nothing is no field, an empty text is one": 'set -- $NONE; echo $#; set -- "$NONE"; echo $#; set -- \'\' ""; echo $#',
    "default values": "echo ${NONE:-a} ${NONE-b} ${EMPTY:-c} ${EMPTY-d}. ${NAME:-e}",
    "values to assign": "echo ${x:=1} $x; echo ${NAME:=no}",
    "values instead": "echo ${NAME:+set} ${NONE:+set}. ${EMPTY+set} ${EMPTY:+set}.",
    "a value that must be": "(echo ${NONE:?is missing}); echo $?",
    "the shortest and the longest end": "p=a.b.c; echo ${p#*.} ${p##*.} ${p%.*} ${p%%.*}",
    "patterns in an expansion": "p=/x/y1z; echo ${p%[0-9]*} ${p#?}",
    "lengths": "x=hello; echo ${#x} ${#NONE}",
    "quotes inside quotes": 'printf "%s " "a\'b" \'c"d\' "e\\"f" g\\\'h "\\$x" \'\\n\'',
    "a backslash at the end of a line": "echo a\\\nb",
    "comments": "echo a # b\n# c\necho d#e",
    "a substitution keeps inner lines": 'x=$(printf "a\\nb\\n\\n"); echo "$x"; echo $x',
    "substitutions in each other": 'echo "$(echo "$(echo "a  b")")" `echo \\`echo c\\``',
    "the code of a substitution": "x=$(exit 3); echo $?; x=$(echo a; exit 4) || echo $x",
    "arithmetic with names": "a=3; echo $((a * (2 + 1))) $((a == 3 ? 7 : 8)) $((-7 / 2)) $((-7 % 3))",
    "and before or": "false && echo a || echo b; true || echo c && echo d",
    "not of a pipeline": "! true | false; echo $?; ! false; echo $?",
    "the code of a pipeline": "false | true; echo $?; true | false; echo $?",
    "fields that end with a separator of one's own": "IFS=,; x='a,b,'; set -- $x; echo $#; x=' a , b '; set -- $x; echo \"<$1>\" $#",
    "separators of both kinds": "IFS=': '; x='a : b  c::d'; set -- $x; echo $#; for f; do echo \"<$f>\"; done",
    "fields beside text": "x=' a b '; for w in 1$x'2'$x; do echo \"<$w>\"; done",
    "read into fewer names than fields": 'printf \'a b c d \\n\' | { read x y; echo "<$x|$y>"; }; echo a:b:c: | { IFS=: read x y z; echo "<$x|$y|$z>"; }',
    "read of an empty line": "echo | { read x y; echo \"<$x|$y>\"; }; printf 'a' | { read x; echo $? $x; }",
    "an escaped separator": "printf 'a\\\\ b c\\n' | { read x y; echo \"<$x|$y>\"; }",
    "a loop in a pipeline": "printf '1\\n2\\n' | while read n; do echo $((n * 2)); done",
    "a pipeline's variables are its own": "x=1; echo 2 | read x; (x=3); echo $x",
    "groups share theirs": "x=1; { x=2; }; echo $x",
    "elif": "for n in 1 2 3; do if [ $n = 1 ]; then echo one; elif [ $n = 2 ]; then echo two; else echo more; fi; done",
    "case patterns": "for w in abc a1 '' z; do case $w in a[0-9]) echo digit;; a*|b*) echo a;; '') echo none;; *) echo other;; esac; done",
    "while with two breaks": "for a in 1 2; do for b in 1 2 3; do [ $b = 2 ] && break 2; echo $a$b; done; done; echo $a$b",
    "continue of the outer loop": "for a in 1 2; do for b in 1 2; do [ $b = 2 ] && continue 2; echo $a$b; done; done",
    "functions with their own positions": "f() { echo $# $1; shift; echo $1; return 7; }; set -- z; f a b; echo $? $1",
    "functions call themselves": "f() { [ $1 -gt 0 ] || return 0; echo $1; f $(($1 - 1)); }; f 3",
    "redirections of a group": "{ echo a; echo b >&2; } > f 2> g; cat f; cat g",
    "adding to a file": "echo 1 > f; echo 2 >> f; cat < f",
    "both into one": "{ echo a; echo b >&2; } > f 2>&1; cat f",
    "a loop that reads a file": "printf 'a 1\\nb 2\\n' > f; while read k v; do echo $v$k; done < f",
    "here-documents": "x=1; cat <<E\na $x $(echo b) \\$x\nE\ncat <<'E'\n$x\nE\ncat <<-E\n\ttab\n\tE",
    "globs": "touch a1 a2 b; echo a* [ab]? none* '*' \"a*\"",
    "globs do not see hidden files": "mkdir d; cd d; touch .h v; echo *; echo .h*",
    "an assignment for one command": "x=1; x=2 sh -c 'echo $x'; echo $x",
    "exported or not": "x=1; sh -c 'echo <$x>' 2>/dev/null || echo none; export x; sh -c 'echo $x'",
    "a subshell's exit is its own": "(exit 5); echo $?; (echo a; exit 0; echo b)",
    "errexit": "set -e; false || true; if false; then :; fi; ! true; echo a; false; echo b",
    "errexit in a function": "set -e; f() { false; echo in; }; f && echo x; f; echo y",
    "the code of what is not there": "no-such-program-at-all 2>/dev/null; echo $?",
    "wait for a job": "(exit 3) & wait $!; echo $?",
    "traps at the end": "trap 'echo bye $?' EXIT; (exit 4); exit 6",
    "traps at the end without an exit": "trap 'echo bye $?' EXIT; (exit 4)",
    "eval": "x='echo a; y=2'; eval \"$x\"; echo $y",
    "read with a rest and a backslash": "printf 'a b  c\\\\d\\n' | { read x y; echo \"$x|$y\"; }; printf 'a\\\\b\\n' | { read -r z; printf '%s\\n' \"$z\"; }",
    "set -u": "set -u; (echo ${NONE:-fine}); (echo $NONE) 2>/dev/null; echo on",
    "unset": "x=1; unset x; echo ${x-none}",
    "a name beside text": 'x=a; echo "${x}b" $x.c "$x"d',
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_means_what_it_means_to_a_real_shell(name: str, tmp_path: Path) -> None:
    assert simulated(SCRIPTS[name]) == real(SCRIPTS[name], tmp_path)
