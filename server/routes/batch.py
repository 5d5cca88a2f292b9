"""`POST /v1/audio/speech/batch`, as vLLM-Omni has it: many texts in, all their sound in one
reply."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine import Cancelled, EngineError, EngineUnavailable, InvalidRequest, Overloaded
from server.bodies import read_json
from server.dependencies import CallerDep, RecordDep, RequestRecord, ServiceDep
from server.errors import error_object
from server.events import usage
from server.metrics import Metrics
from server.orders import order
from server.routes.described import failures, json_body
from server.schemas.batch import BatchBody, BatchResult
from server.speaking import Speaking, Speech, when_gone

router = APIRouter()

EXAMPLES = {
    "two": {
        "summary": "Two texts, one of them in another voice",
        "value": {
            "voice": "alloy",
            "response_format": "mp3",
            "items": [{"input": "Hello there."}, {"input": "Good night.", "voice": "onyx"}],
        },
    }
}


@router.post(
    "/audio/speech/batch",
    response_model=BatchResult,
    responses=failures(400, 401, 413, 429, 500, 503),
    openapi_extra=json_body(BatchBody, EXAMPLES),
)
async def speech_batch(
    request: Request, service: ServiceDep, record: RecordDep, caller: CallerDep
) -> Response:
    """Speak every item; one that fails does not fail the rest. Top-level fields are defaults."""
    settings = service.settings
    batch = BatchBody.checked(await read_json(request, settings.max_body_bytes))
    batch.refuse_too_long(settings.max_batch_chars)
    ordered: list[Speech | EngineError] = []
    for body in batch.bodies():
        try:
            if isinstance(body, InvalidRequest):
                raise body
            ordered.append(await order(body, service, record, caller, streams=False))
        except EngineError as error:
            ordered.append(error)
    return BatchReply(ordered, record, service.metrics)


class BatchReply(Response):
    """Starts all utterances at once and answers when the last one is over.

    A client that leaves cancels them all.
    """

    def __init__(
        self, ordered: list[Speech | EngineError], record: RequestRecord, metrics: Metrics
    ) -> None:
        super().__init__()
        self._ordered = ordered
        self._record = record
        self._metrics = metrics
        self._failures: list[EngineError] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        items = [
            asyncio.ensure_future(self._result(index, speech))
            for index, speech in enumerate(self._ordered)
        ]
        gone = asyncio.create_task(when_gone(receive, lambda: _cancel(items)))
        try:
            results = await asyncio.gather(*items)
        except asyncio.CancelledError:
            if not gone.done():
                raise
            raise Cancelled("the client left") from None
        finally:
            gone.cancel()
            _cancel(items)
        self._refuse_if_all_were()
        body = await asyncio.to_thread(_encoded, self._record.id, results)
        await Response(body, media_type="application/json")(scope, receive, send)

    async def _result(self, index: int, speech: Speech | EngineError) -> dict[str, Any]:
        try:
            if isinstance(speech, EngineError):
                raise speech
            return {"index": index, "status": "success"} | await self._spoken(speech)
        except EngineError as error:
            self._failures.append(error)
            return {"index": index, "status": "error"} | _failed(error)

    def _refuse_if_all_were(self) -> None:
        # A server that takes none of them says so to the client library, which comes back.
        busy = [e for e in self._failures if isinstance(e, Overloaded | EngineUnavailable)]
        if len(busy) == len(self._ordered):
            raise busy[0]

    async def _spoken(self, speech: Speech) -> dict[str, Any]:
        speaking = await Speaking.start(speech, self._record, self._metrics)
        try:
            body, finished = await speaking.whole([await speaking.first()])
        finally:
            await speaking.close()
        told: dict[str, Any] = {}
        if speaking.spoken_text is not None:
            told["text"] = speaking.spoken_text
        if speaking.warnings:
            told["warnings"] = list(speaking.warnings)
        return told | {
            "audio_data": (await asyncio.to_thread(base64.b64encode, body)).decode(),
            "media_type": speech.shape.content_type(speaking.rate),
            "finish_reason": str(finished.reason),
            "usage": usage(finished.stats),
        }


def _failed(error: EngineError) -> dict[str, Any]:
    told = error_object(error)
    return {
        "error": told["message"],
        "error_code": told["code"] or told["type"],
        "error_param": told["param"],
    }


def _encoded(request_id: str, results: list[dict[str, Any]]) -> bytes:
    succeeded = sum(result["status"] == "success" for result in results)
    empty = dict.fromkeys(("audio_data", "media_type", "error", "usage"))
    return json.dumps(
        {
            "id": request_id,
            "results": [empty | result for result in results],
            "total": len(results),
            "succeeded": succeeded,
            "failed": len(results) - succeeded,
        }
    ).encode()


def _cancel(tasks: Sequence[asyncio.Future[dict[str, Any]]]) -> None:
    for task in tasks:
        task.cancel()


__all__ = ["router"]
