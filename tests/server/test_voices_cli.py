"""`framecast voices`: saved voices without a server, and beside one."""

import os

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import engine
from server import cli
from tests.fakes import FakeEngine, base_info, model_info
from tests.server.clips import clip

SAID = "What the clip says."


@pytest.fixture
def fake():
    return FakeEngine(models=(base_info(),))


@pytest.fixture
def framecast(fake, monkeypatch, tmp_path, capsys):
    """`framecast voices ...` -> exit code, lines of stdout, text of stderr."""
    monkeypatch.setattr(engine, "load", lambda files, config: fake)
    monkeypatch.setattr(engine, "bundled_voice", lambda: engine.ModelFiles(tmp_path, tmp_path))
    monkeypatch.setenv("FRAMECAST_VOICES_DIR", str(tmp_path / "voices"))
    (tmp_path / "anna.wav").write_bytes(clip())

    def run(*arguments):
        code = cli.main(["voices", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return run


@pytest.fixture
def anna(framecast, tmp_path):
    code, lines, _ = framecast("add", "Anna", tmp_path / "anna.wav", "--ref-text", SAID,
                               "--consent", "she said yes", "--description", "warm")  # fmt: skip
    assert code == 0
    return lines[0]


def test_a_voice_is_added_listed_and_removed(framecast, anna, fake):
    code, lines, _ = framecast("list")
    assert code == 0 and lines[0].split("\t")[:4] == [anna, "Anna", "in-context", "fake-base"]
    assert fake.closed
    assert framecast("remove", "anna")[:2] == (0, [anna])
    assert framecast("list")[:2] == (0, [])


def test_without_a_command_the_models_names_and_the_saved_voices_are_listed(framecast, anna, fake):
    fake.models = (model_info(), base_info())
    code, lines, _ = framecast()
    assert code == 0
    assert "model\tfake-voice\tcustom_voice" in lines and "speaker\tvivian" in lines
    assert lines[-1] == "saved\tAnna"


def plant_odd_files(folder):
    (folder / "small.spk").write_bytes(bytes(4))
    for name, frames in (("odd", 0), ("long", 800), ("told", 25), ("wordy", 25)):
        (folder / f"{name}.spk").write_bytes(bytes(32))
        (folder / f"{name}.rvq").write_bytes(bytes(22 * frames or 5))
    (folder / "told.txt").write_bytes("é".encode("latin-1"))
    (folder / "wordy.txt").write_text("words " * 100)
    os.mkfifo(folder / "pipe.safetensors")
    facts = {"format": "framecast.voice", "version": "1", "name": "Odd", "created_at": "1"}
    for name, more in (("odd", {"warnings": "5"}), ("later", {"version": "2"})):
        array = {"embedding": np.ones(8, np.float32)}
        save_file(array, folder / f"{name}.safetensors", facts | more)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["add", "Anna", "{}/anna.wav"], "choose another name or set `overwrite`"),
        (["add", "alloy", "{}/anna.wav"], "`name` 'alloy'"),
        (["add", "../x", "{}/anna.wav"], "`name` may hold"),
        (["add", "x", "{}/text.wav"], "text.wav` cannot be read"),
        (["add", "x", "{}/anna.wav", "--max-clip-bytes", "2000"], "--max-clip-bytes"),
        (["add", "x", "{}/anna.wav", "--require-consent"], "`consent` is required"),
        (["add", "x", "{}/anna.wav", "--consent", "cons_1"], "no consent recording"),
        (["add", "x", "{}/anna.wav", "--max-voices", "1"], "`max_voices`"),
        (["remove", "nobody"], "no saved voice 'nobody'"),
        (["export", "nobody", "-o", "{}/x.spk"], "no saved voice 'nobody'"),
        (["export", "anna", "-o", "{}/x.mp3"], "must end in"),
        (["import", "{}/anna.wav"], "must end in"),
        (["import", "{}/bad.safetensors"], "holds no voice"),
        (["import", "{}/bad.spk"], "bad.spk` must hold 4 bytes per value"),
        (["import", "{}/small.spk"], "small.spk` holds 1 values; a voice has 8 to 16384"),
        (["import", "{}/odd.spk", "--ref-text", SAID], "odd.rvq` holds 5 bytes, no frames of 16"),
        (["import", "{}/long.spk", "--ref-text", SAID], "long.rvq` holds 800 frames, 64.0 s"),
        (["import", "{}/told.spk"], "told.txt' is no text in UTF-8"),
        (["import", "{}/wordy.spk"], "wordy.txt` cannot be what the codes say"),
        (["import", "{}/wordy.spk", "--ref-text", "x" * 900], "`--ref-text` cannot be what"),
        (["import", "{}/pipe.safetensors"], "no regular file"),
        (
            ["import", "{}/whole.safetensors", "--ref-text", SAID],
            "`--ref-text` is for `.spk` files",
        ),
        (["import", "{}/odd.safetensors"], "`warnings` is no list of strings"),
        (["import", "{}/later.safetensors"], "framecast.voice 2"),
    ],
)
def test_what_is_wrong_is_told_with_exit_code_2(framecast, anna, tmp_path, arguments, told):
    (tmp_path / "text.wav").write_text("just some text")
    (tmp_path / "bad.safetensors").write_bytes(b"bad")
    (tmp_path / "bad.spk").write_bytes(b"bad")
    plant_odd_files(tmp_path)
    code, lines, err = framecast(*(each.format(tmp_path) for each in arguments))
    assert (code, lines) == (2, [])
    assert told in err and "Traceback" not in err
    assert len(framecast("list")[1]) == 1


