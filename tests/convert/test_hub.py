"""Models by id: found, downloaded, verified, converted once, and used again without the hub."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import huggingface_hub
import pytest

import engine
from engine.convert import hub as hub_module
from engine.convert.repository import HubFile, Repository
from engine.gguf.spec import read_model_spec
from engine.gguf.tensors import TensorFile
from server import cli
from tests.checkpoints import Case, Codec, Stack, make_checkpoint
from tests.convert.hub_double import HubDouble, Repo, read_folder, running_hub

OFFICIAL = "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"
PUBLISHED = "someone/Qwen3-TTS-GGUF"
ROOT = Path(__file__).parents[2]
STACK = Stack(hidden=64, ffn=64, layers=1, heads=2, kv_heads=1, head_dim=16)
CODEC = Codec(upsample_rates=(4, 3), upsampling_ratios=(2,))
SMALL = Case(talker=STACK, predictor=STACK, codec=CODEC)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The double, and no other hub, cache or token in sight."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setenv("FRAMECAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_hub() as double:
        monkeypatch.setenv("HF_ENDPOINT", double.url)
        yield double


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> dict[str, bytes]:
    return read_folder(make_checkpoint(SMALL, tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture
def official(hub: HubDouble, small: dict[str, bytes]) -> Repo:
    files = small | {
        "README.md": b"# A model",
        "pytorch_model.bin": b"not wanted",
        "speech_tokenizer/other.pt": b"not wanted",
    }
    hub.repos[OFFICIAL] = Repo(files)
    return hub.repos[OFFICIAL]


@pytest.fixture
def published(hub: HubDouble, custom_voice: engine.ModelFiles) -> Repo:
    talker, codec = custom_voice.talker.read_bytes(), custom_voice.codec.read_bytes()
    names = [
        f"qwen-talker-{size}-{task}-{kind}.gguf"
        for size, task in (("0.6b", "customvoice"), ("1.7b", "customvoice"), ("1.7b", "base"))
        for kind in ("BF16", "Q8_0")
    ]
    codecs = [f"qwen-tokenizer-12hz-{kind}.gguf" for kind in ("BF16", "Q8_0")]
    files = {"README.md": b"# Models"} | dict.fromkeys(names, talker) | dict.fromkeys(codecs, codec)
    hub.repos[PUBLISHED] = Repo(files)
    return hub.repos[PUBLISHED]


def free(size: int):
    usage = shutil.disk_usage("/")._replace(free=size)
    return lambda _: usage


def refusal(hub_id: str, **options) -> str:
    with pytest.raises(engine.ModelFileError) as caught:
        engine.fetch_model(hub_id, **options)
    return str(caught.value)


# Checkpoints


def test_a_checkpoint_is_downloaded_converted_and_loads(hub, official, tmp_path, start):
    files = engine.fetch_model(OFFICIAL, type="f32")
    assert files.name == "Qwen3-TTS-12Hz-0.6B-CustomVoice"
    assert files.talker.is_relative_to(tmp_path / "cache")
    assert files.talker.parent.name == f"{official.commit}-f32"
    model = start(files).models[0]
    assert model.name == files.name and "vivian" in model.speakers


def test_only_what_the_conversion_reads_is_downloaded(hub, official):
    engine.fetch_model(OFFICIAL)
    assert sorted(hub.downloads()) == [
        "config.json",
        "generation_config.json",
        "merges.txt",
        "model.safetensors",
        "speech_tokenizer/config.json",
        "speech_tokenizer/model.safetensors",
        "tokenizer_config.json",
        "vocab.json",
    ]


def test_shards_are_downloaded_with_their_index(hub, tmp_path):
    make_checkpoint(SMALL, tmp_path / "checkpoint", shards=3)
    hub.repos[OFFICIAL] = Repo(read_folder(tmp_path / "checkpoint"))
    files = engine.fetch_model(OFFICIAL)
    assert read_model_spec(files.talker, files.codec).talker.task == "custom_voice"
    assert sum(name.startswith("model-") for name in hub.downloads()) == 3


def test_the_type_is_the_one_asked_for_and_each_has_its_own_folder(official):
    first, second = (engine.fetch_model(OFFICIAL, type=kind) for kind in ("q8_0", "F16"))
    with TensorFile(first.talker) as file:
        assert file.type_of("talker.blk.0.attn_q.weight") == "Q8_0"
    with TensorFile(second.talker) as file:
        assert file.type_of("talker.blk.0.attn_q.weight") == "F16"
    assert first.talker.parent != second.talker.parent


def test_an_unknown_type_is_refused_before_the_hub_is_asked(hub):
    with pytest.raises(engine.InvalidRequest, match="q9"):
        engine.fetch_model(OFFICIAL, type="q9")
    assert hub.requests == []


def test_progress_is_told_tensor_by_tensor(official):
    calls = []
    engine.fetch_model(OFFICIAL, progress=lambda *call: calls.append(call))
    assert [done for _, done, _ in calls] == list(range(1, calls[-1][2] + 1))


# Once


def test_the_second_time_asks_for_the_commit_and_nothing_else(hub, official):
    first = engine.fetch_model(OFFICIAL)
    hub.requests.clear()
    assert engine.fetch_model(OFFICIAL) == first
    assert hub.requests == [("GET", f"/api/models/{OFFICIAL}", None)]


def test_another_commit_is_fetched_and_the_files_that_stayed_are_not(hub, official):
    first = engine.fetch_model(OFFICIAL)
    hub.requests.clear()
    config = official.files["generation_config.json"]
    official.files["generation_config.json"] = config + b"\n"
    second = engine.fetch_model(OFFICIAL)
    assert second.talker.parent.name == f"{official.commit}-q8_0" != first.talker.parent.name
    assert hub.downloads() == ["generation_config.json"]


def test_a_lost_receipt_costs_no_second_conversion(hub, official, tmp_path):
    first = engine.fetch_model(OFFICIAL)
    for receipt in (tmp_path / "cache").rglob("*.json"):
        receipt.write_text("{")
    hub.requests.clear()
    assert engine.fetch_model(OFFICIAL, progress=lambda *_: pytest.fail("converted")) == first
    assert hub.downloads() == []


def test_a_half_written_folder_is_ignored_and_made_again(hub, official, tmp_path):
    home = tmp_path / "cache" / "hub" / OFFICIAL.replace("/", "--")
    half = home / f".{official.commit}-q8_0-abandoned"
    half.mkdir(parents=True)
    (half / "talker.gguf").write_bytes(b"GGUF")
    files = engine.fetch_model(OFFICIAL)
    assert files.talker.parent != half
    assert read_model_spec(files.talker, files.codec).talker.speakers


def test_an_abort_during_the_conversion_leaves_nothing_and_the_download_stays(
    hub, official, tmp_path
):
    def abort(name, done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.fetch_model(OFFICIAL, progress=abort)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    hub.requests.clear()
    assert engine.fetch_model(OFFICIAL).talker.is_file()
    assert hub.downloads() == []


def test_converted_files_that_were_deleted_are_made_again(official):
    files = engine.fetch_model(OFFICIAL)
    shutil.rmtree(files.talker.parent)
    assert engine.fetch_model(OFFICIAL) == files
    assert files.talker.is_file()


def test_the_cache_can_be_another_folder(official, tmp_path):
    files = engine.fetch_model(OFFICIAL, cache_dir=tmp_path / "elsewhere")
    assert files.codec.is_relative_to(tmp_path / "elsewhere")
    assert not (tmp_path / "cache").exists()


# Without the hub


@pytest.mark.parametrize("how", ["gone", "down", "no hub"])
def test_without_the_hub_a_fetched_model_is_used_and_the_log_says_so(hub, official, caplog, how):
    first = engine.fetch_model(OFFICIAL)
    if how == "gone":
        hub.stop()
    hub.status = {"gone": None, "down": 503, "no hub": 200}[how]
    with caplog.at_level(logging.WARNING, "engine"):
        assert engine.fetch_model(OFFICIAL) == first
    assert "cannot reach the hub" in caplog.text and OFFICIAL in caplog.text


def test_offline_mode_is_respected(hub, official, monkeypatch):
    first = engine.fetch_model(OFFICIAL)
    hub.requests.clear()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert engine.fetch_model(OFFICIAL) == first
    assert hub.requests == []


def test_without_the_hub_a_model_never_fetched_is_an_error(hub, official):
    engine.fetch_model(OFFICIAL, type="f16")
    hub.stop()
    told = refusal(OFFICIAL)
    assert "cannot reach the hub" in told and "not fetched before" in told


# Transfers


def test_a_transfer_that_breaks_off_goes_on_where_it_stopped(hub, official, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1024)
    official.broken["model.safetensors"] = 1
    files = engine.fetch_model(OFFICIAL)
    ranges = [
        part for method, path, part in hub.requests
        if method == "GET" and path.endswith(f"{official.commit}/model.safetensors")
    ]  # fmt: skip
    assert ranges[0] is None and len(ranges) == 2
    half = len(official.files["model.safetensors"]) // 2
    assert half - 1024 <= int(ranges[1].removeprefix("bytes=").removesuffix("-")) <= half
    assert read_model_spec(files.talker, files.codec).talker.speakers


def test_a_transfer_that_gets_nowhere_is_an_error_and_the_next_run_succeeds(
    hub, official, monkeypatch
):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    official.broken["model.safetensors"], official.break_at = 1000, 0.0
    assert f"cannot download `model.safetensors` of `{OFFICIAL}`" in refusal(OFFICIAL)
    official.broken.clear()
    assert engine.fetch_model(OFFICIAL).talker.is_file()


@pytest.mark.parametrize("name", ["model.safetensors", "speech_tokenizer/model.safetensors"])
def test_a_checkpoint_that_is_not_what_the_hub_states_is_removed(hub, official, tmp_path, name):
    official.swapped.add(name)
    told = refusal(OFFICIAL)
    assert f"`{name}`" in told and "is damaged" in told and "removed" in told
    snapshot = next((tmp_path / "hub-cache").rglob(official.commit))
    assert snapshot.is_dir() and not (snapshot / name).is_symlink()
    official.swapped.clear()
    assert engine.fetch_model(OFFICIAL).talker.is_file()


def test_a_gguf_file_that_is_not_what_the_hub_states_is_removed(hub, published, tmp_path):
    name = "qwen-talker-1.7b-base-Q8_0.gguf"
    published.swapped.add(name)
    told = refusal(f"{PUBLISHED}:1.7b-base")
    assert f"`{name}`" in told and "SHA-256" in told
    assert list((tmp_path / "hub-cache").rglob("*.gguf")) == []
    published.swapped.clear()
    assert engine.fetch_model(f"{PUBLISHED}:1.7b-base").talker.name == name


def test_a_full_disk_is_told_before_anything_is_downloaded(hub, official, monkeypatch):
    monkeypatch.setattr(hub_module.shutil, "disk_usage", free(1000))
    told = refusal(OFFICIAL)
    assert "are free" in told and "HF_HOME" in told
    assert hub.downloads() == []


def test_the_space_needed_counts_the_conversion_and_not_what_is_there(hub, official, monkeypatch):
    size = sum(
        len(content) for name, content in official.files.items()
        if name.endswith((".json", ".txt", ".safetensors"))
        and name != "speech_tokenizer/preprocessor_config.json"
    )  # fmt: skip
    monkeypatch.setattr(hub_module.shutil, "disk_usage", free(2 * size - 1))
    assert "are free" in refusal(OFFICIAL)
    monkeypatch.setattr(hub_module.shutil, "disk_usage", free(2 * size))
    assert engine.fetch_model(OFFICIAL).talker.is_file()
    monkeypatch.setattr(hub_module.shutil, "disk_usage", free(size))
    assert engine.fetch_model(OFFICIAL, type="f16").talker.is_file()


def test_a_cache_that_cannot_be_written_is_named(official, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    told = refusal(OFFICIAL, cache_dir=tmp_path / "file")
    assert "cannot keep" in told and "FRAMECAST_CACHE" in told


# Access


def test_a_repository_that_is_not_there_is_named(hub):
    told = refusal("nobody/nothing")
    assert "no model `nobody/nothing`" in told and "HF_TOKEN" in told


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        ((401, "GatedRepo"), "is gated: accept its terms at"),
        ((403, "GatedRepo"), "is gated: accept its terms at"),
        ((401, ""), "if it is private, set `HF_TOKEN`"),
        ((403, ""), "refuses access to"),
    ],
)
@pytest.mark.parametrize("open_listing", [True, False])
def test_a_refusal_says_to_set_a_token(hub, official, refused, told, open_listing):
    official.token, official.refusal, official.open_listing = "hf_secret", refused, open_listing
    message = refusal(OFFICIAL)
    assert told in message and "HF_TOKEN" in message and "hf_secret" not in message


def test_the_token_is_taken_from_the_environment_or_the_argument(hub, official, monkeypatch):
    official.token = "hf_secret"
    assert engine.fetch_model(OFFICIAL, token="hf_secret").talker.is_file()
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "HF_TOKEN" in refusal(OFFICIAL)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert engine.fetch_model(OFFICIAL).talker.is_file()


def test_a_revision_can_be_named_and_must_exist(official):
    files = engine.fetch_model(OFFICIAL, revision=official.commit)
    assert files.talker.parent.name.startswith(official.commit)
    assert "has no revision 'v9'" in refusal(OFFICIAL, revision="v9")


@pytest.mark.parametrize("hub_id", ["model", "", "a/b/c", "a/b:", "../x y", "a//b", "-a/b--c"])
def test_what_is_no_hub_id_is_refused_without_asking(hub, hub_id):
    assert f"`{hub_id}` is not a hub id" in refusal(hub_id)
    assert hub.requests == []


# GGUF repositories


def test_a_published_pair_is_downloaded_and_served_as_it_is(hub, published, start):
    files = engine.fetch_model(f"{PUBLISHED}:0.6b-customvoice-Q8_0")
    assert files.talker.name == "qwen-talker-0.6b-customvoice-Q8_0.gguf"
    assert files.codec.name == "qwen-tokenizer-12hz-Q8_0.gguf"
    assert hub.downloads() == [files.talker.name, files.codec.name]
    assert "vivian" in start(files).models[0].speakers


def test_a_published_pair_is_downloaded_once_and_used_without_the_hub(hub, published, caplog):
    first = engine.fetch_model(f"{PUBLISHED}:1.7b-base-BF16")
    hub.requests.clear()
    assert engine.fetch_model(f"{PUBLISHED}:1.7b-base-BF16") == first
    assert len(hub.requests) == 1
    hub.stop()
    assert engine.fetch_model(f"{PUBLISHED}:1.7b-base-BF16") == first
    assert "cannot reach the hub" in refusal(f"{PUBLISHED}:0.6b-customvoice")


def test_files_without_a_model_in_them_are_refused(hub, published):
    published.files["qwen-talker-0.6b-customvoice-Q8_0.gguf"] = b"version https://git-lfs"
    assert "qwen-talker-0.6b-customvoice-Q8_0.gguf" in refusal(f"{PUBLISHED}:0.6b-customvoice")


def test_a_name_for_a_checkpoint_repository_is_refused(official):
    assert "`model.safetensors`" in refusal(f"{OFFICIAL}:Q8_0")


def test_a_repository_of_another_kind_lists_its_files(hub):
    hub.repos["a/b"] = Repo({"model.safetensors": b"", "config.json": b"{}"})
    told = refusal("a/b")
    assert "no model to speak with" in told and "`config.json`, `model.safetensors`" in told


def listing(*names: str) -> Repository:
    return Repository("a/b", "0" * 40, {name: HubFile(1, None) for name in names})


PAIRS = [f"{part}-{kind}.gguf" for part in ("talker-small", "talker-large", "tokenizer-12hz")
         for kind in ("F16", "BF16", "Q8_0", "Q4_K_M")]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "selector", "chosen"),
    [
        (["talker.gguf", "codec.gguf"], "", ("talker.gguf", "codec.gguf")),
        (["Model.GGUF", "codec.gguf"], "", ("Model.GGUF", "codec.gguf")),
        (PAIRS, "small-F16", ("talker-small-F16.gguf", "tokenizer-12hz-F16.gguf")),
        (PAIRS, "SMALL-f16", ("talker-small-F16.gguf", "tokenizer-12hz-F16.gguf")),
        (PAIRS, "large-q4_k_m", ("talker-large-Q4_K_M.gguf", "tokenizer-12hz-Q4_K_M.gguf")),
        (PAIRS, "talker-large-BF16.gguf", ("talker-large-BF16.gguf", "tokenizer-12hz-BF16.gguf")),
        (PAIRS, "large", ("talker-large-Q8_0.gguf", "tokenizer-12hz-Q8_0.gguf")),
        (["t.gguf", "t-large.gguf", "codec.gguf"], "t", ("t.gguf", "codec.gguf")),
        (["x/t.gguf", "x/codec.gguf", "y/t.gguf", "y/codec.gguf"], "y/t.gguf",
         ("y/t.gguf", "y/codec.gguf")),
    ],
)  # fmt: skip
def test_the_talker_is_chosen_by_name_and_the_codec_goes_with_it(names, selector, chosen):
    assert listing(*names).gguf_pair(selector, "q8_0") == chosen


@pytest.mark.parametrize(
    ("names", "selector", "told"),
    [
        (PAIRS, "", ["several talkers", "`talker-small-F16.gguf`", "`talker-large-Q8_0.gguf`"]),
        (PAIRS, "Q8_0", ["several talkers", "`a/b:talker-small-Q8_0`"]),
        (PAIRS, "Q6_K", ["no talker that fits `Q6_K`", "`talker-large-BF16.gguf`"]),
        (PAIRS, "arge", ["no talker that fits `arge`"]),
        (["talker.gguf"], "", ["no model to speak with", "`talker.gguf`"]),
        (["tokenizer.gguf"], "", ["no model to speak with", "`tokenizer.gguf`"]),
        (["t-F32.gguf", "codec-a.gguf", "codec-b.gguf"], "", ["which codec", "`--codec`"]),
        ([], "", ["its files: none"]),
        ([f"{i:03}.txt" for i in range(50)], "", ["`039.txt` and 10 more"]),
    ],
)
def test_what_cannot_be_chosen_lists_what_there_is(names, selector, told):
    with pytest.raises(engine.ModelFileError) as caught:
        listing(*names).gguf_pair(selector, "q8_0")
    assert all(part in str(caught.value) for part in told), str(caught.value)


# The command line


def test_voices_takes_a_model_of_the_hub(hub, published, capsys):
    command = ["voices", "--model", f"{PUBLISHED}:1.7b-base", "--device", "cpu"]
    assert cli.main(command) == 0
    assert "speaker\tvivian" in capsys.readouterr().out.splitlines()


def test_the_model_is_served_under_its_own_name_or_the_given_one(official, monkeypatch):
    asked = []
    monkeypatch.setattr(engine, "load", lambda files, config: asked.append(files.name))
    for given in ({}, {"model_name": "mine"}):
        cli._load(cli.Settings(model=OFFICIAL, **given))
    assert asked == ["Qwen3-TTS-12Hz-0.6B-CustomVoice", "mine"]


def test_pull_prints_the_two_paths_and_shows_its_progress(official, capsys):
    assert cli.main(["pull", OFFICIAL, "--quantize", "f16"]) == 0
    out, err = capsys.readouterr()
    talker, codec = map(Path, out.splitlines())
    assert read_model_spec(talker, codec).talker.speakers
    assert "tensor" in err and "Traceback" not in err


def test_pull_tells_what_is_wrong_and_ends_with_2(hub, capsys):
    assert cli.main(["pull", "nobody/nothing"]) == 2
    assert "no model `nobody/nothing`" in capsys.readouterr().err


@pytest.mark.parametrize("other", [["--talker", "t.gguf"], ["--talker", "t", "--codec", "c"]])
def test_a_model_is_named_in_one_way(hub, capsys, other):
    assert cli.main(["voices", "--model", OFFICIAL, *other]) == 2
    assert "`--model` excludes `--talker` and `--codec`" in capsys.readouterr().err
    assert hub.requests == []


def test_the_command_works_in_a_process_of_its_own(hub, official, tmp_path):
    target = tmp_path / "out.wav"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment = kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "server.cli", "say", "Hello.", "-o", target, "--seed", "1",
         "--model", OFFICIAL, "--max-new-tokens", "4", "--device", "cpu"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert target.read_bytes()[:4] == b"RIFF"
    assert "tensor" in done.stderr and "Traceback" not in done.stderr
