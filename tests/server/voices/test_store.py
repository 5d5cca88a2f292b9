"""The folder of entries: whole or not there, restored, bounded, shared by processes."""

import contextlib
import json
import logging
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from safetensors.numpy import save_file

from server.errors import StoreFull, StoreUnwritable
from server.voices import store as store_module
from server.voices.documents import NewerFormat
from server.voices.naming import new_id
from server.voices.store import Limits, Store
from tests.waiting import promptly

ROOT = Path(__file__).parents[3]


def parse(name, document):
    if document.facts.get("kind") == "later note":
        raise NewerFormat("it is a later note")
    if document.facts.get("kind") != "note":
        raise ValueError("it is no note")
    return document.facts["text"], int(document.array("numbers").sum())


def open_store(folder, entries=100, size=1 << 20, file_bytes=1 << 20):
    store = Store(folder, "note", parse, Limits("notes", entries, size, file_bytes))
    store.restore()
    return store


def put(store, text, name=None, numbers=4):
    facts = {"kind": "note", "text": text}
    return store.put(facts, {"numbers": np.ones(numbers)}, lambda _: name or new_id("note"))


def texts(store):
    return sorted(text for text, _ in store.entries.values())


def test_what_was_put_is_there_after_a_restart_and_what_was_removed_is_not(tmp_path):
    store = open_store(tmp_path / "new" / "folder")
    assert put(store, "one") == ("one", 4)
    put(store, "two")
    gone = next(name for name, (text, _) in store.entries.items() if text == "two")
    assert store.remove(gone) == ("two", 4)
    assert store.remove(gone) is None
    assert texts(open_store(tmp_path / "new" / "folder")) == ["one"]


def test_an_entry_put_in_place_of_another_keeps_its_id(tmp_path):
    store, name = open_store(tmp_path), new_id("note")
    put(store, "old", name)
    put(store, "new", name)
    assert list(store.entries) == [name]
    assert texts(open_store(tmp_path)) == ["new"]


def test_files_and_folder_are_the_owners_only(tmp_path):
    store = open_store(tmp_path / "notes")
    put(store, "private")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "notes").glob("*.safetensors")}
    assert modes == {0o600}
    assert (tmp_path / "notes").stat().st_mode & 0o777 == 0o700


def test_a_store_without_a_folder_is_empty_and_makes_none(tmp_path):
    store = open_store(tmp_path / "none")
    store.refresh()
    assert not store.entries and store.remove(new_id("note")) is None
    assert store.change(new_id("note"), lambda _: {}) is None
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("cut", [0, 1, 8, 40, -1])
def test_a_cut_file_is_set_aside_with_a_warning_and_the_rest_loads(tmp_path, caplog, cut):
    store, broken = open_store(tmp_path), new_id("note")
    put(store, "whole")
    put(store, "cut", broken)
    path = tmp_path / f"{broken}.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with caplog.at_level(logging.WARNING):
        assert texts(open_store(tmp_path)) == ["whole"]
    assert broken in caplog.text and "set aside" in caplog.text
    assert not path.exists() and (tmp_path / f"{broken}.safetensors.broken").exists()


def test_a_file_that_is_too_long_or_holds_something_else_is_set_aside(tmp_path, caplog):
    store, long, other = open_store(tmp_path), new_id("note"), new_id("note")
    put(store, "long", long, numbers=1000)
    save_file({"numbers": np.ones(2)}, tmp_path / f"{other}.safetensors", {"kind": "song"})
    with caplog.at_level(logging.WARNING):
        assert not open_store(tmp_path, file_bytes=1000).entries
    assert "at most 1000 are expected" in caplog.text and "it is no note" in caplog.text


def test_a_store_that_bounds_no_file_reads_and_changes_one_of_any_length(tmp_path):
    store, name = open_store(tmp_path, file_bytes=None), new_id("note")
    assert put(store, "long", name, numbers=10_000) == ("long", 10_000)
    store.change(name, lambda _: {"kind": "note", "text": "still long"})
    assert open_store(tmp_path, size=1, file_bytes=None).entries == {name: ("still long", 10_000)}


