"""Files in memory: folders mounted over each other, links, read-only parts, ceilings; never this machine's files."""

from __future__ import annotations

import pytest

from dragoman.kubelet.programs import Place
from dragoman.kubelet.shell import files as module
from dragoman.kubelet.shell.files import Entry, FileFault, FileMount, Files, Folder


def test_files_are_shared_where_they_are_mounted_and_kept_where_they_are_read_only() -> None:
    shared, config = Folder(), Folder({"a/b": b"1"})
    first = Files(
        [FileMount("/", Folder()), FileMount("/data", shared), FileMount("/cfg", config, "a", read_only=True)]
    )
    second = Files([FileMount("/", Folder()), FileMount("/other", shared)])
    first.write("/data/x", b"hello", 0.0)
    assert second.read("/other/x") == b"hello"
    assert first.read("/cfg/b") == b"1"
    assert first.names("/") == ["cfg", "data"]
    with pytest.raises(FileFault, match="Read-only"):
        first.write("/cfg/c", b"", 0.0)
    with pytest.raises(FileFault, match="No such file"):
        first.write("/none/c", b"", 0.0)
    first.link("/data/l", "x", 0.0)
    assert first.read("/data/l") == b"hello"
    shared.put("null", Entry("device"))
    first.write("/data/null", b"lost", 0.0)
    assert first.read("/data/null") == b""


def test_a_root_that_may_not_be_written_to() -> None:
    place = Place(env={}, hostname="h", read_only=True)
    with pytest.raises(FileFault, match="Read-only"):
        place.files.write("/tmp/x", b"", 0.0)
    place.files.write(place.term_path, b"why", 0.0)
    assert place.term_message() == "why"


def fresh(**files: bytes) -> Files:
    return Files([FileMount("/", Folder({name.replace("__", "/"): data for name, data in files.items()}))])


def test_paths_are_normal_and_never_leave_the_root() -> None:
    found = fresh(a__b=b"1")
    assert found.read("/a/../a/./b") == b"1"
    assert found.read("../../a/b") == b"1"
    assert found.names("/") == ["a"]


FAULTS = {
    "reading a folder": (lambda f: f.read("/a"), "Is a directory"),
    "reading what is not there": (lambda f: f.read("/x"), "No such file"),
    "listing a file": (lambda f: f.names("/a/b"), "Not a directory"),
    "writing to a folder": (lambda f: f.write("/a", b"", 0.0), "Is a directory"),
    "writing below a file": (lambda f: f.write("/a/b/c", b"", 0.0), "Not a directory"),
    "making what is there": (lambda f: f.make_folder("/a", 0.0), "File exists"),
    "making without what is above": (lambda f: f.make_folder("/x/y", 0.0), "No such file"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_worded_as_the_systems(name: str) -> None:
    work, text = FAULTS[name]
    with pytest.raises(FileFault, match=text):
        work(fresh(a__b=b"1"))


def test_links_are_followed_from_where_they_lie() -> None:
    found = fresh(a__b__c=b"1", d=b"2")
    found.link("/a/up", "../d", 0.0)
    found.link("/to", "a/b", 0.0)
    assert (found.read("/a/up"), found.read("/to/c"), found.names("/to")) == (b"2", b"1", ["c"])
    found.write("/to/new", b"3", 0.0)
    assert found.read("/a/b/new") == b"3"
    link = found.find("/to", follow=False)
    assert link is not None
    assert (link.kind, link.data) == ("link", b"a/b")


def test_a_folder_takes_only_so_many_bytes_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLDER_BYTES", 10)
    monkeypatch.setattr(module, "ENTRIES", 4)
    found = fresh(a=b"12345")
    with pytest.raises(FileFault, match="No space left"):
        found.write("/b", b"123456", 0.0)
    found.write("/a", b"1234567890", 0.0)
    with pytest.raises(FileFault, match="No space left"):
        found.write("/a", b"1", 0.0, append=True)
    found.write("/a", b"", 0.0)
    found.write("/b", b"", 0.0)
    found.write("/c", b"", 0.0)
    with pytest.raises(FileFault, match="No space left"):
        found.write("/d", b"", 0.0)


def test_a_folder_is_brought_up_to_date_before_it_is_read() -> None:
    shown = Folder()
    shown.refresh = lambda: shown.put("now", Entry("file", b"x"))
    assert Files([FileMount("/", Folder()), FileMount("/cfg", shown)]).read("/cfg/now") == b"x"


def test_a_single_file_may_be_mounted() -> None:
    config = Folder({"a": b"1", "b": b"2"})
    found = Files([FileMount("/", Folder({"etc/x": b"0"})), FileMount("/etc/b", config, "b")])
    assert found.read("/etc/b") == b"2"
    assert found.names("/etc") == ["b", "x"]
