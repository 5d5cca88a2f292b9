"""The items of one of OpenAI's Realtime sessions: what was said, and what waits to be spoken."""

from __future__ import annotations

import uuid
from typing import Any

from engine import InvalidRequest

# The oldest are forgotten.
MOST_ITEMS = 32
ROLES = ("user", "assistant", "system")
TEXTS = ("input_text", "text")


class Conversation:
    """Messages in order; those of the user are spoken once, when a response is asked for."""

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._fresh: list[str] = []

    def add(self, item: Any, previous: Any = None) -> tuple[dict[str, Any], str | None]:
        """Put in an item as a client sends it; returns it as it is told, and the id of the one
        before it. `InvalidRequest` for what is no message or no text.

        Args:
            previous: the id of the item before it, or "root"; None appends.
        """
        text_of(item)
        told = {
            "id": _id(item),
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": item["role"],
            "content": item["content"],
        }
        if any(each["id"] == told["id"] for each in self._items):
            raise InvalidRequest(f"there is an item {told['id']!r:.80} already", "item.id")
        place = self._behind(previous)
        self._items.insert(place, told)
        if told["role"] == "user":
            self._fresh.append(told["id"])
        before = self._items[place - 1]["id"] if place else None
        for old in self._items[:-MOST_ITEMS]:
            self.delete(old["id"])
        return told, before

    def delete(self, item_id: Any) -> None:
        """Forget an item; `InvalidRequest` when there is none."""
        self._items.remove(self._item(item_id, "item_id"))
        self._fresh = [each for each in self._fresh if each != item_id]

    def text(self, given: Any = None) -> str:
        """What a response is to speak: the user's text in `given`, else what no response has
        spoken yet. `InvalidRequest` when that is nothing."""
        if given is None:
            items = [each for each in self._items if each["id"] in self._fresh]
        elif isinstance(given, list):
            items = [self._referred(each) for each in given]
        else:
            raise InvalidRequest("`response.input` must be a list of items", "response.input")
        texts = [text for item in items if (text := text_of(item)) and item["role"] == "user"]
        text = "\n".join(texts)
        if not any(character.isalnum() for character in text):
            raise InvalidRequest(
                "there is nothing to speak: it takes a message of the user with at least one letter"
                " or digit, in `response.input` or by `conversation.item.create`",
                "response.input",
            )
        return text

    def spoken(self) -> None:
        """What waited has been taken by a response."""
        self._fresh = []

    def _referred(self, item: Any) -> Any:
        if isinstance(item, dict) and item.get("type") == "item_reference":
            return self._item(item.get("id"), "response.input")
        return item

    def _behind(self, previous: Any) -> int:
        if previous is None:
            return len(self._items)
        if previous == "root":
            return 0
        return self._items.index(self._item(previous, "previous_item_id")) + 1

    def _item(self, item_id: Any, field: str) -> dict[str, Any]:
        for item in self._items:
            if item["id"] == item_id:
                return item
        raise InvalidRequest(f"there is no item {item_id!r:.80}", field)


def text_of(item: Any) -> str:
    """The text of a message; `InvalidRequest` for what is no message, and for what of the user's
    is no text."""
    if not isinstance(item, dict) or item.get("type") != "message":
        raise InvalidRequest("an item must be an object with `type` `message`", "item.type")
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise InvalidRequest(f"`role` must be one of {', '.join(ROLES)}", "item.role")
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise InvalidRequest("`content` must be a list of objects", "item.content")
    if role != "user":
        return ""
    return "\n".join(_part(part) for part in content)


def _part(part: dict[str, Any]) -> str:
    kind, text = part.get("type"), part.get("text")
    if kind not in TEXTS:
        raise InvalidRequest(
            f"a part of type {kind!r:.40} is not served: only `input_text` is", "item.content"
        )
    if not isinstance(text, str):
        raise InvalidRequest("`text` of a part must be a string", "item.content")
    return text


def _id(item: dict[str, Any]) -> str:
    given = item.get("id")
    if given is None:
        return f"item_{uuid.uuid4().hex[:24]}"
    if not isinstance(given, str) or not 0 < len(given) <= 64:
        raise InvalidRequest("`id` must be a string of 1 to 64 characters", "item.id")
    return given


__all__ = ["MOST_ITEMS", "Conversation", "text_of"]
