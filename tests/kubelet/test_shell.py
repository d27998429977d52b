"""What containers' commands do in the simulated shell: its language, its programs, its files and its clock."""

from __future__ import annotations

import pytest

from dragoman.kubelet.programs import Place, SimulatedCommand
from dragoman.runtime.clock import Clock
from dragoman.testing.loop import run
from tests.kubelet.shell.stage import ran

SCRIPTS: dict[str, tuple[str, str, int]] = {
    "words and variables": ("""echo "a  b" c  d '$NAME' "$NAME" ${NONE:-none} ${EMPTY-unset}.""", "a  b c d $NAME train none .\n", 0),
    "and, or, not": ("true && echo yes || echo no; ! false && echo not", "yes\nnot\n", 0),
    "if, elif, else": ("if [ -f /none ]; then echo 1; elif test -d /mnt; then echo 2; else echo 3; fi", "2\n", 0),
    "for and break": ("for i in 1 2 3 4; do [ $i = 3 ] && break; echo $i; done", "1\n2\n", 0),
    "while and arithmetic": ("i=0; while [ $i -lt 3 ]; do i=$((i * 2 + 1)); done; echo $i", "3\n", 0),
    "until and continue": ("n=0; until [ $n -ge 4 ]; do n=$((n+1)); [ $((n % 2)) = 0 ] && continue; echo $n; done", "1\n3\n", 0),
    "case": ('case "$NAME" in t*|x) echo t;; *) echo other;; esac', "t\n", 0),
    "functions": ("f() { local x=$1; echo f$x; return 4; }; f 1; echo $?", "f1\n4\n", 0),
    "subshells keep their variables": ("x=1; (x=2; exit 5); echo $? $x", "5 1\n", 0),
    "substitution": ("x=$(echo a; echo b); echo \"$x\" $(echo `echo c`)", "a\nb c\n", 0),
    "pipes": ("cat /mnt/data/rows | sort | head -2 | cut -d' ' -f2 | tr '\\n' ,", "1,2,", 0),
    "an endless writer ends with its reader": ("yes | head -2", "y\ny\n", 0),
    "the last one's code, or any with pipefail": ("false | true; echo $?; set -o pipefail; false | true; echo $?", "0\n1\n", 0),
    "redirection": ("echo a > /tmp/f; echo b >> /tmp/f; cat < /tmp/f; cat /none 2>&1", "a\nb\ncat: can't open '/none': No such file or directory\n", 1),
    "here-documents": ("cat <<EOF\nhello $NAME\nEOF\ncat <<'EOF'\n$NAME\nEOF\n", "hello train\n$NAME\n", 0),
    "errexit": ("set -e; if false; then :; fi; false || true; echo on; false; echo never", "on\n", 1),
    "nounset": ("set -u; echo $NONE; echo never", "", 2),
    "the exit code": ("echo bad; exit 3", "bad\n", 3),
    "read": ("while read a b; do echo $b$a; done < /mnt/data/rows", "2b\n1a\n3c\n", 0),
    "trimming": ("f=/a/b.tar.gz; echo ${f##*/} ${f%.*} ${f%%.*} ${#f}", "b.tar.gz /a/b.tar /a/b 11\n", 0),
    "globbing": ("cd /mnt/data; echo r* '*' none*", "rows * none*\n", 0),
    "positional": ("set -- a 'b c'; for x in \"$@\"; do echo [$x]; done; echo $#; shift; echo $1", "[a]\n[b c]\n2\nb c\n", 0),
    "scripts in files": ("/mnt/etc/app/run.sh 7; sh /mnt/etc/app/run.sh 8", "run with 7\nrun with 8\n", 0),
    "grep": ("grep -c . /mnt/data/rows; grep -E '^(a|c)' /mnt/data/rows | wc -l; grep -q z /mnt/data/rows", "3\n2\n", 1),
    "sed and awk": ("sed -n 's/\\(.\\) 3/\\1!/p' /mnt/data/rows; awk '{print $2, \"of\", $1}' /mnt/data/rows | tail -1", "c!\n3 of c\n", 0),
    "files": ("mkdir -p /a/b && cp /mnt/etc/app/mode /a/b/x && mv /a/b/x /a/y && ls /a && rm -r /a && test -e /a", "b\ny\n", 1),
    "stat": ("chmod 600 /tmp; stat -c '%a %F %n' /tmp; stat -c %s /mnt/etc/app/mode", "600 directory /tmp\n5\n", 0),
    "seq, xargs, printf": ("seq 2 | xargs -n1 printf '%02d;'", "01;02;", 0),
    "test of numbers and texts": ('[ 3 -gt 2 -a ! -z x ] && [[ abc == a* ]] && [ "a" != "b" ] && echo all', "all\n", 0),
    "who": ("hostname; hostname -i; id -u; whoami; pwd", "pod-0\n10.0.0.7\n0\nroot\n/\n", 0),
    "python": ("python3 -c 'import os; print(sum([1, 2]), os.environ[\"NAME\"])'", "3 train\n", 0),
    "env for one program": ("X=1 env | grep ^X; env Y=2 sh -c 'echo $Y'; echo $X", "X=1\n2\n\n", 0),
    "traps": ("trap 'echo bye' EXIT; echo hi; exit 2", "hi\nbye\n", 2),
    "archives": ("mkdir /x; echo 1 > /x/f; tar cf - -C / x | (mkdir /y; tar xf - -C /y; cat /y/x/f)", "1\n", 0),
    "timeout": ("timeout 2 sleep 50; echo $?; timeout 5 echo in time", "124\nin time\n", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(name: str) -> None:
    script, out, code = SCRIPTS[name]

    async def main(clock: Clock) -> None:
        found = await ran(clock, "sh", "-c", script)
        assert (found.out.decode(), found.code) == (out, code), found.errors.decode()

    run(main)


REFUSED = {
    "a launcher": ("torchrun --nproc-per-node=8 train.py", 127, "torchrun: not simulated"),
    "a program that nobody expects": ("frobnicate", 127, "frobnicate: not found"),
    "a Python program": ("python train.py", 127, "train.py: only `python -c`"),
    "a Python module": ("python -c 'import torch'", 127, "module torch is not simulated"),
    "an unknown option": ("ls --sideways", 1, "unrecognized option"),
    "a wrong interval": ("sleep soon", 1, "invalid time interval 'soon'"),
    "a file as a folder": ("ls /mnt/etc/app/mode/x", 1, "No such file or directory"),
    "an open if": ("if true; then echo", 2, "syntax error"),
    "a folder above": ("tar xf /mnt/etc/app/mode", 1, "not a tar archive"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_what_they_refuse(name: str) -> None:
    script, code, text = REFUSED[name]

    async def main(clock: Clock) -> None:
        found = await ran(clock, "sh", "-c", script)
        assert found.code == code
        assert text in found.errors.decode()

    run(main)


def test_time_passes_in_sleep_alone() -> None:
    async def main(clock: Clock) -> None:
        found = await ran(clock, "sh", "-c", "for i in 1 2 3; do date +%s; sleep 2; done")
        first, second, third = map(int, found.out.split())
        assert (second - first, third - second) == (2, 2)
        assert found.took == pytest.approx(6.0, abs=0.6)

    run(main)


def test_background_jobs_and_signals() -> None:
    async def main(clock: Clock) -> None:
        found = await ran(
            clock, "sh", "-c", "trap 'echo term; exit 7' TERM; (sleep 3; kill -TERM 1) & sleep 900 & wait"
        )
        assert (found.out, found.code) == (b"term\n", 7)
        assert found.took == pytest.approx(3.0, abs=0.6)

    run(main)


def test_a_busy_loop_does_not_hold_the_node() -> None:
    async def main(clock: Clock) -> None:
        found = await ran(clock, "sh", "-c", "while :; do :; done", wait_s=5.0)
        assert found.code is None

    run(main)


def test_a_process_that_was_away_catches_up() -> None:
    async def main(clock: Clock) -> None:
        lines: list[float] = []
        process: list[SimulatedCommand] = []

        def output(number: int, data: bytes) -> None:
            lines.append(process[0].process.now if process else clock.now())

        place = Place(env={}, hostname="h", now=clock.now())
        command = ("sh", "-c", "while sleep 10; do echo x; done")
        running = SimulatedCommand(clock, place, command, output, lambda code: None, started_at=clock.now() - 35.0)
        process.append(running)
        assert len(lines) == 3
        await clock.sleep(6.0)
        assert len(lines) == 4
        running.close()

    run(main)


def test_input_reaches_the_program_line_by_line() -> None:
    async def main(clock: Clock) -> None:
        found = await ran(clock, "sh", text=b"x=4\necho $x\nif true\nthen echo in\nfi\nexit 6\n")
        assert (found.out, found.code) == (b"4\nin\n", 6)

    run(main)
