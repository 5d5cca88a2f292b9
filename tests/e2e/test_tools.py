from __future__ import annotations

import io
import wave

import numpy as np

from tests.e2e.conftest import run


def test_say_writes_a_wav_and_reports_every_stage(tmp_path, custom_voice):
    out = tmp_path / "out.wav"
    done = run("say", "Hello there.", "-o", out, "--voice", "Ryan", "--language", "en", "--seed",
               5, "--max-new-tokens", 12, "-v", "--talker", custom_voice.talker, "--codec",
               custom_voice.codec)  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    with wave.open(str(out)) as file:
        assert (file.getnframes(), file.getframerate()) == (12 * 1920, 24000)
    report = done.stderr.decode()
    for word in ("talker", "predictor", "codec", "first audio", "real time", "seed 5"):
        assert word in report
    assert done.stdout == b""


def test_say_streams_wav_to_stdout_and_reads_stdin(custom_voice):
    done = run("say", "-", "-o", "-", "--seed", 5, "--max-new-tokens", 6, "--talker",
               custom_voice.talker, "--codec", custom_voice.codec, stdin="Hello.")  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout[:4] == b"RIFF"
    samples = np.frombuffer(done.stdout[44:], "<i2")
    assert len(samples) == 6 * 1920
    assert np.abs(samples).max() > 0


def test_say_refuses_an_unknown_voice_with_the_list(tmp_path, custom_voice):
    done = run("say", "Hello.", "-o", tmp_path / "x.wav", "--voice", "nobody", "--talker",
               custom_voice.talker, "--codec", custom_voice.codec)  # fmt: skip
    assert done.returncode == 2
    assert b"nobody" in done.stderr
    assert b"vivian" in done.stderr


def test_voices_lists_speakers_and_languages(custom_voice):
    done = run("voices", "--talker", custom_voice.talker, "--codec", custom_voice.codec)
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert "speaker\tvivian" in lines
    assert "language\tenglish" in lines


def test_convert_then_inspect_then_say(tmp_path, checkpoint):
    converted = run("convert", checkpoint, "-o", tmp_path, "--type", "q8_0")
    assert converted.returncode == 0, converted.stderr.decode()
    talker, codec = converted.stdout.decode().split()
    shown = run("inspect", talker)
    assert shown.returncode == 0
    text = shown.stdout.decode()
    assert "qwen3-tts" in text
    assert "talker.blk.0.attn_q.weight" in text
    out = tmp_path / "x.wav"
    spoken = run("say", "Hello.", "-o", out, "--max-new-tokens", 3, "--talker", talker, "--codec",
                 codec)  # fmt: skip
    assert spoken.returncode == 0, spoken.stderr.decode()
    with wave.open(io.BytesIO(out.read_bytes())) as file:
        assert file.getnframes() == 3 * 1920


def test_swapped_files_are_named_as_swapped(tmp_path, custom_voice):
    done = run("say", "Hello.", "-o", tmp_path / "x.wav", "--talker", custom_voice.codec, "--codec",
               custom_voice.talker)  # fmt: skip
    assert done.returncode == 2
    assert b"swapped" in done.stderr or b"exchange" in done.stderr


def test_help_imports_no_torch():
    import subprocess
    import sys

    from tests.e2e.conftest import environment

    code = (
        "import sys\nfrom server.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment(), check=True
    )
    assert done.stderr.strip() == b"False"
    assert b"serve" in done.stdout
