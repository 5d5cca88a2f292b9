"""Prices, measures and percentages: a number and the word its sign stands for, in agreement."""

from __future__ import annotations

import re
from functools import cache, partial

from babel import Locale
from babel.numbers import get_currency_name
from babel.units import format_unit

from engine.text.numerals import cardinal, decimal
from engine.text.tongues import Tongue, compiled

# What is written -> the unit's name in the Unicode CLDR, which has the words.
UNITS = {
    "km/h": "kilometer-per-hour", "kmh": "kilometer-per-hour", "m/s": "meter-per-second",
    "mph": "mile-per-hour", "km²": "square-kilometer", "m²": "square-meter",
    "cm²": "square-centimeter", "m³": "cubic-meter", "cm³": "cubic-centimeter", "km": "kilometer",
    "cm": "centimeter", "mm": "millimeter", "µm": "micrometer", "m": "meter", "kg": "kilogram",
    "mg": "milligram", "g": "gram", "t": "tonne", "ml": "milliliter", "mL": "milliliter",
    "cl": "centiliter", "l": "liter", "L": "liter", "ha": "hectare", "°C": "celsius",
    "ºC": "celsius", "℃": "celsius", "°F": "fahrenheit", "ºF": "fahrenheit", "℉": "fahrenheit",
    "°": "degree", "kWh": "kilowatt-hour",
    "kW": "kilowatt", "MW": "megawatt", "W": "watt", "V": "volt", "mA": "milliampere",
    "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "Hz": "hertz",
    "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte",
    "hPa": "hectopascal", "kcal": "kilocalorie", "kJ": "kilojoule", "px": "pixel",
    "ms": "millisecond", "sec": "second", "s": "second", "min": "minute", "h": "hour",
    "ft": "foot", "lbs": "pound", "lb": "pound", "oz": "ounce", "mi": "mile",
    "%": "percent", "‰": "permille",
}  # fmt: skip

# Sign or code -> currency. Other codes are Babel's.
SIGNS = {"US$": "USD", "R$": "BRL", "C$": "CAD", "A$": "AUD", "$": "USD", "€": "EUR", "£": "GBP",
         "¥": "JPY", "₹": "INR", "₽": "RUB", "₩": "KRW", "zł": "PLN"}  # fmt: skip
_CODES = "USD EUR GBP JPY BRL INR CHF CAD AUD CNY SEK NOK DKK PLN CZK HUF RUB KRW TRY MXN ZAR"

# One, many, the hundredth's one and many. The plain name, where Babel has the official one.
_MONEY = {
    "en": {"EUR": "euro euros cent cents", "USD": "dollar dollars cent cents",
           "GBP": "pound pounds penny pence", "JPY": "yen yen",
           "BRL": "real reais centavo centavos", "INR": "rupee rupees paisa paise"},
    "de": {"EUR": "Euro Euro Cent Cent", "USD": "Dollar Dollar Cent Cent",
           "GBP": "Pfund Pfund Penny Pence", "JPY": "Yen Yen", "BRL": "Real Real Centavo Centavos",
           "CHF": "Franken Franken Rappen Rappen"},
    "fr": {"EUR": "euro euros centime centimes", "USD": "dollar dollars cent cents",
           "GBP": "livre livres penny pence", "JPY": "yen yens", "CHF": "franc francs centime "
           "centimes"},
    "es": {"EUR": "euro euros céntimo céntimos", "USD": "dólar dólares centavo centavos",
           "GBP": "libra libras penique peniques", "JPY": "yen yenes",
           "BRL": "real reales centavo centavos"},
    "it": {"EUR": "euro euro centesimo centesimi", "USD": "dollaro dollari centesimo centesimi",
           "GBP": "sterlina sterline penny pence", "JPY": "yen yen",
           "CHF": "franco franchi centesimo centesimi"},
    "pt": {"EUR": "euro euros cêntimo cêntimos", "USD": "dólar dólares centavo centavos",
           "GBP": "libra libras pêni pence", "JPY": "iene ienes",
           "BRL": "real reais centavo centavos"},
}  # fmt: skip
_JOINED = {
    "en": "{major} and {minor} {name}", "de": "{major} {minor}", "fr": "{major} {minor}",
    "es": "{major} con {minor} {name}", "it": "{major} e {minor} {name}",
    "pt": "{major} e {minor} {name}",
}  # fmt: skip

# Written scale -> the word for one and for many.
_SCALES = {
    "en": {"k": "thousand", "m": "million", "bn": "billion", "million": "million",
           "billion": "billion", "trillion": "trillion", "thousand": "thousand"},
    "de": {"Tsd.": "tausend", "Mio.": "Million Millionen", "Mrd.": "Milliarde Milliarden",
           "Mio": "Million Millionen", "Mrd": "Milliarde Milliarden", "Million": "Million",
           "Millionen": "Million Millionen", "Milliarden": "Milliarde Milliarden",
           "Milliarde": "Milliarde"},
    "fr": {"M": "million millions", "Md": "milliard milliards", "million": "million",
           "millions": "million millions", "milliards": "milliard milliards"},
    "es": {"M": "millón millones", "millones": "millón millones", "millón": "millón", "mil": "mil"},
    "it": {"mln": "milione milioni", "mld": "miliardo miliardi", "milioni": "milione milioni",
           "miliardi": "miliardo miliardi", "milione": "milione"},
    "pt": {"mi": "milhão milhões", "bi": "bilhão bilhões", "milhões": "milhão milhões",
           "bilhões": "bilhão bilhões", "milhão": "milhão", "mil": "mil"},
}  # fmt: skip
_OF = {"fr": "de", "es": "de", "it": "di", "pt": "de"}  # between a million and what it counts
_ABBREVIATED = {"de": ("Tsd.", "Mio.", "Mrd.", "Mio", "Mrd"), "it": ("mln", "mld"), "fr": ("Md",)}


