"""`framecast bench`: the load it makes, what it reports, and the random files it makes."""

from __future__ import annotations

import json
import math
import sys
from itertools import pairwise

import httpx
import pytest

import engine
from engine.assets import full_size
from server.bench.listening import STAGES, EngineEars, Heard, ServerEars, underrun
from server.bench.load import Round, arrivals, by_the_clock, open_loop, run_round, summary
from server.bench.plot import Curve, curves, draw
from server.bench.report import rounded, table
from server.cli import main
from server.settings import Settings
from tests.server.clips import clip
from tests.server.conftest import Live
from tests.waiting import eventually

PEER = """
import json, sys
for line in sys.stdin:
    count, frames = int(line), int(sys.argv[5])
    seconds = 0.5 * count * frames
    print(json.dumps({"seconds": seconds, "frames": count * frames, "first_audio_s": [0.25]}),
          flush=True)
"""


@pytest.fixture
def bench(custom_voice, capsys, monkeypatch):
    """Run the command on the tiny model; its output."""
    monkeypatch.setenv("FRAMECAST_KERNELS", "plain")
    monkeypatch.setenv("FRAMECAST_DEVICE", "cpu")
    files = ["--talker", str(custom_voice.talker), "--codec", str(custom_voice.codec)]

    def run(*flags: str) -> tuple[int, str, str]:
        code = main(["bench", *files, "--frames", "4", "--rounds", "2", *flags])
        return code, *capsys.readouterr()

    return run


def test_json_reports_a_run_per_concurrency(bench):
    code, out, _ = bench("--concurrency", "1,3", "--json")
    report = json.loads(out)
    assert code == 0
    assert "higher is better" in report["rtf_is"]
    assert [run["concurrency"] for run in report["runs"]] == [1, 3]
    for run in report["runs"]:
        assert run["rtf_per_stream"] == pytest.approx(
            run["rtf_aggregate"] / run["concurrency"], 1e-4
        )
        assert set(run["stage_ms"]) == {"talker", "predictor", "codec"}
        assert all(value > 0 for value in run["stage_ms"].values())
        assert 0 < run["first_audio_s"] <= run["first_audio_p95_s"]
        assert "peer_rtf_aggregate" not in run


def test_the_table_says_which_way_is_better(bench):
    code, out, _ = bench("--concurrency", "2")
    assert code == 0
    head, row, foot = out.splitlines()
    assert "rtf (higher is better)" in head
    assert row.split()[0] == "2"
    assert "peak memory" in foot


def test_the_peer_is_measured_on_the_same_files_and_compared(bench, tmp_path, monkeypatch):
    script = tmp_path / "peer.py"
    script.write_text(PEER)
    monkeypatch.setattr("server.bench.peer.__file__", str(script))
    _, out, _ = bench("--concurrency", "2", "--json", "--peer", sys.executable)
    (run,) = json.loads(out)["runs"]
    assert run["peer_rtf_aggregate"] == pytest.approx(0.08 / 0.5)
    assert run["peer_first_audio_s"] == 0.25
    assert run["ratio_to_peer"] == pytest.approx(run["rtf_aggregate"] / 0.16, 1e-4)


def test_a_python_without_the_peer_is_named(bench):
    code, _, err = bench("--peer", "no-such-python")
    assert code == 2
    assert "`--peer` 'no-such-python'" in err


def test_a_peer_that_ends_is_reported(bench, tmp_path, monkeypatch):
    script = tmp_path / "peer.py"
    script.write_text("raise SystemExit(1)")
    monkeypatch.setattr("server.bench.peer.__file__", str(script))
    code, _, err = bench("--peer", sys.executable)
    assert code == 2
    assert "realtimetts-qwen-native-cpu" in err


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--concurrency", "0"], "`--concurrency`"),
        (["--concurrency", "1,two"], "`--concurrency`"),
        (["--frames", "0"], "`--frames`"),
        (["--rounds", "0"], "`--rounds`"),
        (["--rates", "1,x"], "`--rates`"),
        (["--rates", "0"], "`--rates`"),
        (["--rates", "nan"], "`--rates`"),
        (["--rates", "inf,1"], "`--rates`"),
        (["--rates", "1,1e308"], "at most 100000 requests"),
    ],
)
def test_a_value_that_cannot_be_is_refused_before_a_model_is_loaded(bench, flags, named):
    code, _, err = bench(*flags)
    assert code == 2
    assert named in err


def test_every_listener_of_a_round_hears_all_frames(start):
    speech = start(slots=3, loop_window=0, silence_s=0)
    result = run_round(EngineEars(speech), "Hello there.", 3, 5)
    frame = speech.models[0].samples_per_frame / speech.models[0].sample_rate
    assert result.audio_s == pytest.approx(3 * 5 * frame)
    assert len(result.first_audio_s) == len(result.underruns) == 3


