"""The languages numbers are read out in: separators and small words, one table per language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

NARROW = "\u202f"  # groups digits in every language; a plain space only where it is the custom


@dataclass(frozen=True, slots=True)
class Tongue:
    """How one language writes numbers and which words stand for the signs between them.

    Args:
        code: ISO 639-1.
        locale: what Babel calls it.
        numerals: what num2words calls it.
        decimal, groups: the decimal sign; what may stand between groups of three digits.
        day_first: 3/4 is the third of April.
        spelled_decimals: digits behind the sign are read one by one, however few they are.
        words: sign or name of a sign -> word.
    """

    code: str
    locale: str
    numerals: str
    decimal: str
    groups: str
    words: dict[str, str]
    day_first: bool = True
    spelled_decimals: bool = False

    def __hash__(self) -> int:
        return hash(self.locale)

    @property
    def number(self) -> str:
        """A pattern of an unsigned number, to be put behind a look-behind that starts it."""
        grouped = rf"[0-9]{{1,3}}(?:[{self.groups}][0-9]{{3}})+(?![0-9])(?:{self.decimal}[0-9]+)?"
        return rf"(?:{grouped}|[0-9]+(?:[.,][0-9]+)?)"

    def split(self, number: str) -> tuple[str, str]:
        """The digits before and behind the decimal sign of what `number` matched."""
        grouped = rf"([0-9]{{1,3}}(?:[{self.groups}][0-9]{{3}})+)(?:{self.decimal}([0-9]+))?"
        if found := re.fullmatch(grouped, number):
            return re.sub(r"[^0-9]", "", found[1]), found[2] or ""
        whole, _, fraction = number.replace(",", ".").partition(".")
        return whole, fraction


def _words(text: str) -> dict[str, str]:
    pairs = (entry.split("=") for entry in text.replace("\n", ";").split(";") if entry.strip())
    return {key.strip(): word.strip() for key, word in pairs}


_EN = _words("""minus=minus; plus=plus; to=to; versus=to; times=times; by=by; fold=times
    decimal=point; point=point; and=and; equals=equals; over=divided by; less=less than
    more=greater than; number=number; section=section; about=about; at=at; dot=dot; slash=slash
    dash=dash; underscore=underscore; colon=colon; most=at most; least=at least
    squared=squared; cubed=cubed""")
_DE = _words("""minus=minus; plus=plus; to=bis; versus=zu; times=mal; by=mal; fold=mal
    decimal=Komma; point=Punkt; and=und; equals=gleich; over=durch; less=kleiner als
    more=größer als; number=Nummer; section=Paragraf; about=etwa; at=ät; dot=Punkt
    slash=Schrägstrich; dash=Bindestrich; underscore=Unterstrich; colon=Doppelpunkt
    most=höchstens; least=mindestens
    squared=zum Quadrat; cubed=hoch drei""")
_FR = _words("""minus=moins; plus=plus; to=à; versus=à; times=fois; by=par; fold=fois
    decimal=virgule; point=point; and=et; equals=égale; over=divisé par; less=inférieur à
    more=supérieur à; number=numéro; section=paragraphe; about=environ; at=arobase; dot=point
    slash=barre oblique; dash=tiret; underscore=tiret bas; colon=deux-points
    most=au plus; least=au moins
    squared=au carré; cubed=au cube""")
_ES = _words("""minus=menos; plus=más; to=a; versus=a; times=por; by=por; fold=veces
    decimal=coma; point=punto; and=y; equals=igual a; over=dividido por; less=menor que
    more=mayor que; number=número; section=sección; about=aproximadamente; at=arroba; dot=punto
    slash=barra; dash=guion; underscore=guion bajo; colon=dos puntos
    most=como máximo; least=al menos
    squared=al cuadrado; cubed=al cubo""")
_IT = _words("""minus=meno; plus=più; to=a; versus=a; times=per; by=per; fold=volte
    decimal=virgola; point=punto; and=e; equals=uguale a; over=diviso; less=minore di
    more=maggiore di; number=numero; section=paragrafo; about=circa; at=chiocciola; dot=punto
    slash=barra; dash=trattino; underscore=trattino basso; colon=due punti
    most=al massimo; least=almeno
    squared=al quadrato; cubed=al cubo""")
_PT = _words("""minus=menos; plus=mais; to=a; versus=a; times=vezes; by=por; fold=vezes
    decimal=vírgula; point=ponto; and=e; equals=igual a; over=dividido por; less=menor que
    more=maior que; number=número; section=parágrafo; about=cerca de; at=arroba; dot=ponto
    slash=barra; dash=hífen; underscore=sublinhado; colon=dois pontos
    most=no máximo; least=pelo menos
    squared=ao quadrado; cubed=ao cubo""")

_DOTS = rf".{NARROW}'"
TONGUES = {
    "en": Tongue("en", "en", "en", r"\.", f",{NARROW}", _EN, False, True),
    "en-gb": Tongue("en", "en_GB", "en", r"\.", f",{NARROW}", _EN, True, True),
    "de": Tongue("de", "de", "de", ",", _DOTS, _DE, True, True),
    "fr": Tongue("fr", "fr", "fr", ",", f". {NARROW}", _FR),
    "es": Tongue("es", "es", "es", ",", f".{NARROW}", _ES),
    "it": Tongue("it", "it", "it", ",", _DOTS, _IT),
    "pt": Tongue("pt", "pt", "pt_BR", ",", f".{NARROW}", _PT),
    "pt-pt": Tongue("pt", "pt_PT", "pt", ",", f".{NARROW}", _PT),
}


@cache
def compiled(pattern: str, tongue: Tongue, flags: int = 0) -> re.Pattern[str]:
    """`pattern` with `{n}` standing for the language's number."""
    return re.compile(pattern.replace("{n}", tongue.number), flags)


__all__ = ["NARROW", "TONGUES", "Tongue", "compiled"]
