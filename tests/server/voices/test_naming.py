import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
from server.voices.naming import LONGEST_NAME, checked_name, is_id, name_key, new_id

unhurried = settings(deadline=None, database=None)


@pytest.mark.parametrize(
    "name",
    ["Anna", "anna-2", "Дмитрий", "小明", "हिन्दी", "Anna's (calm)", "  Anna  ", "7 of 9", "A" * 64],
)
def test_ordinary_names_of_any_script_are_kept_without_blanks_around(name):
    assert checked_name(name) == unicodedata.normalize("NFC", name).strip()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "1 to 64 characters long, got 0"),
        ("   ", "1 to 64 characters long, got 0"),
        ("a" * 300, "1 to 64 characters long, got 300"),
        ("../x", "got '/'"),
        ("a/b", "got '/'"),
        ("a\\b", "got '\\\\'"),
        ("a\x00b", "got '\\x00'"),
        ("a\nb", "got '\\n'"),
        ("a\u200bb", "got '\\u200b'"),
        ("a\u202eb", "got '\\u202e'"),
        ("Anna 😀", "got '\\U0001f600'"),
        ("😀", "got '\\U0001f600'"),
        (".hidden", "begin with a letter"),
        ("a:b", "got ':'"),
        ("a%2fb", "got '%'"),
        ("voice_0123456789abcdef01234567", "look like the id"),
        ("Cons_0123456789abcdef01234567", "look like the id"),
    ],
)
def test_what_is_no_name_is_refused_saying_why(name, told):
    with pytest.raises(engine.InvalidRequest, match=re.escape(told)) as caught:
        checked_name(name)
    assert caught.value.field == "name"


@pytest.mark.parametrize("name", ["vivian", "VIVIAN", " Vivian ", "Alloy", "ｖｉｖｉａｎ"])
def test_a_name_that_means_something_already_is_refused_in_any_case(name):
    with pytest.raises(engine.InvalidRequest, match="has already"):
        checked_name(name, ["vivian", "alloy"])


@unhurried
@given(st.text(max_size=80))
def test_a_name_that_passes_is_safe_and_passes_again_unchanged(name):
    try:
        checked = checked_name(name)
    except engine.InvalidRequest as refused:
        assert refused.field == "name"
        return
    assert 1 <= len(checked) <= LONGEST_NAME
    assert checked_name(checked) == checked
    assert not set(checked) & set('/\\:*?"<>|%#\0\n\r\t') and checked.isprintable()
    assert checked[0].isalnum() and not checked.endswith(" ")


@unhurried
@given(st.text(max_size=20))
def test_names_that_look_alike_have_one_key(name):
    assert name_key(name) == name_key(f" {unicodedata.normalize('NFC', name)} ")
    assert name_key(name_key(name)) == name_key(name)


def test_ids_are_fresh_and_of_their_kind():
    ids = {new_id("voice") for _ in range(100)}
    assert len(ids) == 100 and all(is_id(each, "voice") for each in ids)
    assert not is_id(new_id("cons"), "voice") and not is_id("voice_../../x", "voice")
