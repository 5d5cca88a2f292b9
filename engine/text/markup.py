"""Markdown and HTML without their signs, with the boundaries they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from engine.text.normalize import terminate

_BLOCKS = "address article aside blockquote body div dd dl dt figure figcaption footer form header "
_BLOCKS += "html main nav ol p pre section table tbody thead tfoot ul"
_INLINE = (
    "a abbr b bdi bdo big cite dfn del em font i img ins kbd mark meta picture q rp rt ruby s "
)
_INLINE += "samp small span strike strong sub sup time tt u var wbr code center label speak voice"
_DROPPED = ("script", "style", "head", "noscript", "svg", "template", "title")
_INSTEAD = {
    **dict.fromkeys(_BLOCKS.split(), "\n\n"),
    **dict.fromkeys(_INLINE.split(), ""),
    **dict.fromkeys(_DROPPED, ""),
    **{f"h{level}": "\n\n" for level in range(1, 7)},
    "br": "\n", "hr": "\n\n", "li": "\n", "tr": "\n", "td": ", ", "th": ", ", "caption": "\n\n",
}  # fmt: skip
_OPENING = {**{f"h{level}": "\n\n# " for level in range(1, 7)}, "li": "\n- ", "td": "", "th": "",
            "tr": "\n- "}  # fmt: skip
_TAG = re.compile(
    rf"<!--|-->|<!doctype[^<>]*>|<(?P<close>/?)(?P<name>{'|'.join(_INSTEAD)}|break)(?=[\s/>])"
    r"(?P<rest>[^<>]*)>",
    re.I,
)
_CODE = re.compile(r"(```|`)(?:(?!\1).){1,4000}?\1", re.S)
_BREAK_TIME = re.compile(r"""time\s*=\s*["']?([0-9.]{1,8}m?s)""", re.I)
_SIGNS = re.compile(r"[*_#`>\[|~\\&<•]|^[ ]{0,3}(?:[-+]|[0-9]{1,9}[.)])[ ]|^[-=]+[ ]*$", re.M)
_PRODUCT = re.compile(r"(?<=[0-9])\*(?=[0-9])")
_BULLET = re.compile(r"^[ ]*[•‣◦▪·][ ]*", re.M)
_UNPAIRED = re.compile(r"(?<!\S)(?:[*_]{1,3}|~~)(?=\w)|(?<=[\w.,!?])(?:[*]{1,3}|~~)(?![\w*])")


def plain(text: str, *, code: bool = True) -> str:
    """`text` without Markdown and HTML: one paragraph per block, a final mark behind headings,
    list items and table rows; links and images leave their words. `code` False drops code, too.

    Only tags of HTML are taken for tags: `<|im_end|>` and `<anything>` stay.
    """
    if "<" in text:
        text = _without_tags(text, code)
        text = re.sub(r"\n{3,}", "\n\n", text).strip("\n")
    if not _SIGNS.search(text):
        return text
    text = _BULLET.sub("- ", _PRODUCT.sub("×", text))
    blocks = _blocks(_parser().parse(text), code)
    text = re.sub(r"\n{3,}", "\n\n", "".join(blocks).strip("\n"))
    return _UNPAIRED.sub("", text)


@cache
def _parser() -> MarkdownIt:
    # Indented text is not code when it is spoken, and `[Narrator]: Hello` defines no link.
    parser = MarkdownIt("commonmark", {"html": False})
    return parser.enable(["table", "strikethrough"]).disable(["code", "reference"])


def _blocks(tokens: Sequence[Token], code: bool) -> Iterator[str]:
    ended, cells, items = False, 0, 0
    for token in tokens:
        kind = token.type
        if kind in {"heading_open", "list_item_open"}:
            ended = True
            yield f"{token.info}{token.markup} " if token.info else ""
        elif kind == "inline":
            words = _inline(token.children or (), code)
            yield terminate(words) if ended and words.strip() else words
        elif kind in {"td_open", "th_open"}:
            yield ", " if cells else ""
            cells += 1
        elif kind == "tr_close":
            cells = 0
            yield ".\n"
        elif kind == "fence":
            yield f"{token.content.rstrip()}\n\n" if code else ""
        items, ended = _level(kind, items, ended)
        yield _behind(kind, items)


def _level(kind: str, items: int, ended: bool) -> tuple[int, bool]:
    """How many lists are open behind a token, and whether what follows needs a final mark."""
    if kind in {"list_item_close", "heading_close"}:
        ended = False
    opened = kind in {"bullet_list_open", "ordered_list_open"}
    closed = kind in {"bullet_list_close", "ordered_list_close"}
    return items + opened - closed, ended


def _behind(kind: str, items: int) -> str:
    if kind == "paragraph_close":
        return "\n" if items else "\n\n"
    ends = {"heading_close", "hr", "table_close", "bullet_list_close", "ordered_list_close"}
    return "\n\n" if kind in ends else ""


def _inline(tokens: Sequence[Token], code: bool) -> str:
    return "".join(_inline_pieces(tokens, code))


def _inline_pieces(tokens: Sequence[Token], code: bool) -> Iterator[str]:
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            yield "\n"
        elif token.type == "code_inline":
            yield token.content if code else ""
        elif token.type in {"text", "text_special", "image"}:
            yield token.content


def _without_tags(text: str, code: bool) -> str:
    """HTML elements become line breaks, headings and list items; what stands in code is kept."""
    pieces, end = [], 0
    for match in _CODE.finditer(text):
        pieces += [_untagged(text[end : match.start()], code), match[0]]
        end = match.end()
    return "".join([*pieces, _untagged(text[end:], code)])


def _untagged(text: str, code: bool) -> str:
    pieces, end, until = [], 0, ""
    last = {f"</{name}": text.lower().rfind(f"</{name}") for name in (*_DROPPED, "code", "pre")}
    last["-->"] = text.rfind("-->")
    for match in _TAG.finditer(text):
        if until:
            if match[0].lower().startswith(until):
                until, end = "", match.end()
            continue
        pieces.append(text[end : match.start()])
        end = match.end()
        closing = _closing(match, code)
        if closing and last[closing] >= end:
            until = closing
        elif match[0] in {"<!--", "-->"}:
            pieces.append(match[0])
        else:
            pieces.append(_instead(match))
    return "".join([*pieces, text[end:]])


def _closing(match: re.Match[str], code: bool) -> str:
    """What ends an element that is dropped with all it holds; empty for others."""
    if match[0] == "<!--":
        return "-->"
    name = (match["name"] or "").lower()
    dropped = name in _DROPPED or (not code and name in {"code", "pre"})
    return f"</{name}" if dropped and not match["close"] else ""


def _instead(match: re.Match[str]) -> str:
    name = (match["name"] or "").lower()
    if name == "break":
        found = _BREAK_TIME.search(match["rest"])
        return f" [pause:{found[1]}] " if found else " "
    if name == "img":
        alt = re.search(r"""\balt\s*=\s*"([^"<>]*)\"""", match["rest"])
        return alt[1] if alt else ""
    if not match["close"] and name in _OPENING:
        return _OPENING[name]
    return _INSTEAD.get(name, "")


__all__ = ["plain"]