def test_a_file_that_is_not_there_is_exit_code_1(framecast, tmp_path):
    for arguments in (("add", "x", tmp_path / "none.wav"), ("import", tmp_path / "none.spk"),
                      ("import", tmp_path / "none.safetensors")):  # fmt: skip
        assert framecast(*arguments)[0] == 1


def test_a_whole_voice_travels_as_one_file(framecast, anna, tmp_path):
    path = tmp_path / "out.safetensors"
    assert framecast("export", "Anna", "-o", path)[:2] == (0, [str(path)])
    assert framecast("import", path)[0] == 2
    assert framecast("import", path, "--overwrite")[:2] == (0, [anna])
    code, lines, _ = framecast("import", path, "--name", "Berta", "--consent", "again")
    assert code == 0 and lines != [anna]
    before, after = tmp_path / "voices" / f"{anna}.safetensors", tmp_path / "again.safetensors"
    framecast("export", "berta", "-o", after)
    with_facts = [read(path) for path in (before, after)]
    assert with_facts[0][0] == with_facts[1][0] == SAID
    assert np.array_equal(with_facts[0][1], with_facts[1][1])
    assert (with_facts[0][2], with_facts[1][2]) == ("she said yes", "again")


def read(path):
    with safe_open(path, framework="np") as file:
        facts = file.metadata()
        return facts["transcript"], file.get_tensor("codes"), facts["consent"]


def test_a_voice_travels_in_the_peers_files(framecast, anna, tmp_path):
    path = tmp_path / "anna.spk"
    code, lines, _ = framecast("export", "Anna", "-o", path)
    assert [line.rpartition(".")[2] for line in lines] == ["spk", "rvq", "txt"]
    assert (tmp_path / "anna.txt").read_text() == f"{SAID}\n"
    assert path.stat().st_size == 8 * 4
    framecast("remove", "Anna")
    assert framecast("import", path)[0] == 0
    assert framecast("list")[1][0].split("\t")[1:3] == ["anna", "in-context"]
    (tmp_path / "anna.txt").unlink()
    code, _, err = framecast("import", path, "--name", "plain")
    assert code == 0 and "no effect without `--ref-text`" in err
    assert framecast("import", path, "--name", "told", "--ref-text", SAID)[0] == 0
    modes = dict(line.split("\t")[1:3] for line in framecast("list")[1])
    assert modes == {"anna": "in-context", "plain": "vector", "told": "in-context"}


