"""Characters nobody says, addresses and acronyms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.acronyms import spell_acronyms
from engine.text.addresses import read_addresses, without_urls
from engine.text.characters import clean, tidy, unify_quotes
from engine.text.tongues import TONGUES

EN = TONGUES["en"]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Hi 👋🏽 you", "Hi you"),
        ("Hi🎉there", "Hi there"),
        ("A 👨‍👩‍👧 family 🇩🇪", "A family"),
        ("Press 1️⃣ now", "Press 1 now"),
        ("So ✅ done ❤️", "So done"),
        ("Well :-) ok ;) :D <3 ^_^", "Well ok"),
        ("see:) (a) b) 8) x) :a", "see:) (a) b) 8) x) :a"),
        ("Stop!!!!!!!", "Stop!!!"),
        ("Wait......", "Wait..."),
        ("a\x00b\x07c\u200bd\ufeffe\u00adf", "abcdef"),
        ("a\u202eb\u2066c", "abc"),
        ("One\r\nTwo\rThree\u2028Four", "One\nTwo\nThree\nFour"),
        ("A → B -> C", "A, B, C"),
        ("नमस्ते क्\u200dष", "नमस्ते क्\u200dष"),
        ("می\u200cروم", "می\u200cروم"),
    ],
)
def test_characters_nobody_says_go(text: str, cleaned: str) -> None:
    assert tidy(clean(text)) == cleaned


# Brackets and quotes that turn out empty go, and what they kept apart may then be an emoticon.
@given(st.text(st.characters(exclude_characters='[]()"“”„‟«»‹›')))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    once = tidy(clean(text))
    assert tidy(clean(once)) == once


@pytest.mark.parametrize(
    ("text", "unified"),
    [
        ("„Ja“, ‚nein‘", "\"Ja\", 'nein'"),
        ("« Oui »", '"Oui"'),
        ("it’s “it”", 'it\'s "it"'),
        ("“你好”", "“你好”"),
        ("「行く」’", "「行く」’"),
        ("５ apples", "5 apples"),
    ],
)
def test_quotes_are_made_plain_but_in_chinese_and_japanese(text: str, unified: str) -> None:
    assert unify_quotes(text) == unified


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.b-c_d@mail.example.com.", "a dot b dash c underscore d at mail dot example dot com."),
        ("x2@y.com", "x two at y dot com"),
        ("http://example.com/a/b?x=1#y, ok", "example dot com slash a slash b, ok"),
        ("(https://www.example.com)", "(example dot com)"),
        ("http://localhost:8000/v1", "localhost slash v one"),
        ("www.example.com!", "example dot com!"),
        ("on example.org and foo.io", "on example dot org and foo dot io"),
        ("end.It goes. e.g. this", "end.It goes. e.g. this"),
        ("Node.js and ASP.NET", "Node.js and ASP.NET"),
        ("@user and a @ b", "@user and a @ b"),
    ],
)
def test_addresses_are_said(text: str, said: str) -> None:
    assert read_addresses(text, EN) == said


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("See https://a.example/b?c. Now", "See . Now"),
        ("See www.example.com/x, now", "See , now"),
        ("Mail a@example.com now", "Mail a@example.com now"),
    ],
)
def test_urls_can_be_dropped_and_mail_addresses_stay(text: str, left: str) -> None:
    assert without_urls(text) == left


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("The FBI, the CIA and HTML.", "The F B I, the C I A and H T M L."),
        ("Two APIs, three PCs", "Two A P I's, three P C's"),
        ("The BBC's DVDs", "The B B C's D V D's"),
        ("NASA, UNESCO and NATO", "NASA, UNESCO and NATO"),
        ("I am NOT going. STOP it.", "I am NOT going. STOP it."),
        ("THE FBI IS HERE NOW", "THE FBI IS HERE NOW"),
        ("Hmm HMM and SHH", "Hmm HMM and SHH"),
        ("R&D and Q & A, salt & pepper", "R and D and Q and A, salt and pepper"),
        ("DR Smith, MRS Lee", "DR Smith, MRS Lee"),
        ("GmbH, PhD, iOS, McDonald", "GmbH, PhD, iOS, McDonald"),
        ("U.S.A. and A-TEAM", "U.S.A. and A-TEAM"),
    ],
)
def test_acronyms_are_spelled_and_words_are_not(text: str, spelled: str) -> None:
    assert spell_acronyms(text, EN) == spelled