def test_a_listener_that_fails_fails_the_round(start):
    speech = start(slots=1, max_queue=0)
    with pytest.raises(engine.Overloaded):
        run_round(EngineEars(speech), "Hello there.", 3, 5)


def test_an_underrun_is_the_silence_after_the_first_chunk():
    assert underrun([(1.0, 0.5), (1.2, 0.5), (2.0, 0.5)]) == 0.0
    assert underrun([(1.0, 0.5), (1.75, 0.5), (2.5, 0.5)]) == pytest.approx(0.5)


def test_a_summary_takes_medians_over_rounds():
    rounds = [
        Round(seconds=2.0, audio_s=audio, first_audio_s=[0.1 * audio], underruns=[0.0],
              stage_s={name: [0.01] for name in STAGES})
        for audio in (2.0, 8.0, 4.0)
    ]  # fmt: skip
    report = summary(rounds, 2)
    assert report["rtf_aggregate"] == 2.0
    assert report["rtf_per_stream"] == 1.0
    assert report["first_audio_s"] == pytest.approx(0.4)
    assert report["stage_ms"] == dict.fromkeys(STAGES, 10.0)


@pytest.fixture
def small_sizes(monkeypatch):
    """The published shapes with everything narrow but the vocabularies' bounds."""
    monkeypatch.setattr(full_size, "_SIZES", {"0.6b": full_size._Widths(64, 96, "0b6")})
    monkeypatch.setattr(full_size, "_TEXT_VOCAB", 700)
    monkeypatch.setattr(full_size, "_POOL", 32)


def test_random_files_are_read_as_a_model_of_that_size(small_sizes, tmp_path):
    files = engine.random_files(tmp_path, "0.6b", "q8_0")
    with engine.load(files, engine.EngineConfig(slots=1, device="cpu", kernels="plain")) as speech:
        (model,) = speech.models
        assert model.size == "0b6"
        result = run_round(EngineEars(speech), "Hello there.", 1, 3)
    assert result.audio_s == pytest.approx(0.24)


def test_random_files_that_are_there_are_taken(small_sizes, tmp_path):
    first = engine.random_files(tmp_path, "0.6b", "q8_0")
    times = [path.stat().st_mtime_ns for path in (first.talker, first.codec)]
    again = engine.random_files(tmp_path, "0.6b", "q8_0")
    assert again == first
    assert [path.stat().st_mtime_ns for path in (again.talker, again.codec)] == times
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gguf", ".gguf"]


def test_an_unknown_type_of_random_files_is_refused(tmp_path):
    with pytest.raises(engine.InvalidRequest, match="q9_9"):
        engine.random_files(tmp_path, "0.6b", "q9_9")


