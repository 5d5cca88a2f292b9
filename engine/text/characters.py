"""Characters nobody says: invisible ones, emoji, emoticons, rows of marks; quotes made plain."""

from __future__ import annotations

import re

from engine.text.tongues import NARROW

_SPACES = re.compile(r"[\t\u00a0\u1680\u2000-\u200a\u202f\u205f]")
_LONG_BLANK = re.compile(r"[ ]{9,}")  # what is shorter may indent a list
_GROUPING = re.compile(r"(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3})")
_BREAKS = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\uffff\ue000-\uf8ff\ud800-\udfff\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_KEYCAP = re.compile(r"(?<=[0-9#*])\ufe0f?\u20e3")
_EMOJI = re.compile(
    r"[\ufe00-\ufe0f\u20e3\u231a-\u23ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297"
    r"\u3299\U0001f000-\U0001faff\u200d]+"
)
_EMOTICON = re.compile(
    r"(?<![\w.,:;])(?:[:;=]['’]?[-o^]?[)(DPp/\\]+|[:;]-[\]\[|]|<3+|\^_+\^)(?!\w)"
)
_ARROW = re.compile(r"[ ]*[\u2190-\u21ff]+[ ]*|[ ]+[-=]>[ ]+")
_ROW = re.compile(r"([^\w\s])\1{3,}")
_DOUBLE = re.compile(r"[“”„‟]|«[ ]?|[ ]?»|‹[ ]?|[ ]?›")
_SINGLE = re.compile(r"[‘’‚‛]")
_WIDE = {0xFF10 + number: str(number) for number in range(10)}

_OWN_QUOTES = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def clean(text: str) -> str:
    """`text` without invisible characters, emoji and emoticons, with one kind of line break and
    of blank; of a row of equal marks three stay."""
    text = _GROUPING.sub("\ue000", _BREAKS.sub("\n", text))
    text = text.replace("\ue000", NARROW)
    text = _SPACES.sub(lambda match: match[0] if _groups(match) else " ", text)
    text = _INVISIBLE.sub("", _LONG_BLANK.sub(" " * 8, text))
    text = _KEYCAP.sub("", text)
    text = _joined_kept(text)
    text = _ARROW.sub(", ", _EMOTICON.sub(" ", text))
    return _ROW.sub(r"\1\1\1", text)


def unify_quotes(text: str) -> str:
    """`text` with plain quotes and digits; Chinese, Japanese and Korean keep their own."""
    if _OWN_QUOTES.search(text):
        return text
    return _SINGLE.sub("'", _DOUBLE.sub('"', text)).translate(_WIDE)


def tidy(text: str) -> str:
    """`text` with single spaces, none before a mark that closes, no empty brackets, no blanks at
    the ends of lines, at most one blank line in a row."""
    text = re.sub(r"[ ]+", " ", text)
    text = re.sub(r"\([ ]?\)|\[[ ]?\]|\"[ ]?\"(?!\w)", "", text)
    text = re.sub(r"[ ]+(?=[,.;:!?…)\]](?:\s|$))", "", text)
    text = re.sub(r"([,;:])(?:[ ]?[,;:])+(?=\s|$)", r"\1", text)
    text = re.sub(r"[ ]*\n[ ]*", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _groups(match: re.Match[str]) -> bool:
    text, at = match.string, match.start()
    return match[0] == NARROW and text[at - 1 : at].isdigit() and text[at + 1 : at + 4].isdigit()


def _joined_kept(text: str) -> str:
    """Emoji go with their joiners; the joiner of other scripts stays with its letters."""
    return _EMOJI.sub(lambda match: match[0] if match[0] == "\u200d" else " ", text)


__all__ = ["clean", "tidy", "unify_quotes"]