def test_what_was_set_aside_before_is_kept(tmp_path):
    name = new_id("note")
    for content in (b"first", b"second", b"third"):
        (tmp_path / f"{name}.safetensors").write_bytes(content)
        assert not open_store(tmp_path).entries
    aside = {path.name: path.read_bytes() for path in tmp_path.glob("*.broken*")}
    assert aside == {
        f"{name}.safetensors.broken": b"first",
        f"{name}.safetensors.broken.1": b"second",
        f"{name}.safetensors.broken.2": b"third",
    }


def test_a_file_of_a_later_version_is_left_alone_with_a_warning(tmp_path, caplog):
    path = tmp_path / f"{new_id('note')}.safetensors"
    save_file({"numbers": np.ones(2)}, path, {"kind": "later note"})
    with caplog.at_level(logging.WARNING):
        assert not open_store(tmp_path).entries
    assert path.exists() and "it is a later note; left alone" in caplog.text


def odd_types(path):
    facts = {"__metadata__": {"kind": "note", "text": "odd"}}
    for dtype in ("BF16", "F8_E4M3"):
        array = {"dtype": dtype, "shape": [1], "data_offsets": [0, 2 if dtype == "BF16" else 1]}
        head = json.dumps(facts | {"numbers": array}).encode()
        odd = path.with_name(f"{new_id('note')}.safetensors")
        odd.write_bytes(struct.pack("<Q", len(head)) + head + bytes(array["data_offsets"][1]))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (odd_types, "`numbers` is of type BF16"),
        (os.mkfifo, "no regular file; set aside"),
        (Path.mkdir, "no regular file; set aside"),
        (lambda path: path.symlink_to("/dev/null"), "no regular file; set aside"),
        (lambda path: path.symlink_to(path), "cannot be read"),
        (lambda path: path.symlink_to("nowhere"), ""),
    ],
    ids=["types", "pipe", "folder", "device", "loop", "dangling"],
)
def test_what_is_no_file_of_a_store_neither_stops_the_start_nor_a_refresh(
    tmp_path, caplog, make, told
):
    here = open_store(tmp_path)
    put(here, "whole")
    make(tmp_path / f"{new_id('note')}.safetensors")
    with caplog.at_level(logging.WARNING):
        promptly(here.refresh)
        assert texts(here) == ["whole"] == texts(promptly(lambda: open_store(tmp_path)))
    assert told in caplog.text and bool(caplog.text) == bool(told)
    assert put(here, "more") == ("more", 4)


def test_files_of_other_names_are_left_alone(tmp_path):
    (tmp_path / "holiday.safetensors").write_bytes(b"not ours")
    (tmp_path / f"{new_id('song')}.safetensors").write_bytes(b"not ours")
    assert not open_store(tmp_path).entries
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


def test_what_an_interrupted_writer_left_is_removed_at_start(tmp_path):
    put(open_store(tmp_path), "whole")
    half = tmp_path / f".{new_id('note')}.tmp"
    half.write_bytes(b"half")
    assert texts(open_store(tmp_path)) == ["whole"]
    assert not half.exists()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    store, name = open_store(tmp_path), new_id("note")
    put(store, "old", name)

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    for attempt in (
        lambda: put(store, "new", name),
        lambda: store.change(name, lambda _: {"kind": "note", "text": "new"}),
    ):
        with pytest.raises(StoreUnwritable, match="notes cannot be written: No space left"):
            attempt()
    monkeypatch.undo()
    assert texts(store) == ["old"] == texts(open_store(tmp_path))
    assert not list(tmp_path.glob(".*.tmp"))


def test_metadata_changes_and_the_arrays_stay(tmp_path):
    store, name = open_store(tmp_path), new_id("note")
    assert store.change(name, lambda _: {"kind": "note", "text": "new"}) is None
    put(store, "old", name)
    assert store.change(name, lambda old: {"kind": "note", "text": old[0] + " and new"}) == (
        "old and new",
        4,
    )
    assert store.change(new_id("note"), lambda _: {"kind": "note", "text": "new"}) is None
    assert open_store(tmp_path).entries == {name: ("old and new", 4)}