def test_a_saved_voice_is_measured_beside_the_default_one(base, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FRAMECAST_KERNELS", "plain")
    monkeypatch.setenv("FRAMECAST_DEVICE", "cpu")
    sample = tmp_path / "clip.wav"
    sample.write_bytes(clip())
    files = ["--talker", str(base.talker), "--codec", str(base.codec)]
    flags = ["--frames", "2", "--rounds", "1", "--concurrency", "1"]
    said = ["--clone", str(sample), "--ref-text", "What the clip says."]
    assert main(["bench", *files, *flags, *said, "--json"]) == 0
    clone = json.loads(capsys.readouterr().out)["clone"]
    assert clone["clip_s"] == 1
    assert all(clone[name] > 0 for name in ("extract_s", "first_s", "again_s", "preset_s"))
    assert clone["ratio"] == pytest.approx(clone["again_s"] / clone["preset_s"], 1e-4)
    assert main(["bench", *files, *flags, "--clone", str(sample)]) == 0
    assert "a clone of 1 s: encoded in" in capsys.readouterr().out


def test_a_model_that_cannot_clone_says_so(bench, tmp_path):
    sample = tmp_path / "clip.wav"
    sample.write_bytes(clip())
    code, _, err = bench("--clone", str(sample))
    assert code == 2 and "Base" in err


def test_a_text_without_its_clip_is_refused(bench):
    code, _, err = bench("--ref-text", "What the clip says.")
    assert code == 2 and "`--clone`" in err


def test_a_clip_that_is_not_there_is_named(bench):
    code, _, err = bench("--clone", "no-such.wav")
    assert code == 1 and "no-such.wav" in err


class Scripted:
    """Ears that hear two chunks of a second, the second one `late`."""

    def __init__(self, late: float = 0.0) -> None:
        self.asked: list[tuple[int, int | None]] = []
        self.late = late

    def hear(self, text: str, seed: int, frames: int | None) -> Heard:
        self.asked.append((seed, frames))
        return Heard([(0.1, 1.0), (1.1 + self.late, 1.0)], {})


def test_listeners_by_the_clock_ask_evenly_and_speak_to_the_end():
    ears = Scripted()
    made = by_the_clock(ears, "Hello.", 2, 0.05, 0.2)
    assert sorted(ears.asked) == [(number, None) for number in range(8)]
    assert made.seconds >= 0.05 * 3.5
    assert made.audio_s == 16 and max(made.underruns) == pytest.approx(0, abs=1e-9)


def test_a_silence_that_can_be_heard_is_counted_as_an_underrun():
    late, timely = (by_the_clock(Scripted(late), "Hi.", 1, 0.01, 0.01) for late in (0.2, 0.001))
    assert summary([late, timely], 1)["underruns"] == 1
    assert summary([late], 1)["stage_ms"] == {}


def test_the_table_tells_of_listeners_by_the_clock(bench):
    flags = ("--concurrency", "1", "--listeners", "2", "--every", "0.2", "--seconds", "0.4")
    code, out, err = bench(*flags)
    assert code == 0, err
    assert "2 listeners, one text every 0.2 s each, 0.4 s: 4 replies" in out


class Crowded:
    """Hears every reply but those of odd seeds, for which there is no place."""

    def __init__(self, error: engine.EngineError) -> None:
        self.error = error
        self.asked: list[int] = []

    def hear(self, text, seed, frames):
        self.asked.append(seed)
        if seed % 2:
            raise self.error
        return Heard([(0.1, 0.08 * frames)], {})


def test_requests_come_by_chance_but_the_same_every_time():
    times = arrivals(20.0, 500.0)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert times == arrivals(20.0, 500.0) == sorted(times)
    assert times[0] == 0
    assert times[-1] < 500
    assert sum(gaps) / len(gaps) == pytest.approx(0.05, rel=0.05)
    assert sum(gap > 0.05 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), rel=0.05)
    assert arrivals(0.001, 1.0) == [0]


def test_who_finds_no_place_in_an_open_loop_is_counted():
    ears = Crowded(engine.Overloaded("full", 1.0, 9))
    made = open_loop(ears, "Hello.", 400.0, 0.1, 5)
    assert sorted(ears.asked) == list(range(len(arrivals(400.0, 0.1))))
    assert made.refused == len(ears.asked) // 2 > 5
    assert made.audio_s == pytest.approx(0.4 * len(made.first_audio_s))
    assert made.refused + len(made.first_audio_s) == len(ears.asked)


def test_an_open_loop_with_few_requests_is_measured_over_all_its_seconds():
    made = open_loop(Crowded(engine.Overloaded("full", 1.0, 9)), "Hello.", 0.001, 5.0, 25)
    assert made.refused == 0
    assert made.rtf == pytest.approx(25 * 0.08 / 5.0)


def test_any_other_error_ends_an_open_loop():
    ears = Crowded(engine.GenerationFailed("broken"))
    with pytest.raises(engine.GenerationFailed, match="broken"):
        open_loop(ears, "Hello.", 100.0, 30.0, 5)
    assert len(ears.asked) < 100


def test_an_open_loop_at_each_rate_is_reported(bench):
    flags = ("--concurrency", "1", "--rates", "2,20", "--seconds", "0.4")
    _, out, _ = bench(*flags, "--json")
    slow, fast = json.loads(out)["open_loop"]
    assert (slow["rate"], fast["rate"]) == (2, 20)
    assert fast["requests"] == len(arrivals(20, 0.4))
    assert fast["offered"] == pytest.approx(fast["requests"] * 4 * 0.08 / 0.4)
    assert fast["refused"] == 0
    assert 0 < fast["first_audio_s"] <= fast["first_audio_p95_s"]
    _, out, _ = bench(*flags)
    assert "2 requests a second for 0.4 s" in out
    assert "0 refused" in out


def test_a_round_of_which_nothing_was_heard_can_be_told():
    told = summary([Round(seconds=1.0, refused=3)], 1)
    assert told["rtf_aggregate"] == 0
    assert told["underruns"] == 0
    entry = {"rate": 1.0, "seconds": 1.0, "offered": 1.0, "requests": 3, "refused": 3, **told}
    report = rounded({"runs": [], "open_loop": [entry], "url": "http://here"})
    assert report["open_loop"][0]["first_audio_s"] is None
    assert "3 refused, rtf 0, first audio nan s" in table(report)


