"""The page in a real browser: spoken, stopped, typed, downloaded, saved, refused, looked at."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import engine
from server.settings import Settings
from tests.e2e.browser import PROGRAM, Browser
from tests.fakes import FakeEngine
from tests.server.conftest import Live
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium (apt: chromium)")

AXE = importlib.util.find_spec("axe_core_python")
RATE = 24_000
SHORT = "Two words."
LONG = "This sentence is one of many, and they go on for a good while. " * 30
SAMPLES = "Number(document.getElementById('main').dataset.samples)"
STATE = "document.getElementById('main').dataset.state"
DRAWN = "document.getElementById('wave').toDataURL()"
CONTROLS = ["text", "speak", "format", "model", "voice", "language", "speed"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def speaker(base: engine.ModelFiles) -> Iterator[engine.Engine]:
    """The bundled voice, and a tiny model that clones."""
    config = engine.EngineConfig(slots=2, kv_positions=512, device="cpu", kernels="plain")
    loaded = engine.load([engine.bundled_voice(), base], config)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def server(speaker: engine.Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    voices = tmp_path_factory.mktemp("voices")
    with Live(speaker, Settings(drain_timeout_s=1, voices_dir=voices)) as live:
        yield live


@pytest.fixture
def page(browser: Browser, server: Live) -> Browser:
    """The page, loaded anew."""
    return opened(browser, server)


@pytest.fixture
def guarded(browser: Browser) -> Iterator[tuple[Browser, FakeEngine]]:
    """The page of a server with a key, whose one model does not clone."""
    fake = FakeEngine()
    fake.warm.set()
    with Live(fake, Settings(drain_timeout_s=1, api_keys="first:s3cret+/=")) as live:
        yield opened(browser, live), fake


def opened(browser: Browser, live: Live) -> Browser:
    browser.look()
    browser.open(f"{live.url}/")
    browser.wait_for("#state", "Ready")
    browser.until("document.getElementById('voice').options.length > 0")
    return browser


def speak(page: Browser, text: str) -> None:
    page.fill("#text", text)
    page.click("#speak")


def typing(page: Browser) -> None:
    page.focus("[name=mode]:checked")
    page.evaluate("document.querySelector('[value=live]').click()")


def downloaded(page: Browser, form: str) -> bytes:
    page.choose("#format", form)
    page.click("#download")
    page.wait_for("#status", "Downloaded")
    assert page.evaluate("document.activeElement.id") == "download"
    file = page.downloads / f"speech.{form}"
    assert eventually(file.exists)
    content = file.read_bytes()
    file.unlink()
    return content


def clip(folder: Path) -> Path:
    file = folder / "anna.wav"
    t = np.arange(2 * RATE) / RATE
    soundfile.write(file, 0.3 * np.sin(2 * math.pi * 220 * t), RATE)
    return file


def offences(page: Browser) -> list[dict[str, Any]]:
    """What axe-core finds on the page as it is now."""
    assert AXE is not None and AXE.submodule_search_locations
    script = Path(AXE.submodule_search_locations[0], "axe.min.js").read_text("utf-8")
    page.evaluate(f"{script};0")
    found: list[dict[str, Any]] = page.evaluate(
        "axe.run().then(({violations}) => violations.map(({id, impact, nodes}) =>"
        " ({id, impact, where: nodes.map(({html}) => html)})))"
    )
    return found


def test_a_text_is_heard_and_downloaded_as_it_was_heard(page: Browser, speaker: engine.Engine):
    before = page.evaluate(DRAWN)
    speak(page, SHORT)
    page.wait_for("#status", "Spoken")
    samples = page.evaluate(SAMPLES)
    assert samples > 0 and samples % 1920 == 0
    assert page.evaluate(DRAWN) != before
    assert page.text("#first").endswith(" ms") and page.text("#gaps").isdigit()
    assert page.text("#length") == f"{samples / RATE:.1f} s"
    sound, rate = soundfile.read(io.BytesIO(downloaded(page, "wav")), dtype="int16")
    assert (rate, len(sound)) == (RATE, samples) and np.abs(sound).max() > 1000
    assert downloaded(page, "pcm") == sound.tobytes()
    assert eventually(lambda: speaker.in_flight == 0)


def test_another_format_is_the_same_speech(page: Browser):
    speak(page, SHORT)
    page.wait_for("#status", "Spoken")
    samples = page.evaluate(SAMPLES)
    assert "once more" not in page.text("#format-hint")
    sound, rate = soundfile.read(io.BytesIO(downloaded(page, "flac")), dtype="int16")
    assert "once more" in page.text("#format-hint")
    assert (rate, len(sound)) == (RATE, samples)


def test_stopping_in_the_middle_frees_the_slot(page: Browser, speaker: engine.Engine):
    speak(page, LONG)
    page.until(f"{SAMPLES} > 0")
    assert page.text("#speak") == "Stop" and page.evaluate(STATE) == "speaking"
    page.press("Escape")
    page.wait_for("#status", "Stopped after")
    assert eventually(lambda: speaker.in_flight == 0)
    heard = page.evaluate(SAMPLES)
    # Far from what the text takes: the rest was never made.
    assert heard < 60 * RATE and page.evaluate(STATE) == "idle"
    sound, _ = soundfile.read(io.BytesIO(downloaded(page, "wav")))
    assert len(sound) == heard


def test_what_was_heard_is_played_again_and_that_can_be_stopped(page: Browser):
    speak(page, SHORT)
    page.wait_for("#status", "Spoken")
    samples = page.evaluate(SAMPLES)
    page.click("#replay")
    page.wait_for("#status", "Playing again")
    page.click("#speak")
    page.wait_for("#status", "Stopped")
    assert page.evaluate(SAMPLES) == samples


def test_words_are_spoken_as_they_are_typed(page: Browser, speaker: engine.Engine):
    typing(page)
    page.fill("#text", "One ")
    page.click("#speak")
    page.until(f"{SAMPLES} > 0")
    assert page.evaluate("document.activeElement.id") == "text" and speaker.in_flight == 1
    page.type("two thr")
    page.fill("#text", "None")
    page.wait_for("#status", "cannot be changed")
    page.fill("#text", "One two thr")
    page.type("ee")
    page.press("Enter", ctrl=True)
    page.wait_for("#status", "Spoken")
    samples = page.evaluate(SAMPLES)
    sound, _ = soundfile.read(io.BytesIO(downloaded(page, "flac")))
    assert abs(len(sound) - samples) <= RATE and eventually(lambda: speaker.in_flight == 0)


def test_typing_can_be_stopped_and_ended_by_buttons(page: Browser, speaker: engine.Engine):
    typing(page)
    page.fill("#text", "One two ")
    page.click("#speak")
    page.until(f"{SAMPLES} > 0")
    page.click("#speak")
    page.wait_for("#status", "Stopped after")
    assert eventually(lambda: speaker.in_flight == 0)
    page.click("#speak")
    page.until("!document.getElementById('end-text').hidden")
    page.click("#end-text")
    page.wait_for("#status", "Spoken")
    assert page.evaluate("document.activeElement.id") == "speak"


def test_what_goes_wrong_is_told_in_words(page: Browser):
    page.click("#speak")
    page.wait_for("#error", "no text")
    assert page.evaluate("document.activeElement.id") == "text"
    assert page.evaluate("document.getElementById('error').getAttribute('role')") == "alert"
    page.evaluate("document.getElementById('voice').add(new Option('gone', 'gone'))")
    page.choose("#voice", "gone")
    speak(page, SHORT)
    assert page.wait_for("#error", "'gone'").endswith(".")
    typing(page)
    page.click("#speak")
    page.wait_for("#error", "'gone'")
    page.choose("#voice", "serena")
    page.fill("#text", "")
    page.click("#speak")
    page.wait_for("#status", "Listening")
    assert page.text("#error") == ""
    page.press("Enter", ctrl=True)
    page.wait_for("#status", "nothing to speak")


def test_a_model_that_takes_no_instructions_says_so(page: Browser):
    page.choose("#model", page.evaluate("document.getElementById('model').options[1].value"))
    assert page.text("#instructions-hint").endswith("does not follow instructions.")
    assert page.evaluate("document.getElementById('instructions').disabled")


def test_a_server_that_is_gone_is_noticed_and_found_again(page: Browser):
    page.cut_off(True)
    speak(page, SHORT)
    page.wait_for("#error", "cannot be reached")
    typing(page)
    page.click("#speak")
    page.wait_for("#error", "cannot be reached")
    page.wait_for("#state", "Not reachable")
    page.loaded.clear()
    page.cut_off(False)
    page.wait_for("#state", "Ready")
    assert eventually(lambda: page.text("#slots").startswith("0 of"))
    assert any(address.endswith("/v1/audio/models") for address in page.loaded)


def test_a_voice_is_saved_from_a_file_and_speaks(page: Browser, tmp_path: Path):
    page.click("#save")
    page.wait_for("#save-error", "Choose a clip")
    page.attach("#clip", clip(tmp_path))
    page.attach("#consent-clip", clip(tmp_path))
    page.fill("#voice-name", "Anna")
    page.fill("#consent", "Anna, 1 May, by mail")
    page.click("#save")
    page.wait_for("#save-status", "Anna is saved and chosen.")
    chosen = "document.getElementById('voice').selectedOptions[0].text"
    assert page.evaluate(chosen) == "Anna"
    page.fill("#voice-name", "Anna")
    page.attach("#clip", clip(tmp_path))
    page.click("#save")
    page.wait_for("#save-error", "Anna")
    page.click("#overwrite")
    page.click("#save")
    page.wait_for("#save-status", "Anna is saved")
    speak(page, SHORT)
    page.until(f"{SAMPLES} > 0")
    page.press("Escape")
    page.wait_for("#status", "Stopped")


def test_a_voice_is_saved_from_the_microphone(page: Browser):
    page.click("#record")
    page.wait_for("#save-status", "Recording")
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 900))")
    page.click("#record")
    page.wait_for("#save-status", "Recorded")
    assert not page.evaluate("document.getElementById('preview').hidden")
    page.fill("#voice-name", "Berta")
    page.click("#save")
    page.wait_for("#save-status", "Berta is saved and chosen.")
    assert page.text("#record") == "Record"


def test_a_key_is_asked_for_and_kept_for_this_tab_only(guarded: tuple[Browser, FakeEngine]):
    page, fake = guarded
    speak(page, SHORT)
    assert "needs an API key" in page.wait_for("#error", "key")
    assert page.evaluate("document.activeElement.id") == "key" and fake.requests == []
    page.type("wrong")
    page.press("Enter")
    page.click("#speak")
    page.wait_for("#error", "not one of this server's")
    page.type("s3cret+/=")
    page.press("Enter")
    page.wait_for("#status", "until this tab is closed")
    page.click("#speak")
    page.wait_for("#status", "Spoken")
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
    assert page.evaluate("document.cookie") == "" and len(fake.requests) == 1
    typing(page)
    page.click("#speak")
    page.wait_for("#error", "characters that a browser cannot send")


def test_without_a_model_that_clones_the_reason_is_told(guarded: tuple[Browser, FakeEngine]):
    page, _ = guarded
    assert page.evaluate("document.getElementById('save-form').hidden")
    assert "Only a Base model" in page.text("#save-reason")
    assert "fake-voice (CustomVoice)" in page.text("#save-reason")


def test_live_text_without_a_key_says_why_it_was_refused(guarded: tuple[Browser, FakeEngine]):
    page, _ = guarded
    page.evaluate("sessionStorage.clear()")
    typing(page)
    speak(page, "One two ")
    page.wait_for("#error", "needs an API key")
    assert page.evaluate("document.activeElement.id") == "key"


def test_everything_is_reached_by_keyboard(page: Browser):
    page.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(25):
        page.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.name"))
        outline = page.evaluate(
            "((it) => getComputedStyle(it.name === 'mode' ? it.nextElementSibling : it)"
            ".outlineStyle)(document.activeElement)"
        )
        assert outline != "none" or not reached[-1], reached
    order = [name for name in reached if name in CONTROLS]
    assert order[: len(CONTROLS)] == CONTROLS
    # This model follows no instructions, and so their field cannot be written in.
    assert "instructions" not in reached
    assert "mode" in reached and {"clip", "record", "voice-name", "save"} <= set(reached)


@pytest.mark.skipif(AXE is None, reason="needs the package axe-core-python")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (360, False)])
def test_axe_finds_nothing_that_keeps_anybody_out(page: Browser, width: int, dark: bool):
    page.look(width=width, dark=dark)
    page.click("#speak")
    page.wait_for("#error", "no text")
    page.evaluate("document.getElementById('key-form').hidden = false")
    assert offences(page) == []


def test_it_is_looked_at_idle_speaking_dark_and_narrow(page: Browser, tmp_path: Path):
    pictures = {"idle": page.picture(tmp_path / "idle.png")}
    speak(page, "Speech that is heard while it is still being made.")
    page.until(f"{SAMPLES} > 0")
    pictures["speaking"] = page.picture(tmp_path / "speaking.png")
    page.look(dark=True)
    pictures["dark"] = page.picture(tmp_path / "dark.png")
    page.look(width=360, height=740)
    pictures["narrow"] = page.picture(tmp_path / "narrow.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert len(set(pictures.values())) == 4
    page.press("Escape")


def test_it_works_without_any_other_server(page: Browser, server: Live):
    page.loaded.clear()
    page.complaints.clear()
    page = opened(page, server)
    speak(page, SHORT)
    page.wait_for("#status", "Spoken")
    assert len(page.loaded) > 12 and page.complaints == []
    assert {address for address in page.loaded if not address.startswith(server.url)} <= {""}
