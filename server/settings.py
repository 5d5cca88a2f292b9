"""Every setting of the server: environment `FRAMECAST_<NAME>`, flag `--<name>`, one meaning."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

import engine
from server.keys import LIMITS, ApiKey, parse_key_list, read_key_file, refuse_repeated

ENV_PREFIX = "FRAMECAST_"
SECRET = ("api_keys",)


def _json_object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _comma_list(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.strip().startswith("["):
        return json.loads(value)
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _hashed_keys(value: Any) -> Any:
    if value and isinstance(value, list | tuple) and isinstance(value[0], str):
        value = ",".join(value)
    return parse_key_list(value) if isinstance(value, str) else value


def _steps(value: Any) -> Any:
    names = _comma_list(value)
    if names in (("none",), ()):
        return ()
    try:
        return engine.check_text_steps(names)
    except engine.InvalidRequest as error:
        raise ValueError(str(error)) from None


def _loudness(value: float | None) -> float | None:
    if value is not None and not -40 <= value <= -10:
        raise ValueError("must be between -40 and -10")
    return value


def _collector(value: str) -> str:
    if not value:
        return value
    if not value.startswith(("http://", "https://")):
        raise ValueError("must be an http:// or https:// address")
    if not _installed("opentelemetry.exporter.otlp.proto.http"):
        raise ValueError("traces need an extra: pip install 'framecast[otel]'")
    return value


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent
        return False


class Settings(BaseSettings):
    """Settings of one server process; bad values are refused before a model is loaded."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    model: str | None = Field(
        None,
        min_length=1,
        description=(
            "Model on the Hugging Face hub, `OWNER/REPO[:NAME]`: downloaded and,"
            " if it is a checkpoint, converted once"
        ),
    )
    quantize: Literal["f32", "bf16", "f16", "q8_0", "q5_0", "q4_0"] = Field(
        "q8_0",
        description=(
            "Type a checkpoint of `model` is converted to: `f32`, `bf16`, `f16`, `q8_0`, `q5_0` or"
            " `q4_0`"
        ),
    )
    talker: Path | None = Field(
        None, description="Talker GGUF file; without it and `model` the bundled voice speaks"
    )
    codec: Path | None = Field(None, description="Codec GGUF file that belongs to the talker")
    model_name: str | None = Field(
        None, min_length=1, description="Name the model is served under; default: the file's name"
    )
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    slots: int = Field(8, ge=1, le=1024, description="Utterances generated at the same time")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="Where the model runs: `auto`, `cpu`, `cuda` or `mps`"
    )
    dtype: Literal["auto", "f32", "bf16", "f16"] = Field(
        "auto", description="Precision of the computation: `auto`, `f32`, `bf16` or `f16`"
    )
    kernels: Literal["auto", "plain", "captured"] = Field(
        "auto",
        description=(
            "How frames are computed: `auto` on a CPU keeps weights packed for the kernels that a"
            " measurement at start finds fastest, on CUDA it is `captured`; `plain` multiplies in"
            " `dtype`, operation by operation; `captured` multiplies in `dtype` and records whole"
            " frames as graphs (for CUDA; slow elsewhere)"
        ),
    )
    kv_dtype: Literal["auto", "f32", "bf16"] = Field(
        "auto",
        description=(
            "What keys and values are kept in: `f32`, `bf16`, or `auto`, which is `bf16` beside"
            " packed weights"
        ),
    )
    codec_dtype: Literal["auto", "f32", "bf16"] = Field(
        "auto",
        description=(
            "What sound is decoded in: `f32`, `bf16`, or `auto`, the faster of the two with packed"
            " kernels, else as `dtype`"
        ),
    )
    kv_positions: int = Field(
        2560, ge=64, le=32768, description="Prompt and generated positions one slot can hold"
    )
    max_queue: int = Field(
        64, ge=0, le=100_000, description="Requests that may wait for a slot; one more gets a 429"
    )
    max_queue_s: float = Field(
        1800.0,
        ge=0,
        le=1e9,
        description="Seconds of sound that may wait or be in the making, as"
        " far as can be expected; more gets a 429. 0 is no limit",
    )
    max_input_chars: int = Field(
        20_000, ge=1, description="Longest `input` and `instructions`, in characters"
    )
    max_body_bytes: int = Field(
        1_048_576,
        ge=1024,
        description="Largest request body, reference sound left out; a larger one gets a 413",
    )
    voice_aliases: Annotated[dict[str, str], NoDecode, BeforeValidator(_json_object)] = Field(
        default_factory=dict,
        description=(
            'JSON object, voice name to speaker or saved voice, such as `{"alloy": "vivian"}`; on a'
            " voice design model to a description. OpenAI's 13 names not listed are spread over the"
            " speakers"
        ),
    )
    voices_dir: Path | None = Field(
        None,
        description=(
            "Folder of saved voices; default: `$XDG_DATA_HOME/framecast/voices`, else"
            " `~/.local/share/framecast/voices`"
        ),
    )
    max_voices: int = Field(
        1000, ge=0, le=100_000, description="Saved voices there may be, and as many consents"
    )
    max_voices_bytes: int = Field(
        268_435_456,
        ge=0,
        description="Bytes the files of saved voices may take, and as much again for consents",
    )
    max_clip_bytes: int = Field(
        10_485_760,
        ge=1024,
        le=1_073_741_824,
        description="Largest reference clip or consent recording",
    )
    voice_cache_bytes: int = Field(
        268_435_456,
        ge=0,
        description="Bytes kept of voices, so that they start at once; 0 keeps nothing",
    )
    require_consent: bool = Field(
        False, description="Refuse to save a voice whose upload has no `consent`"
    )
    ref_url_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_list)] = Field(
        (),
        description=(
            "Hosts whose URLs `ref_audio` may name, separated by commas: `example.com`,"
            " `example.com:8443`, `*.example.com`, or `*` for any; never private addresses. Empty"
            " allows no URLs"
        ),
    )
    ref_url_timeout_s: float = Field(
        10.0, gt=0, le=600, description="Seconds a URL of `ref_audio` may take to be fetched"
    )
    ref_file_dir: Path | None = Field(
        None, description="Folder whose files `ref_audio` may name as `file:` URLs; none without it"
    )
    strict_models: bool = Field(
        False,
        description="Answer 404 to an unknown `model` instead of using the one there is;"
        " OpenAI's model names stay known",
    )
    strict_instructions: bool = Field(
        False, description="Answer 400 to `instructions` a model cannot use instead of warning"
    )
    paragraph_pause_s: float = Field(
        0.4,
        ge=0,
        le=10,
        description="Silence between the parts of a long text where a paragraph ends, in seconds",
    )
    terminal_mark: bool = Field(
        True,
        description="Add a final mark to a text without one, so that its last word is said whole",
    )
    normalize: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_steps)] = Field(
        engine.DEFAULT_TEXT_STEPS,
        description=(
            "Steps of the text front end for requests that name none, separated by commas; `none`"
            f" for none. Also: {', '.join(engine.TEXT_STEPS[len(engine.DEFAULT_TEXT_STEPS) :])}"
        ),
    )
    lexicon: Path | None = Field(
        None, description="TOML file of respellings for the step `lexicon` of the text front end"
    )
    stream_is_sse: bool = Field(
        False,
        description="Answer `stream: true` without `stream_format` in server-sent events, as newer"
        " vLLM-Omni does, instead of bare sound",
    )
    loudness_lufs: Annotated[float | None, AfterValidator(_loudness)] = Field(
        None,
        description="Bring all speech to this loudness, -40 to -10 LUFS, unless a request says"
        " otherwise; empty leaves it as it is",
    )
    max_batch_chars: int = Field(
        100_000, ge=1, description="Longest `input` of all items of a batch together, in characters"
    )
    redraw: bool = Field(
        True,
        description="Draw speech that ran away once more, with another seed, in replies sent whole",
    )
    default_timeout_s: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds a request without `timeout` may take; 0 is no limit",
    )
    max_timeout_s: float = Field(
        3600.0, gt=0, allow_inf_nan=False, description="Largest `timeout` a request may ask for"
    )
    api_keys: Annotated[tuple[ApiKey, ...], NoDecode, BeforeValidator(_hashed_keys)] = Field(
        (),
        description=(
            "API keys, separated by commas, each written like a line of `api_keys_file`. Keep them"
            " in the environment: others can see a command line"
        ),
    )
    api_keys_file: Path | None = Field(
        None,
        description=(
            "File of API keys, one `KEY`, `NAME:KEY` or `NAME:sha256:HEX` per line, with limits of"
            " its own; see `framecast hash-key`. Without any key, anyone may call"
        ),
    )
    key_requests_per_minute: int = Field(
        0, ge=0, description="Requests per minute a key may make; 0 is no limit"
    )
    key_concurrency: int = Field(
        0, ge=0, description="Requests a key may have at the same time; 0 is no limit"
    )
    key_audio_seconds_per_hour: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds of sound per hour a key may get; 0 is no limit",
    )
    protect_lists: bool = Field(
        False, description="Ask for a key on the routes that list models and voices, too"
    )
    protect_metrics: bool = Field(False, description="Ask for a key on `/metrics`, too")
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_list)] = Field(
        ("*",), description="Origins a browser page may call from, separated by commas; `*` is any"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe message logged: `debug`, `info`, `warning` or `error`"
    )
    log_json: bool = Field(False, description="Log one JSON object per line")
    otlp_endpoint: Annotated[str, AfterValidator(_collector)] = Field(
        "",
        description=(
            "OTLP/HTTP collector that gets traces, such as `http://localhost:4318`; empty sends"
            " none. Needs the extra `otel`"
        ),
    )
    drain_timeout_s: float = Field(
        30.0, ge=0, le=3600, description="Seconds active requests get to finish at shutdown"
    )
    body_timeout_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Seconds a request's body may take to arrive, and one more for every 16 KiB of"
        " it; later it gets a 408",
    )
    input_timeout_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Seconds a text that is still open (WebSocket) may leave its slot waiting",
    )
    live_idle_timeout_s: float = Field(
        30.0,
        gt=0,
        le=86_400,
        description="Seconds without a message, while nothing is spoken, after which a WebSocket is"
        " closed",
    )
    send_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="Seconds a client may stall before its reply is aborted"
    )

    @model_validator(mode="after")
    def _one_model(self) -> Settings:
        if self.model is not None and (self.talker or self.codec):
            raise ValueError("`--model` excludes `--talker` and `--codec`: each names a model")
        if (self.talker is None) != (self.codec is None):
            given, missing = ("talker", "codec") if self.talker else ("codec", "talker")
            raise ValueError(f"`--{given}` needs `--{missing}`: a model is two files")
        return self

    _keys: tuple[ApiKey, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _read_keys(self) -> Settings:
        keys = (*self.api_keys, *self._keys_of_file())
        refuse_repeated(keys)
        if not keys:
            self._refuse_what_needs_keys()
        defaults = {name: getattr(self, f"key_{name}") for name in LIMITS}
        self._keys = tuple(key.with_defaults(defaults) for key in keys)
        return self

    def _keys_of_file(self) -> tuple[ApiKey, ...]:
        try:
            return read_key_file(self.api_keys_file) if self.api_keys_file else ()
        except ValueError as error:
            raise ValueError(f"`--api-keys-file`: {error}") from None

    def _refuse_what_needs_keys(self) -> None:
        for name in (*(f"key_{name}" for name in LIMITS), "protect_lists", "protect_metrics"):
            if getattr(self, name):
                raise ValueError(f"`{flag(name)}` needs `--api-keys` or `--api-keys-file`")

    @model_validator(mode="after")
    def _timeouts_fit(self) -> Settings:
        default, most = self.default_timeout_s, self.max_timeout_s
        if default > most:
            raise ValueError(
                f"`--default-timeout-s` must be at most `--max-timeout-s` ({most:g}), "
                f"got {default:g}"
            )
        return self

    def all_keys(self) -> tuple[ApiKey, ...]:
        """The API keys of both places, with the default limits where one has none of its own."""
        return self._keys

    def engine_config(self) -> engine.EngineConfig:
        """What the engine needs to know of these settings."""
        return engine.EngineConfig(
            device=self.device,
            dtype=self.dtype,
            kernels=self.kernels,
            kv_dtype=self.kv_dtype,
            codec_dtype=self.codec_dtype,
            slots=self.slots,
            kv_positions=self.kv_positions,
            max_queue=self.max_queue,
            max_queue_s=self.max_queue_s,
            paragraph_pause_s=self.paragraph_pause_s,
            terminal_mark=self.terminal_mark,
            normalize=self.normalize,
            lexicon=self.lexicon,
            strict_instructions=self.strict_instructions,
            voice_cache_bytes=self.voice_cache_bytes,
            input_timeout_s=self.input_timeout_s,
        )

    def model_files(self) -> engine.ModelFiles | None:
        """The two files named here; None for `model` and for the bundled voice."""
        if self.talker is None or self.codec is None:
            return None
        return engine.ModelFiles(self.talker, self.codec, self.model_name)


def flag(name: str) -> str:
    """`max_queue` as it is written on the command line: `--max-queue`."""
    return "--" + name.replace("_", "-")


def default_text(field: FieldInfo) -> str:
    """A field's default as one would type it; empty when there is none."""
    value = field.get_default(call_default_factory=True)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(value) if isinstance(value, tuple) else f"{value}"


def configuration_table() -> str:
    """The README's configuration table, one row per setting, in Markdown."""
    rows = ["| Flag | Environment | Default | Meaning |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = default_text(field)
        shown = f"`{default}`" if default else ""
        environment = f"`{ENV_PREFIX}{name.upper()}`"
        rows.append(f"| `{flag(name)}` | {environment} | {shown} | {field.description} |")
    return "\n".join(rows) + "\n"


def explain(error: ValidationError) -> str:
    """What is wrong with the settings, one line per problem, in the command line's names."""
    return "\n".join(_problem(dict(detail)) for detail in error.errors())


def _problem(detail: dict[str, Any]) -> str:
    message = str(detail["msg"]).removeprefix("Value error, ")
    if not detail["loc"]:
        return message
    name = str(detail["loc"][0])
    variable = f"{ENV_PREFIX}{name.upper()}"
    got = "" if name in SECRET else f", got {detail['input']!r}"
    return f"`{flag(name)}` (or `{variable}`): {message}{got}"


__all__ = ["ENV_PREFIX", "Settings", "configuration_table", "default_text", "explain", "flag"]
