"""Transcripts and how long they take to say: real sentences at real paces, halves and doubles."""

import pytest

from engine.text.pace import Fit, fit

# A sentence and the seconds an ordinary speaker takes for it.
SPOKEN = [
    ("The quick brown fox jumps over the lazy dog, and nobody in the village minds at all.", 5.2),
    ("Der Zug nach Leipzig fährt heute ausnahmsweise von Gleis sieben ab, bitte beachten.", 5.4),
    ("Мы пошли в магазин, потому что дома не осталось ни хлеба, ни молока.", 4.6),
    ("今天天气很好，我们一起去公园散步，然后在湖边吃午饭吧。", 5.4),
    ("今日はとても天気がいいので、公園を散歩してからお昼ご飯を食べましょう。", 5.2),
    ("오늘은 날씨가 아주 좋아서 공원을 산책하고 점심을 먹기로 했습니다.", 4.6),
    ("आज मौसम बहुत अच्छा है इसलिए हम पार्क में टहलने जाएंगे।", 4.0),
    ("الجو جميل اليوم لذلك سنذهب إلى الحديقة ثم نتناول الغداء معا.", 4.6),
    ("Ring 0172 555 318 before 9.", 5.0),
]


@pytest.mark.parametrize(("text", "seconds"), SPOKEN)
@pytest.mark.parametrize("pace", [0.8, 1.0, 1.3])
def test_a_text_fits_the_time_it_takes(text, seconds, pace):
    assert fit(text, seconds * pace) is Fit.SURE


@pytest.mark.parametrize(("text", "seconds"), SPOKEN[:-1])
def test_a_transcript_of_half_a_clip_is_noticed(text, seconds):
    assert fit(text, 2 * seconds) is not Fit.SURE


@pytest.mark.parametrize(("text", "seconds"), SPOKEN)
def test_a_transcript_that_cannot_be_the_clips_is_told_apart(text, seconds):
    assert fit(text * 5, seconds) is Fit.IMPOSSIBLE
    assert fit(text, 8 * seconds + 5) is Fit.IMPOSSIBLE


def test_scripts_are_added_up():
    mixed = SPOKEN[0][0] + SPOKEN[3][0]
    assert fit(mixed, SPOKEN[0][1] + SPOKEN[3][1]) is Fit.SURE
    assert fit(mixed, SPOKEN[3][1] / 2) is not Fit.SURE


def test_blanks_and_marks_take_no_time():
    assert fit("Yes." + " ... " * 50, 0.4) is Fit.SURE
    assert fit("?!", 0.3) is Fit.SURE
    assert fit("?!", 3.0) is Fit.IMPOSSIBLE
