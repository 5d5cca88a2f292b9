"""Every setting of the server: environment `FRAMECAST_<NAME>`, flag `--<name>`, one meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

import engine

ENV_PREFIX = "FRAMECAST_"


def _json_object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _comma_list(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.strip().startswith("["):
        return json.loads(value)
    return tuple(part.strip() for part in value.split(",") if part.strip())


class Settings(BaseSettings):
    """Settings of one server process; bad values are refused before a model is loaded."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    talker: Path | None = Field(
        None, description="Talker GGUF file; without `talker` and `codec` the bundled voice speaks"
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
    kv_positions: int = Field(
        2560, ge=64, le=32768, description="Prompt and generated positions one slot can hold"
    )
    max_queue: int = Field(
        64, ge=0, le=100_000, description="Requests that may wait for a slot; one more gets a 429"
    )
    max_input_chars: int = Field(
        20_000, ge=1, description="Longest `input` and `instructions`, in characters"
    )
    max_body_bytes: int = Field(
        1_048_576, ge=1024, description="Largest request body; a larger one gets a 413"
    )
    voice_aliases: Annotated[dict[str, str], NoDecode, BeforeValidator(_json_object)] = Field(
        default_factory=dict,
        description=(
            'JSON object, voice name to speaker, such as `{"alloy": "vivian"}`; on a voice design'
            " model to a description. OpenAI's 13 names not listed are spread over the speakers"
        ),
    )
    strict_models: bool = Field(
        False, description="Answer 404 to an unknown `model` instead of using the one there is"
    )
    strict_instructions: bool = Field(
        False, description="Answer 400 to `instructions` a model cannot use instead of warning"
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_list)] = Field(
        ("*",), description="Origins a browser page may call from, separated by commas; `*` is any"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe message logged: `debug`, `info`, `warning` or `error`"
    )
    log_json: bool = Field(False, description="Log one JSON object per line")
    drain_timeout_s: float = Field(
        30.0, ge=0, le=3600, description="Seconds active requests get to finish at shutdown"
    )
    send_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="Seconds a client may stall before its reply is aborted"
    )

    @model_validator(mode="after")
    def _both_files_or_none(self) -> Settings:
        if (self.talker is None) != (self.codec is None):
            given, missing = ("talker", "codec") if self.talker else ("codec", "talker")
            raise ValueError(f"`--{given}` needs `--{missing}`: a model is two files")
        return self

    def engine_config(self) -> engine.EngineConfig:
        """What the engine needs to know of these settings."""
        return engine.EngineConfig(
            device=self.device,
            dtype=self.dtype,
            slots=self.slots,
            kv_positions=self.kv_positions,
            max_queue=self.max_queue,
            strict_instructions=self.strict_instructions,
        )

    def model_files(self) -> engine.ModelFiles | None:
        """The files named here; None for the bundled voice."""
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
    return f"`{flag(name)}` (or `{variable}`): {message}, got {detail['input']!r}"


__all__ = ["ENV_PREFIX", "Settings", "configuration_table", "default_text", "explain", "flag"]
