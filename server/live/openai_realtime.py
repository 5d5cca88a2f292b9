"""OpenAI's Realtime API, as far as reading aloud goes: `/v1/realtime`.

client                      -> server
(connects)                  -> session.created
session.update              -> session.updated
conversation.item.create    -> conversation.item.added, conversation.item.done
conversation.item.delete    -> conversation.item.deleted
response.create             -> response.created, then of its one message response.output_item.added,
                               .content_part.added, .output_audio_transcript.delta,
                               .output_audio.delta ..., the `done` of each, response.done
response.cancel             -> the same ends with `status` `cancelled`, and no sound after them
what is wrong               -> error, and the session goes on

What the user's messages say is spoken; instructions and other messages never are.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from engine import EngineError, InvalidRequest
from server.dialects import renamed
from server.errors import error_object
from server.live.conversation import Conversation
from server.live.events import Ended, Event, Flushed, Reply, Sound
from server.live.messages import parsed
from server.live.openai_beta import as_beta
from server.live.openai_responses import Response, as_text, how_it_ended, new_id
from server.live.opening import PLACEHOLDER
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.several import Contexts
from server.live.sockets import NORMAL, POLICY, Close
from server.schemas.realtime import FIELDS, OURS, Speaker, is_beta, merged
from server.schemas.speech import SpeechBody

# These clients keep sessions for long.
IDLE_S = 300.0
MOST_MESSAGE = 512 * 1024
SERVED = (
    "session.update", "conversation.item.create", "conversation.item.delete", "response.create",
    "response.cancel",
)  # fmt: skip
KEPT = (*Speaker.model_fields, *OURS)

# The manner a body asks for; raises what is wrong with it.
Configure = Callable[[SpeechBody], Awaitable[Manner]]


class OpenAIRealtime:
    """One session; see `server.live.sockets.Dialect`.

    Args:
        idle_s: seconds without a message, while nothing is spoken.
        beta: events have the names and shapes of the beta; a client that writes its settings in
            the beta's shape gets them too.
    """

    def __init__(
        self,
        configure: Configure,
        contexts: Contexts,
        outbox: Outbox,
        *,
        idle_s: float,
        beta: bool = False,
    ) -> None:
        self._configure = configure
        self._contexts = contexts
        self._outbox = outbox
        self._idle_s = max(idle_s, IDLE_S)
        self._beta = beta
        self._id = new_id("sess")
        self._session: dict[str, Any] = {}
        self._conversation = Conversation()
        self._active: dict[str, Response] = {}
        self._found: dict[str, Response] = {}  # by the id of the context

    @property
    def patience_s(self) -> float:
        return self._idle_s

    @property
    def speaking(self) -> bool:
        return self._contexts.speaking

    def begin(self, model: str, voice: str | None) -> None:
        """Tell the client of its session; `voice` speaks when no other is asked for."""
        given = {"type": "realtime", "model": model, "audio": {"output": {"voice": voice}}}
        self._session = merged({}, given)
        self._send("session.created", session=self._told_session())

    def late(self) -> Close:
        error = InvalidRequest(f"no message came for {self._idle_s:g} s")
        self._error(error, None, code="session_expired")
        return Close(NORMAL, "idle")

    async def receive(self, message: str) -> None:
        event_id = None
        try:
            data = parsed(message, MOST_MESSAGE)
            event_id = data.get("event_id")
            await self._do(data)
        except EngineError as error:
            self._error(error, event_id)

    def frames(self, event: Event) -> Iterator[str | bytes]:
        match event:
            case Reply(text=text):
                yield text
            case Sound(context=key, data=data):
                response = self._found[key]
                # Of speech that has failed before its first sound nothing is announced.
                told = [] if response.begun else response.started()
                delta = base64.b64encode(data).decode()
                told.append(response.part("output_audio.delta", delta=delta))
                yield from self._written(told)
            case Ended(context=key):
                self._found[key].ended = event
            case Flushed(context=key):
                response = self._found[key]
                assert response.ended is not None
                yield from self._over(response, *how_it_ended(response.ended))

    async def aclose(self) -> None:
        await self._contexts.aclose()

    async def _do(self, data: dict[str, Any]) -> None:
        match data.get("type"):
            case "session.update":
                await self._update(_object(data, "session"))
            case "conversation.item.create":
                self._create_item(data)
            case "conversation.item.delete":
                self._conversation.delete(data.get("item_id"))
                self._send("conversation.item.deleted", item_id=data["item_id"])
            case "response.create":
                await self._create_response(_object(data, "response"))
            case "response.cancel":
                self._cancel(data)
            case kind:
                raise InvalidRequest(
                    f"messages of type {kind!r:.60} are not served: this server reads text aloud,"
                    f" with {', '.join(SERVED)}",
                    "type",
                )

    async def _update(self, given: dict[str, Any]) -> None:
        if given.get("type") == "transcription":
            self._error(transcription_refused("session.type"), None)
            raise Close(POLICY, "transcription is not served yet")
        await self._change(given)
        self._beta = self._beta or is_beta(given)
        self._send("session.updated", session=self._told_session())

    async def _change(self, given: dict[str, Any]) -> None:
        session = merged(self._session, given)
        await self._manner(session)
        self._session = {name: session[name] for name in KEPT if name in session}

    async def _manner(self, session: dict[str, Any]) -> Manner:
        return await self._configure(Speaker.checked(session).to_speech(session, PLACEHOLDER))

    def _create_item(self, data: dict[str, Any]) -> None:
        item, before = self._conversation.add(data.get("item"), data.get("previous_item_id"))
        for kind in ("added", "done"):
            self._send(f"conversation.item.{kind}", previous_item_id=before, item=item)

    async def _create_response(self, given: dict[str, Any]) -> None:
        own = {"conversation", "input", "metadata"}
        asked = {k: v for k, v in given.items() if k not in own and v is not None}
        session = merged(self._session, asked)
        speaker = Speaker.checked(session)
        outside = _outside(given)
        text = self._conversation.text(given.get("input"))
        manner = await self._manner(session)
        context = self._contexts.open(manner)
        try:
            context.say(text)
        except EngineError:
            self._contexts.release(context)
            raise
        if given.get("input") is None:
            self._conversation.spoken()
        facts = {
            "conversation_id": None if outside else f"conv_{self._id}",
            "output_modalities": ["audio"],
            "max_output_tokens": speaker.max_output_tokens or "inf",
            "audio": {"output": speaker.audio.output.model_dump(include={"format", "voice"})},
            "metadata": given.get("metadata"),
        }
        response = Response(new_id("resp"), new_id("item"), text, context, facts)
        self._active[response.id] = self._found[context.id] = response
        self._send("response.created", response=response.told("in_progress"))
        context.flush()

    def _cancel(self, data: dict[str, Any]) -> None:
        wanted = data.get("response_id")
        found = [each for each in self._active.values() if wanted in (None, each.id)]
        if not found:
            refusal = InvalidRequest("there is no response that could be cancelled", "response_id")
            self._error(refusal, data.get("event_id"), code="response_cancel_not_active")
        for response in found:
            details = {"type": "cancelled", "reason": "client_cancelled"}
            for frame in self._over(response, "cancelled", details):
                self._outbox.post(Reply(frame))

    def _over(self, response: Response, status: str, details: dict[str, Any]) -> list[str]:
        """The last events of a response; nothing of it follows."""
        del self._active[response.id], self._found[response.context.id]
        self._contexts.release(response.context)
        return self._written(response.over(status, details))

    def _told_session(self) -> dict[str, Any]:
        speaker = Speaker.checked(self._session)
        told = {"id": self._id, "object": "realtime.session"} | speaker.model_dump()
        told["max_output_tokens"] = speaker.max_output_tokens or "inf"
        return told | {name: self._session[name] for name in OURS if name in self._session}

    def _error(self, error: EngineError, event_id: Any, **more: str) -> None:
        self._outbox.post(Reply(error_event(error, event_id, **more)))

    def _send(self, kind: str, **fields: Any) -> None:
        for frame in self._written([{"type": kind} | fields]):
            self._outbox.post(Reply(frame))

    def _written(self, events: list[dict[str, Any]]) -> list[str]:
        told = map(as_beta, events) if self._beta else events
        return [as_text(event) for event in told if event is not None]


def error_event(error: Exception, event_id: Any = None, **more: str) -> str:
    """The event for something wrong with a message, whose id is `event_id`."""
    told = renamed(error_object(error), FIELDS) | more
    told["event_id"] = event_id if isinstance(event_id, str) else None
    return as_text({"type": "error", "error": told})


def transcription_refused(field: str) -> InvalidRequest:
    """What those are told who want their voice written down."""
    return InvalidRequest(
        f"`{field}` `transcription` is not served yet: this server reads text aloud, in sessions of"
        " type `realtime`",
        field,
    )


def _object(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    if value is None and name == "response":
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(f"`{name}` must be an object", name)
    return value


def _outside(given: dict[str, Any]) -> bool:
    conversation = given.get("conversation") or "auto"
    if conversation not in ("auto", "none"):
        raise InvalidRequest(
            f"`response.conversation` must be auto or none, got {conversation!r:.60}",
            "response.conversation",
        )
    return bool(conversation == "none")


__all__ = ["IDLE_S", "Configure", "OpenAIRealtime", "error_event", "transcription_refused"]
