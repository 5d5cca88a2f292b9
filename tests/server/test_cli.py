import signal
import struct
import subprocess
import sys
import wave
from pathlib import Path

import httpx
import pytest

import engine
from server import cli
from server.settings import Settings
from tests.fakes import FakeEngine, Script, pcm16

ROOT = Path(__file__).parents[2]
FILES = engine.ModelFiles(Path("t.gguf"), Path("c.gguf"))


@pytest.fixture
def loaded(fake: FakeEngine, monkeypatch):
    """The command line's `engine.load` gives the fake and keeps what it was asked for."""
    calls = []

    def load(files, config):
        calls.append((files, config))
        return fake

    monkeypatch.setattr(engine, "load", load)
    monkeypatch.setattr(engine, "bundled_voice", lambda: FILES)
    return calls


def run_python(code: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, **options,
    )  # fmt: skip


def test_help_needs_no_torch():
    code = (
        "import sys\nfrom server.cli import main\n"
        "try:\n    main(['serve', '--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'torch', 'fastapi', 'av'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    out, err = (process := run_python(code)).communicate(timeout=60)
    assert process.returncode == 0, err
    assert "--voice-aliases" in out and "FRAMECAST_PORT" in out


def test_every_setting_is_a_flag_of_serve(capsys):
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    text = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in text for name in Settings.model_fields)
    assert "--workers" not in text


