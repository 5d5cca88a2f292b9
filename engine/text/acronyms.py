"""Acronyms spelled with blanks between their letters, where they are no words: F B I, A P I's."""

from __future__ import annotations

import re

from engine.text.tongues import Tongue

# Letters one by one although vowels would make a word of them.
_LETTERS = (
    "ADHD AI AMD AOK API ATM AWS BMI CEO CFO CIA CIO COO CPU CTO DIY DNA DOI ECB EDF EDV EIB"
    " EKG ESA EU EZB FAQ FAA FBI FCA FDA GUI HIV IBM ID IDE IHK IMF IOS IPO IQ ISBN ISO ISP ITV"
    " KI LED MRI NBA NHS NSA OCR OECD OEM ONG OTP PDF PIB PSA RNA ROI RSA SAP SDK SEO SUV TVA"
    " UAE UE UFO UI UK UN URI URL US USA USB USP UV UX VIP VOIP VPN"
)
_SPELLED = frozenset(_LETTERS.split())
# No acronyms: titles, interjections, what is written large for its own sake.
_SAID = (
    "BRR BRRR DR GRR GRRR HM HMM HMMM JR MM MMM MR MRS NR PSST PST SHH SHHH SR ST TH TSK VS ZZ"
    " ZZZ ZZZZ PFF PFFT"
)
_KEPT = frozenset(_SAID.split())
_CAPITALS = re.compile(
    r"(?<![\w&'.-])(?P<caps>[A-Z]{2,5})(?:(?P<s>s)|['’](?P<poss>s))?(?![\w&'’-]|\.\w)"
)
_AND = re.compile(r"(?<![\w&])([A-Z]{1,3})[ ]?&[ ]?([A-Z]{1,3})(?![\w&])")
_LOOSE_AND = re.compile(r"(?<=[ \n])&(?=[ \n])")
_ROMAN = re.compile(r"[IVXLCDM]+")
_WORDS = re.compile(r"[^\W\d_]{2,}")


def spell_acronyms(text: str, tongue: Tongue) -> str:
    """`text` with acronyms spelled: those without a vowel (Y is one), those in a list, and every
    one in a plural (APIs). A text mostly in capitals is left alone: it is raising its voice."""
    text = _LOOSE_AND.sub(tongue.words["and"], text)
    if _shouting(text):
        return text
    joined = rf"\1 {tongue.words['and']} \2"
    text = _AND.sub(lambda match: _separated(match.expand(joined)), text)
    return _CAPITALS.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    caps = match["caps"]
    ending = "'s" if match["s"] or match["poss"] else ""
    if caps in _KEPT or not (caps in _SPELLED or match["s"] or _unpronounceable(caps)):
        return match[0]
    return " ".join(caps) + ending


def _unpronounceable(caps: str) -> bool:
    return not set(caps) & set("AEIOUY") and not (_ROMAN.fullmatch(caps) and len(set(caps)) < 2)


def _separated(text: str) -> str:
    return " ".join(" ".join(word) if word.isupper() else word for word in text.split())


def _shouting(text: str) -> bool:
    words = _WORDS.findall(text)
    return len(words) > 3 and sum(word.isupper() for word in words) > len(words) / 2


__all__ = ["spell_acronyms"]
