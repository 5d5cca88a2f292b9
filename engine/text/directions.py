"""What a text says about its delivery: exact pauses, and stage directions nobody reads aloud."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.errors import InvalidRequest

LONGEST_PAUSE_S = 30.0
LONGEST_PAUSES_S = 300.0
MOST_PAUSES = 200

_PAUSE = re.compile(
    r"\[[ ]?pause[ ]?[: ][ ]?(?P<n>[0-9]{1,6}(?:[.,][0-9]{1,4})?)[ ]?"
    r"(?P<unit>ms|s|sec|seconds?)?[ ]?\]",
    re.I,
)

# Beginnings of words that are heard or seen on a stage, in six languages.
_SOUNDS = """
    laugh chuckl giggl snicker sigh whisper gasp cough sneez sniff sob shout yell scream groan moan
    grunt yawn inhal exhal breath hum hums humming sing sings singing applau clap cheer mumbl mutter
    gulp pause beat silence music snor clears clearing throat softly quietly loudly sarcas
    lach lacht kicher seufz flüster hust nies schluchz schrei stöhn gähn pause stille musik applaus
    räuspert räusper leise laut
    rire rires rit soupir chuchot murmur tousse éternu sanglot crie cri gémi bâill silence musique
    applaudissement doucement
    risa risas ríe ríen suspir susurr tose estornud solloz grita grito gime bostez silencio música
    aplauso
    ride ridono risate sospir sussurr tossisc starnut singhiozz urla grida geme sbadigl silenzio
    musica applaus
    riso risos ri riem suspir sussurr tosse espirr soluç grita geme bocej silêncio aplauso"""
_ARTICLES = """
    the a an this that these those his her its their our my your he she it they we you and or of
    in on at to for not is was are der die das ein eine den dem er sie es und le la les un une il
    elle ils et el los las una y lo gli i o os as um uma e"""
_FUNCTION = frozenset(_ARTICLES.split())
_STEMS = frozenset(stem for stem in _SOUNDS.split() if len(stem) > 3)
_WHOLE = frozenset(stem for stem in _SOUNDS.split() if len(stem) <= 3)
_BRACKETED = re.compile(
    r"\[(?P<square>[^\W\d_][^\[\]\n()]{0,60})\]|\((?P<round>[^\W\d_][^()\n\[\]]{0,60})\)"
)


def pauses(text: str) -> Iterator[tuple[float, str]]:
    """`text` cut at its `[pause:1.5s]` and `[pause:500ms]` tags, each piece with the seconds of
    silence in front of it; the last piece may be empty.

    Raises:
        InvalidRequest: a pause, or all together, are too long, or there are too many.
    """
    pending, total, start = 0.0, 0.0, 0
    for number, match in enumerate(_PAUSE.finditer(text)):
        if number == MOST_PAUSES:
            raise InvalidRequest(f"`text` has more than {MOST_PAUSES} pauses", "text")
        if piece := text[start : match.start()].strip():
            yield pending, piece
            pending = 0.0
        seconds = float(match["n"].replace(",", "."))
        seconds /= 1000 if (match["unit"] or "").lower() == "ms" else 1
        total += seconds
        if seconds > LONGEST_PAUSE_S or total > LONGEST_PAUSES_S:
            raise InvalidRequest(
                f"`text` asks for too long a pause at {match[0]!r}: at most {LONGEST_PAUSE_S:g} s"
                f" each and {LONGEST_PAUSES_S:g} s in all",
                "text",
            )
        pending, start = pending + seconds, match.end()
    yield pending, text[start:].strip()


def without_directions(text: str) -> str:
    """`text` without `[laugh]`, `(whispering)` and their like.

    In square brackets: up to five lower-case words that do not begin like a sentence, or any with
    a sound of the stage. In round brackets: up to three words, the first or last such a sound.
    """
    return _BRACKETED.sub(lambda match: " " if _directs(match) else match[0], text)


def _directs(match: re.Match[str]) -> bool:
    if match.string[match.end() : match.end() + 1] == "(" and match["square"]:
        return False  # a link
    content = match["square"] or match["round"]
    words = re.findall(r"[^\W\d_]+", content)
    if re.search(r"[0-9@/\\{}<>=|_]", content) or len(words) > 5:
        return False
    lower = [word.lower() for word in words]
    if match["round"]:
        return len(words) <= 3 and (_sounds(lower[0]) or _sounds(lower[-1]))
    if any(_sounds(word) for word in lower):
        return True
    return content == content.lower() and lower[0] not in _FUNCTION


def _sounds(word: str) -> bool:
    return word in _WHOLE or any(word[:length] in _STEMS for length in range(4, len(word) + 1))


__all__ = ["LONGEST_PAUSES_S", "LONGEST_PAUSE_S", "pauses", "without_directions"]
