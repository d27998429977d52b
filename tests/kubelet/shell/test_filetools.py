"""Programs that work on files do what the machine's own do, and `test` judges as it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubelet.shell.stage import real, simulated

MADE = "mkdir w; cd w; mkdir -p d/e; echo 1 > d/one; echo 22 > d/e/two; "
SCRIPTS = {
    "ls": "ls; ls d; ls -1 d; ls -a d; ls d/one; ls -d d; ls none 2> /dev/null || echo no",
    "cp": "cp d/one c; cat c; cp -r d k; cat k/e/two; cp d/one d/e; ls d/e; cp d k2 2> /dev/null; echo $?",
    "mv": "mv d/one m; cat m; ls d; mv m d/e; ls d/e; mv d x; ls x",
    "rm": "rm d/one; ls d; rm none 2> /dev/null; echo $?; rm -f none; echo $?; rm d 2> /dev/null; echo $?; rm -r d; ls",
    "mkdir": "mkdir a/b 2> /dev/null; echo $?; mkdir -p a/b; mkdir a 2> /dev/null; echo $?; mkdir -p a; echo $?",
    "rmdir": "rmdir d 2> /dev/null; echo $?; mkdir n; rmdir n; ls",
    "ln": "ln -s d/one l; cat l; readlink l; readlink -f l | grep -c one; readlink d/one; echo $?; ln -s none b; cat b 2> /dev/null; echo $?; echo 5 > l; cat d/one",
    "touch": "touch t; wc -c < t; touch d/one; cat d/one",
    "find": "find d | sort; find d -type f | sort; find d -name 'o*'; find d -maxdepth 1 | sort; find d -type d | sort",
    "stat": "chmod 640 d/one; stat -c '%a %s' d/one; stat -c %F d; chmod +x d/one; stat -c %a d/one; chmod u-x,go= d/one; stat -c %a d/one",
    "cd and pwd": "cd d/e; basename $(pwd); cd ..; ls; cd - > /dev/null; ls; cd none 2> /dev/null; echo $?",
    "du and sizes": "wc -c < d/e/two; cat d/one d/e/two | wc -c",
    "archives": "tar cf a.tar d; rm -r d; tar tf a.tar | sort; tar xf a.tar; cat d/e/two; tar czf z.tgz -C d e; mkdir o; tar xzf z.tgz -C o; ls o",
    "realpath of a link": "ln -s d k; cd k; ls; cd ..; [ -L k ] && echo link; [ -d k ] && echo folder",
    "redirection into a folder": "(echo x > d) 2> /dev/null; [ $? -ne 0 ] && echo no; (cat < none) 2> /dev/null; [ $? -ne 0 ] && echo no",
    "tests of files": "for t in e f d s r x L; do [ -$t d/one ] && echo $t; done; [ -d d ] && echo folder; [ ! -e none ] && echo none; : > z; [ -s z ] || echo empty",
    "tests of texts": "[ a = a ] && echo 1; [ a != b ] && echo 2; [ -z '' ] && echo 3; [ -n x ] && echo 4; [ x ] && echo 5; [ '' ] || echo 6; [ '(' = '(' ] && echo 7",
    "tests of numbers": "[ 2 -lt 10 ] && echo 1; [ 2 -ge 2 ] && echo 2; [ -1 -lt 0 ] && echo 3; [ 3 -ne 3 ] || echo 4; [ x -eq 1 ] 2> /dev/null; echo $?",
    "tests together": "[ 1 = 1 -a 2 = 2 ] && echo 1; [ 1 = 2 -o 2 = 2 ] && echo 2; [ ! 1 = 2 ] && echo 3; test 1 = 1 && echo 4; [ ! '' ] && echo 5",
    "tests of age": "touch old; sleep 0.05; touch new; [ new -nt old ] && echo newer; [ old -ot new ] && echo older",
    "mktemp": "f=$(mktemp); [ -f $f ] && echo made; d=$(mktemp -d); [ -d $d ] && echo folder; rm -r $f $d",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_does_what_the_machines_own_does(name: str, tmp_path: Path) -> None:
    script = MADE + SCRIPTS[name]
    assert simulated(script) == real(script, tmp_path)