def test_the_version_goes_to_stdout(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0 and capsys.readouterr().out.startswith("framecast ")


def test_say_writes_a_wav_and_reports_on_stderr(loaded, fake, tmp_path, capsys):
    target = tmp_path / "out.wav"
    command = [
        "say",
        "Hello.",
        "-o",
        str(target),
        "--voice",
        "alloy",
        "--seed",
        "7",
        "--top-k",
        "5",
    ]
    assert cli.main([*command, "--language", "en", "--device", "cpu"]) == 0
    with wave.open(str(target)) as file:
        assert file.readframes(10**6) == pcm16(5)
    request = fake.requests[0]
    assert (request.voice, request.language) == ("aiden", "en")
    assert request.sampling == engine.Sampling(seed=7, top_k=5)
    assert loaded[0] == (FILES, engine.EngineConfig(device="cpu"))
    out, err = capsys.readouterr()
    assert out == "" and "0.40 s of sound in 0.20 s, ended by stop, seed 7" in err
    assert fake.closed


@pytest.mark.parametrize("output", ["out.wav", "-"])
def test_say_shapes_the_sound_as_the_server_does(loaded, tmp_path, capfdbinary, output):
    target = "-" if output == "-" else str(tmp_path / output)
    shape = ["--speed", "2", "--sample-rate", "16000", "--loudness-lufs", "-20"]
    assert cli.main(["say", "Hello.", "-o", target, *shape]) == 0
    body = capfdbinary.readouterr().out if output == "-" else (tmp_path / output).read_bytes()
    assert struct.unpack_from("<I", body, 24) == (16_000,)
    assert (len(body) - 44) / 2 == pytest.approx(5 * 0.08 * 16_000 / 2, abs=2)


def test_say_names_the_stages_when_asked(loaded, tmp_path, capsys):
    assert cli.main(["say", "Hello.", "-v", "-o", str(tmp_path / "out.wav")]) == 0
    err = capsys.readouterr().err
    for word in (
        "spoken: Hello. (as spoken)",
        "queue",
        "prefill",
        "talker",
        "predictor",
        "codec",
        "0.500 (below 1 is faster)",
    ):
        assert word in err


@pytest.mark.parametrize(("ending", "magic"), [("flac", b"fLaC"), ("opus", b"OggS")])
def test_say_takes_the_format_from_the_ending(loaded, tmp_path, ending, magic):
    target = tmp_path / f"out.{ending}"
    assert cli.main(["say", "Hello.", "-o", str(target)]) == 0
    assert target.read_bytes().startswith(magic)


def test_say_streams_wav_to_stdout(loaded, capfdbinary):
    assert cli.main(["say", "Hello.", "-o", "-"]) == 0
    out = capfdbinary.readouterr().out
    assert out[:4] == b"RIFF" and out[40:44] == b"\xff\xff\xff\xff"
    assert out[44:] == pcm16(5)


def test_say_reads_stdin(loaded, fake, tmp_path, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("From a pipe."))
    assert cli.main(["say", "-", "-o", str(tmp_path / "out.wav")]) == 0
    assert fake.requests[0].text == "From a pipe."


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["***", "-o", "out.wav"], "`input` has nothing to speak"),
        (["Hi.", "-o", "out.xyz"], "`.wav`"),
        (["Hi.", "-o", "out"], "`.wav`"),
        (["Hi.", "-o", "out.wav", "--voice", "zz"], "unknown voice 'zz'"),
        (["Hi.", "-o", "out.wav", "--temperature", "9"], "`temperature` must be between 0 and 2"),
        (["Hi.", "-o", "out.wav", "--talker", "t.gguf"], "`--talker` needs `--codec`"),
        (["Hi.", "-o", "out.wav", "--dtype", "int3"], "`--dtype`"),
    ],
)
def test_what_the_caller_must_change_ends_with_2(
    loaded, tmp_path, monkeypatch, capsys, arguments, told
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["say", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (engine.ModelFileError("`t.gguf` is cut off"), 2),
        (engine.GenerationFailed("no sound"), 1),
        (FileNotFoundError("gone"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_failures_have_their_exit_codes_and_no_traceback(monkeypatch, capsys, error, code):
    def load(files, config):
        raise error

    monkeypatch.setattr(engine, "load", load)
    monkeypatch.setattr(engine, "bundled_voice", lambda: FILES)
    assert cli.main(["voices"]) == code
    out, err = capsys.readouterr()
    assert out == "" and str(error) in err and "Traceback" not in err


def test_say_into_a_folder_there_is_not_fails_before_anything_is_spoken(
    loaded, fake, tmp_path, capsys
):
    assert cli.main(["say", "Hello.", "-o", str(tmp_path / "none" / "x.wav")]) == 2
    assert "no folder" in capsys.readouterr().err
    assert fake.requests == []


def test_say_without_sound_fails(loaded, fake, tmp_path, capsys):
    fake.script = Script(frames=0)
    assert cli.main(["say", "Hello.", "-o", str(tmp_path / "out.wav")]) == 1
    assert "no audio" in capsys.readouterr().err


def test_voices_lists_speakers_and_languages(loaded, capsys):
    assert cli.main(["voices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "model\tfake-voice\tcustom_voice"
    assert "speaker\tvivian" in lines and "language\tenglish" in lines


def test_convert_shows_progress_and_prints_the_files(monkeypatch, tmp_path, capsys):
    def convert(checkpoint, output, kind, *, progress):
        assert (checkpoint, output, kind) == (Path("in"), tmp_path, "q8_0")
        progress("talker.norm", 1, 2)
        progress("codec.conv", 2, 2)
        return engine.ModelFiles(tmp_path / "talker.gguf", tmp_path / "codec.gguf")

    monkeypatch.setattr(engine, "convert_checkpoint", convert)
    assert cli.main(["convert", "in", "-o", str(tmp_path), "--type", "q8_0"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(tmp_path / "talker.gguf"), str(tmp_path / "codec.gguf")]
    assert "2/2" in err


def test_inspect_prints_the_report(monkeypatch, capsys):
    monkeypatch.setattr(engine, "inspect", lambda path: f"report of {path}")
    assert cli.main(["inspect", "t.gguf"]) == 0
    assert capsys.readouterr().out == "report of t.gguf\n"


SERVE = """
import sys, engine
from pathlib import Path
from tests.fakes import FakeEngine
fake = FakeEngine()
fake.warm.set()
engine.load = lambda files, config: fake
engine.bundled_voice = lambda: engine.ModelFiles(Path("t"), Path("c"))
from server.cli import main
sys.exit(main(["serve", "--port", "0", "--drain-timeout-s", "5"]))
"""


def test_serve_answers_until_it_is_told_to_stop():
    process = run_python(SERVE)
    try:
        line = next(line for line in process.stderr if "listening on" in line)
        url = line.split()[-1]
        transport = httpx.HTTPTransport(retries=8)
        with httpx.Client(base_url=url, transport=transport) as client:
            reply = client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "alloy"})
        assert reply.status_code == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out == "" and "Traceback" not in err
    assert "POST /v1/audio/speech id=req_" in err


@pytest.mark.usefixtures("logging_restored")
def test_serve_refuses_a_taken_port_before_it_loads(loaded, capsys):
    from server.serving import listen

    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.main(["serve", "--port", str(port)]) == 1
    assert "set `--host` or `--port`" in capsys.readouterr().err
    assert loaded == []
