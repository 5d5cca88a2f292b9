import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import engine
from server.settings import Settings, configuration_table, explain


def test_defaults_serve_the_bundled_voice_on_this_machine_only():
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.model_files() is None


def test_the_environment_is_read_under_the_prefix(monkeypatch):
    monkeypatch.setenv("FRAMECAST_SLOTS", "3")
    monkeypatch.setenv("FRAMECAST_VOICE_ALIASES", '{"alloy": "vivian"}')
    monkeypatch.setenv("FRAMECAST_CORS_ORIGINS", "https://a.example, https://b.example")
    settings = Settings()
    assert settings.slots == 3 and settings.voice_aliases == {"alloy": "vivian"}
    assert settings.cors_origins == ("https://a.example", "https://b.example")
    assert Settings(cors_origins='["*"]').cors_origins == ("*",)


def test_arguments_win_over_the_environment(monkeypatch):
    monkeypatch.setenv("FRAMECAST_SLOTS", "3")
    assert Settings(slots=5).slots == 5


def test_the_engine_gets_what_concerns_it():
    settings = Settings(
        slots=2, device="cpu", dtype="f32", kv_positions=512, max_queue=7, strict_instructions=True
    )
    assert settings.engine_config() == engine.EngineConfig(
        slots=2, device="cpu", dtype="f32", kv_positions=512, max_queue=7, strict_instructions=True
    )


def test_a_model_is_two_files_and_a_name():
    files = Settings(talker="t.gguf", codec="c.gguf", model_name="mine").model_files()
    assert files == engine.ModelFiles(Path("t.gguf"), Path("c.gguf"), "mine")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"port": "99999"}, "`--port` (or `FRAMECAST_PORT`)"),
        ({"slots": 0}, "`--slots`"),
        ({"slots": "many"}, "'many'"),
        ({"device": "tpu"}, "`--device`"),
        ({"dtype": "int3"}, "`--dtype`"),
        ({"voice_aliases": "{"}, "`--voice-aliases`"),
        ({"voice_aliases": '{"alloy": 5}'}, "`--voice-aliases`"),
        ({"talker": "t.gguf"}, "`--talker` needs `--codec`"),
        ({"codec": "c.gguf"}, "`--codec` needs `--talker`"),
        ({"log_level": "loud"}, "`--log-level`"),
        ({"workers": 2}, "`--workers`"),
    ],
)
def test_a_bad_value_is_refused_in_the_command_lines_words(given, told):
    with pytest.raises(ValidationError) as caught:
        Settings(**given)
    assert told in explain(caught.value)


def test_every_setting_is_documented_and_in_the_table():
    table = configuration_table()
    for name, field in Settings.model_fields.items():
        assert field.description
        row = f"| `--{name.replace('_', '-')}` | `FRAMECAST_{name.upper()}` |"
        assert table.count(row) == 1
    assert len(table.splitlines()) == 2 + len(Settings.model_fields)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(ValidationError):
        Settings().port = 1


def test_traces_are_off_unless_a_collector_is_named():
    assert Settings().otlp_endpoint == ""
    assert Settings(otlp_endpoint="http://localhost:4318").otlp_endpoint == "http://localhost:4318"


@pytest.mark.parametrize("missing", ["opentelemetry.exporter.otlp.proto.http", "opentelemetry"])
def test_traces_without_their_extra_are_refused_before_anything_is_loaded(monkeypatch, missing):
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ValidationError) as caught:
        Settings(otlp_endpoint="http://localhost:4318")
    assert "pip install 'framecast[otel]'" in explain(caught.value)
    assert "`--otlp-endpoint`" in explain(caught.value)


def test_a_collector_is_an_address():
    with pytest.raises(ValidationError, match="http://"):
        Settings(otlp_endpoint="localhost:4318")