def test_an_open_loop_of_which_all_were_refused_is_reported(bench, monkeypatch):
    full = Round(seconds=1.0, refused=3)
    monkeypatch.setattr("server.bench.command.open_loop", lambda *_: full)
    flags = ("--concurrency", "1", "--rates", "3", "--seconds", "1")
    code, out, err = bench(*flags, "--json")
    assert code == 0, err
    (entry,) = json.loads(out)["open_loop"]
    assert (entry["requests"], entry["refused"], entry["rtf_aggregate"]) == (3, 3, 0)
    assert entry["first_audio_s"] is entry["first_audio_p95_s"] is None
    code, out, err = bench(*flags)
    assert code == 0, err
    assert "3 requests, 3 refused, rtf 0," in out


def test_a_full_server_refuses_in_an_open_loop_from_outside_too(start):
    crowded = start(slots=1, loop_window=0, silence_s=0, max_queue=1)
    with Live(crowded, Settings()) as live:
        made = open_loop(ServerEars(live.url), "Hello there.", 200.0, 0.3, 60)
    assert made.refused > 0
    assert made.refused + len(made.first_audio_s) == len(arrivals(200.0, 0.3))


def test_a_reply_without_a_sound_is_a_failure_and_not_left_out(monkeypatch):
    ears = ServerEars("http://here")
    monkeypatch.setattr(ears, "_chunks", lambda body: iter(()))
    with pytest.raises(engine.GenerationFailed, match="without a sound"):
        ears.hear("Hello.", 1, 5)


def test_a_running_server_is_measured_from_outside(start, capsys):
    speech = start(slots=2, loop_window=0, silence_s=0)
    with Live(speech, Settings(drain_timeout_s=1, api_keys="secret")) as live:
        assert eventually(lambda: httpx.get(f"{live.url}/ready").status_code == 200)
        asked = ["bench", "--url", live.url, "--api-key", "secret", "--frames", "3"]
        assert main([*asked, "--concurrency", "1,2", "--rounds", "1", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert main([*asked, "--concurrency", "1", "--rounds", "1"]) == 0
        assert f"the server at {live.url}" in capsys.readouterr().out
        assert main(["bench", "--url", live.url, "--frames", "3"]) == 1
        assert "answered 401" in capsys.readouterr().err
    assert [run["concurrency"] for run in report["runs"]] == [1, 2]
    assert all(run["rtf_aggregate"] > 0 and not run["stage_ms"] for run in report["runs"])
    assert "peak_memory_bytes" not in report


def test_a_reply_has_the_length_it_was_asked_for_from_outside_too(start):
    speech = start(loop_window=0, silence_s=0)
    with Live(speech, Settings(drain_timeout_s=1)) as live:
        assert eventually(lambda: httpx.get(f"{live.url}/ready").status_code == 200)
        heard = ServerEars(live.url + "/").hear("Hello.", 1, 5)
    assert sum(seconds for _, seconds in heard.arrivals) == pytest.approx(0.4)


def test_a_server_that_is_not_there_is_named(capsys):
    assert main(["bench", "--url", "http://127.0.0.1:1"]) == 2
    assert "`--url` 'http://127.0.0.1:1'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--every", "0"], "`--every`"),
        (["--seconds", "nan"], "`--seconds`"),
        (["--api-key", "x"], "`--url`"),
        (["--url", "http://x", "--random", "0.6b"], "`--random`"),
        (["--url", "http://x", "--plot", "x.png"], "`--plot`"),
        (["--listeners", "-1"], "`--listeners`"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(bench, flags, named):
    code, _, err = bench(*flags)
    assert code == 2 and named in err


def test_curves_cover_length_slots_and_queue():
    ears = Scripted()
    length, slots, queue = curves(ears, "Hello.", 4, 2)
    assert [x for x, _ in length.points] == [2.0] * 4  # each scripted reply lasts two seconds
    assert [x for x, _ in slots.points] == [1, 2, 4]
    assert [x for x, _ in queue.points] == [0, 4, 8, 12]
    assert {frames for _, frames in ears.asked} == {2, 4, 8, 16}


def test_the_picture_is_a_png(bench, tmp_path):
    pytest.importorskip("matplotlib")
    flags = ("--concurrency", "1", "--plot", str(tmp_path / "cost.png"), "--json")
    code, out, err = bench(*flags)
    assert code == 0, err
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")
    assert set(json.loads(out)["curves"]) == {"length", "slots", "queue"}


def test_without_matplotlib_the_picture_says_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(engine.InvalidRequest, match="pip install matplotlib"):
        draw([Curve("length", "x", "y", ((1.0, 1.0),), "linear")], tmp_path / "cost.png")
