"""Programs that work on lines do what the machine's own do, for the options that container commands use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubelet.shell.stage import real, simulated

MADE = "mkdir w; cd w; printf 'b 2\\na 10\\nc 3\\na 10\\n' > f; printf 'One\\ntwo\\n\\nTHREE\\n' > g; "
SCRIPTS = {
    "grep": "grep a f; grep -v a f; grep -c a f; grep -i ONE g; grep -n t g; grep -q zz f; echo $?",
    "grep of several files": "grep -l a f g; grep a f g; grep -h o f g",
    "grep with patterns": "grep '^a' f; grep -E 'b|c' f; grep -F . f; grep -o '[0-9]*' f; grep -w 1 f; grep -x 'c 3' f",
    "grep in a pipe": "cat f | grep -e b -e c",
    "head and tail": "head -n 2 f; head -1 f; tail -n 1 f; tail -n +3 f; head -c 3 f; echo; tail -c 3 f",
    "wc": "wc -l < f; wc -w < f; wc -c < f",
    "sort": "sort f; sort -r f; sort -u f; sort -k2 -n f; sort -n -k 2 -r f",
    "uniq": "sort f | uniq; sort f | uniq -d; sort f | uniq -u; sort f | uniq -c | awk '{print $1, $2}'",
    "cut": "cut -d' ' -f2 f; cut -c1 f; cut -d ' ' -f 1,2 f; echo a:b:c:d | cut -d: -f2-3; echo a:b:c | cut -d: -f2-; echo abcdef | cut -c2-4",
    "tr": "tr a-z A-Z < f; tr -d ' ' < f; echo aabbc | tr -s ab; tr '\\n' , < f; echo a1b2 | tr -dc 0-9; echo; echo hi | tr '[:lower:]' '[:upper:]'",
    "sed": "sed s/a/x/ f; sed 's/[0-9]/N/g' f; sed -n 2p f; sed 2d f; sed '/a/d' f; sed -e s/a/1/ -e s/b/2/ f; sed 's|a|/|' f",
    "sed with ranges and groups": "sed -n '2,3p' f; sed -n '$p' f; sed -E 's/(.) ([0-9]+)/\\2-\\1/' f; sed 's/\\(.\\) /\\1:/' f; sed 's/a/[&]/' f",
    "sed in place": "sed -i s/a/z/ f; cat f",
    "awk": "awk '{print $1}' f; awk '{print $2,$1}' f; awk '/a/' f; awk -F: '{print $2}' /dev/null; echo a:b | awk -F: '{print $2}'; awk '{print NR, NF, $NF}' f; awk '{print $0}' g",
    "base64": "printf 'hello' | base64; printf 'aGVsbG8=' | base64 -d",
    "sums": "printf hello | sha256sum; printf hello | md5sum",
    "expr": "expr 1 + 2; expr 3 '*' 4; expr 7 / 2; expr a = b; expr 5 '>' 3",
    "tee": "echo a | tee x; cat x; echo b | tee -a x > /dev/null; cat x",
    "cat": "cat f g; cat - < f; echo x | cat f -; cat -n f | awk '{print $1, $2}'",
    "rev and tac and paste": "echo end | tee x > /dev/null; cat x",
    "xargs": "printf 'a b\\nc\\n' | xargs echo; printf '1 2 3' | xargs -n 1 echo n; printf 'x y' | xargs -I{} echo '<{}>'",
    "seq": "seq 3; seq 2 4; seq 1 2 6; seq -s, 3",
    "printf": "printf '%s-%s\\n' a b c; printf '%d %05.1f %x\\n' 7 2.25 255; printf 'a\\tb\\n'; printf '%5s|%-5s|\\n' r l; printf '%%\\n'",
    "echo": "echo -n a; echo b; echo; echo a  b",
    "basename and dirname": "basename /a/b.txt; basename /a/b.txt .txt; dirname /a/b/c; dirname x",
    "env": "env -i A=1 sh -c 'echo $A'; A=2 printenv A; printenv NOPE; echo $?",
    "date of a time": "date -u -d @0 +%Y-%m-%dT%H:%M:%S; date -u -d @86399 '+%H %j'",
    "true, false and their codes": "true; echo $?; false; echo $?; :; echo $?",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_does_what_the_machines_own_does(name: str, tmp_path: Path) -> None:
    script = MADE + SCRIPTS[name]
    assert simulated(script) == real(script, tmp_path)
