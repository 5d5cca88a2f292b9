"""Metadata values with their type and bounds checked; each failure names the key."""

from __future__ import annotations

from typing import Any, NoReturn, TypeGuard

from engine.errors import ModelFileError
from engine.gguf.tensors import TensorFile

TALKER_ARCHITECTURE = "qwen3-tts"
CODEC_ARCHITECTURE = "qwen3-tts-tokenizer"
WIDEST = 1 << 20

_ROLES = {TALKER_ARCHITECTURE: "talker", CODEC_ARCHITECTURE: "codec"}


class Keys:
    """Typed, bounded access to a file's metadata; every failure is a ModelFileError.

    Short keys lie under the architecture's name: `talker.vocab_size` is
    `qwen3-tts.talker.vocab_size`.

    Raises:
        ModelFileError: the file is of another architecture.
    """

    def __init__(self, file: TensorFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture
        found = file.architecture
        if found != architecture:
            self.fail(_wrong_architecture(found, architecture))

    def fail(self, problem: str) -> NoReturn:
        raise ModelFileError(f"`{self.file.path}`: {problem}")

    def full(self, key: str) -> str:
        absolute = key.startswith(("general.", "generation.", "tokenizer."))
        return key if absolute else f"{self.architecture}.{key}"

    def get(self, key: str) -> Any:
        value = self.file.metadata.get(self.full(key))
        if value is None:
            self.fail(f"the metadata key `{self.full(key)}` is missing")
        return value

    def has(self, key: str) -> bool:
        return self.full(key) in self.file.metadata

    def wrong(self, key: str, expected: str) -> NoReturn:
        value = repr(self.get(key))
        shown = value if len(value) <= 60 else value[:60] + "..."
        self.fail(f"`{self.full(key)}` is {shown}; it must be {expected}")

    def integer(self, key: str, low: int, high: int) -> int:
        value = self.get(key)
        if not _is_integer(value) or not low <= value <= high:
            self.wrong(key, f"an integer from {low} to {high}")
        return value

    def multiple(self, key: str, divisor: int) -> int:
        value = self.integer(key, 1, WIDEST)
        if value % divisor:
            self.wrong(key, f"a multiple of {divisor}")
        return value

    def number(self, key: str, low: float, high: float) -> float:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(key, "a number")
        if not low <= value <= high:
            self.wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            self.wrong(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        if default is not None and not self.has(key):
            return default
        value = self.get(key)
        if not isinstance(value, str) or not value:
            self.wrong(key, "a string")
        return value

    def integers(self, key: str, low: int, high: int) -> tuple[int, ...]:
        values = self.get(key)
        if not isinstance(values, tuple) or not 1 <= len(values) <= 16:
            self.wrong(key, "an array of 1 to 16 integers")
        if not all(_is_integer(value) and low <= value <= high for value in values):
            self.wrong(key, f"an array of integers from {low} to {high}")
        return values

    def names(self, key: str) -> tuple[str, ...]:
        """An array of strings; empty where the key is missing, as writers omit empty arrays."""
        if not self.has(key):
            return ()
        values = self.get(key)
        if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
            self.wrong(key, "an array of strings")
        return values

    def ids(self, key: str, names_key: str, vocab: int) -> tuple[int, ...]:
        """Ids parallel to the array `names_key`, each inside a vocabulary."""
        names = self.names(names_key)
        if not names and not self.has(key):
            return ()
        values = self.get(key)
        if not isinstance(values, tuple) or len(values) != len(names):
            self.wrong(
                key, f"an array of {len(names)} ids, one per entry of `{self.full(names_key)}`"
            )
        if not all(_is_integer(value) and 0 <= value < vocab for value in values):
            self.wrong(key, f"an array of ids below the vocabulary size {vocab}")
        return values


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong_architecture(found: str, wanted: str) -> str:
    if not found:
        return f"`general.architecture` is missing; it must be `{wanted}`"
    if found in _ROLES:
        return (
            f"this is a {_ROLES[found]} file (`general.architecture` is `{found}`) where the"
            f" {_ROLES[wanted]} file (`{wanted}`) is expected: were the two swapped?"
        )
    return f"`general.architecture` is `{found}`, which is not supported; it must be `{wanted}`"


__all__ = ["CODEC_ARCHITECTURE", "TALKER_ARCHITECTURE", "WIDEST", "Keys"]