def read_amounts(text: str, tongue: Tongue) -> str:
    """`text` with its prices, measures and percentages in words."""
    signs = "|".join(map(re.escape, SIGNS))
    codes = "|".join(_CODES.split())
    scales = "|".join(map(re.escape, _SCALES[tongue.code]))
    money, start = rf"(?P<sign>{signs}|\b(?:{codes})\b)", r"(?<![\w.,])"
    amount = rf"(?P<n>{{n}}|[0-9]+,[-–])(?:[ ]?(?P<scale>{scales})(?!\w))?"
    end = r"(?!\w|[.,][0-9])"
    price = partial(_price, tongue=tongue)
    text = compiled(rf"(?<!\w){money}[ ]?{amount}{end}", tongue).sub(price, text)
    of = r"(?:[ ]d[ei][ ]|[ ]d['’]|[ ]?)"
    text = compiled(rf"{start}{amount}{of}{money}(?!\w)", tongue).sub(price, text)
    units = "|".join(map(re.escape, sorted(UNITS, key=len, reverse=True)))
    measure = rf"{start}(?P<n>{{n}})[ ]?(?P<unit>{units})(?![\w²³/]|['’][a-zà-ÿ])"
    text = compiled(measure, tongue).sub(partial(_measure, tongue=tongue), text)
    short = "|".join(map(re.escape, _ABBREVIATED.get(tongue.code, ()))) or "(?!)"
    scaled = rf"{start}(?P<n>{{n}})[ ](?P<scale>{short})(?!\w)"
    return compiled(scaled, tongue).sub(lambda match: _scaled(match, tongue), text)


def _price(match: re.Match[str], tongue: Tongue) -> str:
    written = re.sub(r",[-–]$", "", match["n"])
    whole, fraction = tongue.split(written)
    names = _names(SIGNS.get(match["sign"], match["sign"]), tongue)
    if match["scale"]:
        return f"{_scaled(match, tongue)} {_of(names[1], tongue)}"
    if fraction.strip("0") == "" and len(fraction) in (0, 2):
        return _counted(whole, names[0], names[1], tongue)
    if len(fraction) != 2:
        return f"{decimal(whole, fraction, tongue)} {names[1]}"
    if not int(whole or 0) and len(names) == 4:
        return _counted(fraction, names[2], names[3], tongue)
    return _with_hundredths(whole, fraction, names, tongue)


def _with_hundredths(whole: str, fraction: str, names: list[str], tongue: Tongue) -> str:
    major = _counted(whole, names[0], names[1], tongue)
    if len(names) < 4:
        return f"{major} {cardinal(int(fraction), tongue)}"
    name = names[2] if int(fraction) == 1 else names[3]
    minor = cardinal(int(fraction), tongue, name if "{name}" in _JOINED[tongue.code] else "")
    return _JOINED[tongue.code].format(major=major, minor=minor, name=name)


def _counted(whole: str, one: str, many: str, tongue: Tongue) -> str:
    value = int(whole) if len(whole) <= 15 else 0
    name = one if value == 1 else many
    if value and value % 1_000_000 == 0:
        return f"{cardinal(whole, tongue)} {_of(name, tongue)}"
    return f"{cardinal(whole, tongue, name)} {name}"


def _of(name: str, tongue: Tongue) -> str:
    of = _OF.get(tongue.code, "")
    if of and tongue.code == "fr" and name[0] in "aeiouéh":
        return f"d'{name}"
    return f"{of} {name}".strip()


def _scaled(match: re.Match[str], tongue: Tongue) -> str:
    one, _, many = _SCALES[tongue.code][match["scale"]].partition(" ")
    whole, fraction = tongue.split(match["n"])
    name = one if (whole, fraction) == ("1", "") or not many else many
    return f"{decimal(whole, fraction, tongue, name)} {name}"


@cache
def _names(currency: str, tongue: Tongue) -> list[str]:
    if plain := _MONEY[tongue.code].get(currency):
        return plain.split()
    official = [get_currency_name(currency, count, locale=tongue.locale) for count in (1, 2)]
    # Babel starts some names with a capital.
    lower = tongue.code in {"fr", "es", "it", "pt"}
    return [name.lower() if lower else name for name in official]


def _measure(match: re.Match[str], tongue: Tongue) -> str:
    whole, fraction = tongue.split(match["n"])
    pattern = _pattern(UNITS[match["unit"]], (whole, fraction) == ("1", ""), tongue)
    noun = pattern.replace("{0}", "").strip()
    return pattern.replace("{0}", decimal(whole, fraction, tongue, noun))


@cache
def _pattern(unit: str, single: bool, tongue: Tongue) -> str:
    """The unit's words with `{0}` where the number goes."""
    count = 1 if single else 2
    words = format_unit(count, unit, length="long", locale=Locale.parse(tongue.locale))
    return words.replace(str(count), "{0}").replace("\u00a0", " ").replace("’", "'")


__all__ = ["read_amounts"]