def test_another_process_that_never_lets_go_is_told(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    put(store, "old")
    monkeypatch.setattr("server.voices.store._LOCK_TIMEOUT_S", 0.0)
    with FileLock(tmp_path / ".lock"), pytest.raises(StoreUnwritable, match="holds its lock"):
        put(store, "new")


def test_nobody_waits_for_a_writer_but_other_writers(tmp_path, monkeypatch):
    store, there = open_store(tmp_path), open_store(tmp_path)
    put(store, "old")
    waiting, free = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def held(*_, **__):
        waiting.set()
        free.wait()
        yield

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "FileLock", held)
        writer = threading.Thread(target=put, args=(store, "new"))
        writer.start()
        assert waiting.wait(30)
        with monkeypatch.context() as short:
            short.setattr(store_module, "_LOCK_TIMEOUT_S", 0.0)
            with pytest.raises(StoreUnwritable, match="holds its lock"):
                put(store, "another")
    put(there, "from elsewhere")
    promptly(store.refresh)
    assert texts(store) == ["from elsewhere", "old"]
    free.set()
    writer.join()
    assert texts(store) == ["from elsewhere", "new", "old"]


def test_the_number_and_the_bytes_of_entries_are_bounded(tmp_path):
    store, name = open_store(tmp_path, entries=2), new_id("note")
    put(store, "one", name)
    put(store, "two")
    with pytest.raises(StoreFull, match="`max_voices`"):
        put(store, "three")
    assert put(store, "one again", name) == ("one again", 4)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    tight = open_store(tmp_path, size=size + 10)
    with pytest.raises(StoreFull, match="`max_voices_bytes`"):
        put(tight, "three")


def test_a_lowered_limit_loses_nothing_and_refuses_new_entries(tmp_path, caplog):
    store = open_store(tmp_path)
    for number in range(5):
        put(store, f"note {number}")
    with caplog.at_level(logging.WARNING):
        lowered = open_store(tmp_path, entries=2)
    assert len(lowered.entries) == 5
    assert "5 notes" in caplog.text and "all are kept" in caplog.text
    with pytest.raises(StoreFull):
        put(lowered, "one more")
    assert len(open_store(tmp_path).entries) == 5


def test_two_stores_of_one_folder_see_each_others_changes(tmp_path):
    here, there = open_store(tmp_path), open_store(tmp_path)
    name = new_id("note")
    put(here, "from here", name)
    there.refresh()
    assert texts(there) == ["from here"]
    put(there, "changed", name)
    here.refresh()
    assert texts(here) == ["changed"]
    here.remove(name)
    there.refresh()
    assert not there.entries


def test_a_broken_file_that_appears_later_is_left_alone_and_warned_about_once(tmp_path, caplog):
    store = open_store(tmp_path)
    put(store, "whole")
    broken = tmp_path / f"{new_id('note')}.safetensors"
    broken.write_bytes(b"being copied")
    with caplog.at_level(logging.WARNING):
        store.refresh()
        store.refresh()
    assert texts(store) == ["whole"] and broken.exists()
    assert caplog.text.count(broken.name) == 1


def test_parallel_writers_never_pass_the_limit(tmp_path):
    store, refused = open_store(tmp_path, entries=5), []

    def write(number):
        try:
            put(store, str(number))
        except StoreFull as error:
            refused.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert len(store.entries) == 5 and len(refused) == 15


def test_writers_of_two_processes_take_turns(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from tests.server.voices.test_store import open_store, put\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "for number in range(10):\n    put(store, sys.argv[2] + str(number))\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path, letter], cwd=ROOT)
        for letter in "ab"
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert texts(open_store(tmp_path)) == sorted(f"{c}{n}" for c in "ab" for n in range(10))


def test_a_folder_that_cannot_be_written_is_read(tmp_path, monkeypatch, caplog):
    put(open_store(tmp_path), "there")

    def read_only(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store_module, "FileLock", read_only)
    (tmp_path / f"{new_id('note')}.safetensors").write_bytes(b"broken")
    with caplog.at_level(logging.WARNING):
        assert texts(open_store(tmp_path)) == ["there"]
    assert "cannot be written" in caplog.text and "left alone" in caplog.text
    monkeypatch.undo()
    monkeypatch.setattr(Path, "replace", read_only)
    with caplog.at_level(logging.WARNING):
        assert texts(open_store(tmp_path)) == ["there"]
    assert "left alone: [Errno 13]" in caplog.text
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
