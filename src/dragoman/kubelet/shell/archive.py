"""What is `tar` here? As much as `kubectl cp` needs: pack files to the output, unpack files from the input."""

from __future__ import annotations

import io
import posixpath
import tarfile

from dragoman.kubelet.shell.files import FileFault
from dragoman.kubelet.shell.language import ProgramCall
from dragoman.kubelet.shell.process import ThreadWork
from dragoman.kubelet.shell.reading import collect

_IGNORED = "vmpzoP"


def tar(call: ProgramCall) -> int | ThreadWork:
    """The program."""
    words = list(call.args[1:])
    if words and not words[0].startswith("-"):
        words[0] = f"-{words[0]}"
    verb, archive, folder, names = "", "-", call.cwd, []
    while words:
        word = words.pop(0)
        if word.startswith("--") or not word.startswith("-") or word == "-":
            if not word.startswith("--"):
                names.append(word)
            continue
        for letter in word[1:]:
            if letter in "cxt":
                verb = letter
            elif letter in "fC":
                if not words:
                    return call.fail(f"option requires an argument -- '{letter}'")
                value = words.pop(0)
                archive, folder = (value, folder) if letter == "f" else (archive, call.path(value))
            elif letter not in _IGNORED:
                return call.fail(f"unrecognized option: {letter} (known here: c x t f C {' '.join(_IGNORED)})")
    if not verb:
        return call.fail("must specify one of -c, -t, -x")
    if verb == "c":
        return _pack(call, archive, folder, names)
    return _unpack(call, archive, folder, names, only_list=verb == "t")


def _pack(call: ProgramCall, archive: str, folder: str, names: list[str]) -> int:
    files, packed = call.around.files, io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as made:
        for name in names:
            root = posixpath.normpath(posixpath.join(folder, name))
            if files.find(root) is None:
                return call.fail(f"{name}: No such file or directory")
            for path in files.walk(root):
                entry = files.entry(path)
                member = tarfile.TarInfo((name.rstrip("/") + path[len(root) :]).lstrip("/") or ".")
                member.mode, member.mtime = entry.mode, entry.changed
                if entry.kind == "folder":
                    member.type = tarfile.DIRTYPE
                    made.addfile(member)
                elif entry.kind == "file":
                    member.size = len(entry.data)
                    made.addfile(member, io.BytesIO(entry.data))
    if archive == "-":
        call.output.write(packed.getvalue())
    else:
        files.write(call.path(archive), packed.getvalue(), call.around.process.now)
    return 0


def _unpack(call: ProgramCall, archive: str, folder: str, names: list[str], *, only_list: bool) -> ThreadWork:
    files, now = call.around.files, call.around.process.now
    data = (yield from collect(call)) if archive == "-" else files.read(call.path(archive))
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as sent:
            for member in sent:
                if names and member.name not in names:
                    continue
                if only_list:
                    call.say(f"{member.name}/\n" if member.isdir() else f"{member.name}\n")
                    continue
                # Nothing above the folder is written to, whatever the archive's names say.
                path = posixpath.join(folder, posixpath.normpath("/" + member.name).lstrip("/"))
                if member.isdir():
                    files.make_folder(path, now, parents=True)
                elif member.isfile():
                    files.make_folder(posixpath.dirname(path), now, parents=True)
                    content = sent.extractfile(member)
                    files.write(path, content.read() if content else b"", now)
                    files.set_mode(path, member.mode & 0o777)
    except tarfile.TarError as error:
        return call.fail(f"not a tar archive: {error}")
    except FileFault as fault:
        return call.fail(str(fault))
    return 0
