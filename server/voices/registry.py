"""The saved voices of a server, by id and by name, and the consent recordings that belong to them.

Everything that changes or refreshes it touches files and blocks; `find` and the lists do not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from server.errors import ConsentNotFound, VoiceExists, VoiceNotFound
from server.voices.naming import checked_name, is_id, name_key, new_id
from server.voices.saved import Consent, SavedVoice, read_consent, read_voice
from server.voices.store import Limits, Store

# Above a 60 s voice with every text at its longest.
MOST_VOICE_BYTES = 4 * 1024 * 1024
_VOICE, _CONSENT = "voice", "cons"


class Registry:
    """Voices in `folder`, consents in its folder `consents`.

    Args:
        most: voices there may be, and as many consents.
        most_bytes: what their files may take, and as much again for consents.
    """

    def __init__(self, folder: Path, *, most: int, most_bytes: int) -> None:
        voices = Limits("voices", most, most_bytes, MOST_VOICE_BYTES)
        # Of any length: nothing but its head is read, and a lowered limit must not lose one.
        consents = Limits("consents", most, most_bytes, None)
        self._voices = Store(folder, _VOICE, read_voice, voices)
        self._consents = Store(folder / "consents", _CONSENT, read_consent, consents)
        self._index: tuple[Mapping[str, SavedVoice], dict[str, SavedVoice]] = ({}, {})

    @property
    def voices(self) -> list[SavedVoice]:
        """The oldest first."""
        return sorted(self._voices.entries.values(), key=lambda each: (each.created_at, each.id))

    @property
    def consents(self) -> list[Consent]:
        """The oldest first."""
        return sorted(self._consents.entries.values(), key=lambda each: (each.created_ns, each.id))

    def restore(self) -> None:
        """Load what is there at start; broken files are set aside with a warning."""
        self._voices.restore()
        self._consents.restore()

    def refresh(self) -> list[SavedVoice]:
        """See what other processes changed; returns the voices that are gone or replaced."""
        before = self._voices.entries
        self._voices.refresh()
        self._consents.refresh()
        after = self._voices.entries
        return [voice for name, voice in before.items() if after.get(name) is not voice]

    def find(self, name: str) -> SavedVoice | None:
        """A voice by id, or by name in any case."""
        entries = self._voices.entries
        indexed, index = self._index
        if indexed is not entries:
            # Files copied by hand may share a name: the oldest has it.
            index = {name_key(each.name): each for each in reversed(self.voices)}
            self._index = entries, index
        return entries.get(name.strip()) or index.get(name_key(name))

    def existing(self, name: str) -> SavedVoice:
        """Like `find`; `VoiceNotFound` when there is none."""
        found = self.find(name)
        if found is None:
            raise VoiceNotFound(f"there is no saved voice {name!r}", "voice")
        return found

    def checked_name(self, name: str, taken: Iterable[str], overwrite: bool) -> str:
        """`name` as it would be stored.

        Raises:
            InvalidRequest: it is no name for a voice, or one of those taken.
            VoiceExists: a saved voice has it, and may not be overwritten.
        """
        checked = checked_name(name, taken)
        if not overwrite:
            _refuse_twice(self.find(checked))
        return checked

    def add(
        self, voice: SavedVoice, overwrite: bool = False
    ) -> tuple[SavedVoice, SavedVoice | None]:
        """Keep a voice, whose name is checked; returns what is kept and what it replaced.

        It gets an id of its own, or that of the voice it overwrites.

        Raises:
            VoiceExists: another voice has the name.
            StoreFull: there is no room.
            StoreUnwritable: the folder cannot be written.
        """
        replaced: list[SavedVoice | None] = []

        def place(_: Mapping[str, SavedVoice]) -> str:
            found = self.find(voice.name)
            if not overwrite:
                _refuse_twice(found)
            replaced.append(found)
            return new_id(_VOICE) if found is None else found.id

        return self._voices.put(voice.facts(), voice.arrays(), place), replaced[0]

    def remove(self, name: str) -> SavedVoice:
        """Delete a voice by id or name for good.

        Raises:
            VoiceNotFound: there is none.
            StoreUnwritable: the folder cannot be written.
        """
        found = self.existing(name)
        # Somebody else may have been faster.
        return self._voices.remove(found.id) or self.existing(name)

    def add_consent(
        self, name: str, language: str, recording: bytes, mime_type: str | None
    ) -> Consent:
        """Keep a consent recording, as it was sent.

        Raises:
            StoreFull: there is no room.
            StoreUnwritable: the folder cannot be written.
        """
        consent = Consent(new_id(_CONSENT), name, language, time.time_ns(), mime_type)
        arrays = {"recording": np.frombuffer(recording, np.uint8)}
        return self._consents.put(consent.facts(), arrays, lambda _: consent.id)

    def consent(self, name: str) -> Consent:
        """A consent by id; `ConsentNotFound` when there is none."""
        found = self._consents.entries.get(name)
        if found is None:
            raise ConsentNotFound(f"there is no consent recording {name!r}", "consent")
        return found

    def rename_consent(self, name: str, label: str) -> Consent:
        """Give a consent another label, by id.

        Raises:
            ConsentNotFound: there is none.
            StoreUnwritable: the folder cannot be written.
        """
        changed = None
        if is_id(name, _CONSENT):
            changed = self._consents.change(name, lambda old: replace(old, name=label).facts())
        return changed or self.consent(name)

    def remove_consent(self, name: str) -> Consent:
        """Delete a consent by id for good; `ConsentNotFound` when there is none."""
        removed = self._consents.remove(name) if is_id(name, _CONSENT) else None
        return removed or self.consent(name)


def default_folder() -> Path:
    """`$XDG_DATA_HOME/framecast/voices`, else `~/.local/share/framecast/voices`."""
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "framecast" / "voices"


def is_consent_id(text: str) -> bool:
    """Whether a text is meant to be the id of a consent recording."""
    return text.startswith(f"{_CONSENT}_")


def _refuse_twice(found: SavedVoice | None) -> None:
    if found is not None:
        raise VoiceExists(
            f"there is a saved voice {found.name!r} already; choose another name or set "
            "`overwrite`",
            "name",
        )


__all__ = ["Registry", "default_folder", "is_consent_id"]
