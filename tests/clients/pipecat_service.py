"""pipecat: its text-to-speech services for OpenAI, ElevenLabs, Deepgram and Cartesia."""

from __future__ import annotations

import asyncio

from loguru import logger
from openai import DefaultAsyncHttpxClient
from pipecat.frames.frames import EndFrame, ErrorFrame, TTSAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.deepgram.tts import DeepgramTTSService
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.services.tts_service import TTSService
from pipecat.workers.runner import WorkerRunner

from tests.clients.sounds import TEXT, samples

logger.remove()  # it logs every frame


class _Heard(FrameProcessor):
    def __init__(self) -> None:
        super().__init__()
        self.sound = b""
        self.errors: list[str] = []

    async def process_frame(self, frame: object, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            assert frame.sample_rate == 24_000
            self.sound += frame.audio
        if isinstance(frame, ErrorFrame):
            self.errors.append(frame.error)
        await self.push_frame(frame, direction)


async def heard_of(service: TTSService) -> _Heard:
    """What comes out of a pipeline with this service in it that is told to say something."""
    heard = _Heard()
    task = PipelineTask(
        Pipeline([service, heard]), params=PipelineParams(audio_out_sample_rate=24_000)
    )
    await task.queue_frames([TTSSpeakFrame(TEXT), EndFrame()])
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(task)
    await runner.run()
    return heard


async def _speak(url: str) -> _Heard:
    async with DefaultAsyncHttpxClient() as http:
        settings = OpenAITTSService.Settings(voice="alloy", speed=1.25, instructions="Warmly.")
        service = OpenAITTSService(
            api_key="unused", base_url=f"{url}/v1", http_client=http, settings=settings
        )
        return await heard_of(service)


def check_a_pipeline_speaks(url: str) -> None:
    heard = asyncio.run(_speak(url))
    assert not heard.errors
    samples(heard.sound)


def check_a_pipeline_speaks_through_elevenlabs_service(url: str) -> None:
    async def speak() -> _Heard:
        settings = ElevenLabsTTSService.Settings(voice="alloy", speed=1.1)
        live = url.replace("http", "ws", 1)
        service = ElevenLabsTTSService(api_key="unused", url=live, settings=settings)
        return await heard_of(service)

    heard = asyncio.run(speak())
    assert not heard.errors
    samples(heard.sound)


def check_a_pipeline_speaks_through_deepgrams_service(url: str) -> None:
    async def speak() -> _Heard:
        live = url.replace("http", "ws", 1)
        return await heard_of(DeepgramTTSService(api_key="unused", base_url=live))

    heard = asyncio.run(speak())
    assert not heard.errors
    samples(heard.sound)


def check_a_pipeline_speaks_through_cartesias_service(url: str) -> None:
    async def speak() -> _Heard:
        settings = CartesiaTTSService.Settings(voice="alloy")
        live = f"{url.replace('http', 'ws', 1)}/tts/websocket"
        return await heard_of(CartesiaTTSService(api_key="unused", url=live, settings=settings))

    heard = asyncio.run(speak())
    assert not heard.errors
    samples(heard.sound)
