"""Markdown and HTML, spoken."""

from __future__ import annotations

import pytest

from engine.text.markup import plain


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Some **bold** and *soft* ~~old~~ __text__.", "Some bold and soft old text."),
        ("# Title\nText", "Title.\n\nText"),
        ("Title\n=====\n\nText", "Title.\n\nText"),
        ("## What now?\n\nText", "What now?\n\nText"),
        ("One.\n\nTwo.", "One.\n\nTwo."),
        ("A line\nand *another*", "A line\nand another"),
        ("- milk\n- eggs!\n- ham", "milk.\neggs!\nham."),
        ("* milk\n  * fresh", "milk.\nfresh."),
        ("• milk\n• eggs", "milk.\neggs."),
        ("1. First\n2. Second", "1. First.\n2. Second."),
        ("3) Third", "3) Third."),
        ("See [the page](http://a.b/c) now", "See the page now"),
        ("![a cat](cat.png) sits", "a cat sits"),
        ("<https://a.b/c>", "https://a.b/c"),
        ("> quoted\n> text", "quoted\ntext"),
        ("One\n\n---\n\nTwo", "One\n\nTwo"),
        ("| a | b |\n|---|---|\n| c | d |", "a, b.\nc, d."),
        ("Run `ls` now", "Run ls now"),
        ("Do:\n\n```sh\nls\n```\nDone", "Do:\n\nls\n\nDone"),
        ("Tom &amp; Jerry &lt;3", "Tom & Jerry <3"),
        (r"2 \* 3 \# 4", "2 * 3 # 4"),
        ("[Narrator]: Hello", "[Narrator]: Hello"),
        ("    four *blanks*", "four blanks"),
        ("snake_case_name", "snake_case_name"),
        ("2*3*4", "2×3×4"),
        ("an **open end", "an open end"),
        ("5 > 3 and 2 < 3", "5 > 3 and 2 < 3"),
        ("#hashtag", "#hashtag"),
    ],
)
def test_markdown_leaves_its_words_and_boundaries(written: str, spoken: str) -> None:
    assert plain(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("<p>One</p><p>Two</p>", "One\n\nTwo"),
        ("One<br>Two<br/>Three", "One\nTwo\nThree"),
        ("<h1>Title</h1>Text", "Title.\n\nText"),
        ("<ul><li>milk</li><li>eggs</li></ul>", "milk.\neggs."),
        ("<b>Bold</b> <span class='x'>text</span>", "Bold text"),
        ("<a href='http://a.b'>page</a>", "page"),
        ('<img src="x" alt="a cat"> sits', "a cat sits"),
        ("a<script>alert(1)</script>b<style>p{}</style>c", "abc"),
        ("One <!-- hidden --> two", "One  two"),
        ("One <!-- open", "One <!-- open"),
        ("a --> b", "a --> b"),
        ("<table><tr><td>a</td><td>b</td></tr></table>", "a, b."),
        ("a < b, c > d", "a < b, c > d"),
        ("<tts_pad> and <|im_end|>", "<tts_pad> and <|im_end|>"),
        ("Use `<br>` here", "Use <br> here"),
        ('One <break time="1.5s"/> two', "One  [pause:1.5s]  two"),
        ("<speak>Hi</speak>", "Hi"),
        ("<script>never closed", "never closed"),
    ],
)
def test_html_leaves_its_words_and_boundaries(written: str, spoken: str) -> None:
    assert plain(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Run `ls` now", "Run  now"),
        ("Do:\n\n```sh\nls\n```\n\nDone", "Do:\n\nDone"),
        ("Do <code>ls</code> now", "Do  now"),
        ("<pre>ls\n</pre>Done", "Done"),
    ],
)
def test_code_can_be_dropped(written: str, spoken: str) -> None:
    assert plain(written, code=False) == spoken


@pytest.mark.parametrize(
    "text", ["Plain text.", "One.\n\nTwo.", "Well - yes", "It's 5% of it", "¿Qué?\nNada."]
)
def test_plain_text_is_left_as_it_is(text: str) -> None:
    assert plain(text) == text