def test_a_voice_of_a_vector_has_one_file(framecast, tmp_path):
    framecast("add", "plain", tmp_path / "anna.wav")
    code, lines, _ = framecast("export", "plain", "-o", tmp_path / "plain.spk")
    assert (code, lines) == (0, [str(tmp_path / "plain.spk")])


def test_an_export_is_not_taken_for_a_voice_of_another(framecast, anna, tmp_path):
    framecast("add", "plain", tmp_path / "anna.wav")
    assert framecast("export", "Anna", "-o", tmp_path / "out.spk")[0] == 0
    code, lines, err = framecast("export", "plain", "-o", tmp_path / "out.spk")
    assert (code, lines) == (2, []) and "out.rvq' belongs to another voice" in err
    assert (tmp_path / "out.txt").read_text() == f"{SAID}\n"
    assert framecast("export", "Anna", "-o", tmp_path / "out.spk")[0] == 0
    (tmp_path / "out.rvq").unlink()
    assert framecast("export", "plain", "-o", tmp_path / "out.spk")[0] == 0


@pytest.mark.parametrize("shape", [{"code_groups": 4}, {"codebook_size": 4096}])
def test_codes_of_another_shape_are_exported_whole_only(framecast, fake, tmp_path, shape):
    fake.models = (base_info(**shape),)
    framecast("add", "Anna", tmp_path / "anna.wav", "--ref-text", SAID)
    code, lines, err = framecast("export", "Anna", "-o", tmp_path / "out.spk")
    assert (code, lines) == (2, []) and "16 groups of codes below 2048" in err
    assert not (tmp_path / "out.spk").exists()
    assert framecast("export", "Anna", "-o", tmp_path / "out.safetensors")[0] == 0


def test_a_voice_without_a_vector_is_exported_whole_only(framecast, tmp_path):
    facts = {"format": "framecast.voice", "version": "1", "name": "Codes", "created_at": "1",
             "transcript": SAID}  # fmt: skip
    save_file({"codes": np.ones((16, 9), np.int16)}, tmp_path / "codes.safetensors", facts)
    assert framecast("import", tmp_path / "codes.safetensors")[0] == 0
    code, _, err = framecast("export", "codes", "-o", tmp_path / "codes.spk")
    assert code == 2 and "has no vector" in err


def test_a_transcript_with_a_mark_of_its_encoding_is_read(framecast, anna, tmp_path):
    framecast("export", "Anna", "-o", tmp_path / "out.spk")
    (tmp_path / "out.txt").write_text(SAID, encoding="utf-8-sig")
    framecast("import", tmp_path / "out.spk", "--name", "Berta")
    framecast("export", "Berta", "-o", tmp_path / "again.spk")
    assert (tmp_path / "again.txt").read_text() == f"{SAID}\n"


def test_a_list_changes_nothing_in_the_folder(framecast, anna, tmp_path):
    broken = tmp_path / "voices" / f"voice_{1:024x}.safetensors"
    broken.write_bytes(b"being copied")
    code, lines, _ = framecast("list")
    assert code == 0 and [line.split("\t")[1] for line in lines] == ["Anna"]
    assert broken.read_bytes() == b"being copied"


def test_a_preset_model_adds_nothing(framecast, fake, tmp_path):
    fake.models = (model_info(),)
    code, _, err = framecast("add", "x", tmp_path / "anna.wav")
    assert code == 2 and "Base model" in err


def test_a_saved_voice_can_be_said(framecast, anna, fake, tmp_path):
    out = tmp_path / "out.wav"
    assert cli.main(["say", "Hi.", "-o", str(out), "--voice", "anna"]) == 0
    assert fake.requests[0].voice.transcript == SAID and out.stat().st_size > 44
