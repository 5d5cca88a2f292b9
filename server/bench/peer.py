"""The C++ peer under the same load: a script for the Python that has `realtimetts-qwen-native-cpu`.

It needs nothing of Framecast. Once loaded it answers each line of stdin, a number of concurrent
requests, with a line of JSON: `seconds` of wall time, `frames` made, `first_audio_s` per request.

    python peer.py TALKER CODEC THREADS MOST_CONCURRENT FRAMES TEXT
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any


def main(arguments: list[str]) -> None:
    """Load both files and serve the lines of stdin."""
    from qwentts_cpp_cpu import QwenTTS  # type: ignore[import-not-found]  # noqa: PLC0415

    talker, codec, threads, most, frames, text = arguments
    model = QwenTTS(talker, codec, cpu_threads=int(threads), max_batch=int(most))
    request = {"text": text, "speaker": model.speaker_names()[0], "max_new_tokens": int(frames)}
    try:
        for line in sys.stdin:
            print(json.dumps(_run(model, int(line), request)), flush=True)
    finally:
        model.close()


def _run(model: Any, concurrency: int, request: dict[str, Any]) -> dict[str, Any]:
    first: list[float] = []
    samples: list[int] = []
    start = time.perf_counter()

    def listen(seed: int) -> None:
        heard = None
        for chunk, _ in model.stream(**request, seed=seed):
            heard = heard or time.perf_counter() - start
            samples.append(len(chunk))
        first.append(heard or 0.0)

    listeners = [threading.Thread(target=listen, args=(seed,)) for seed in range(concurrency)]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "frames": sum(samples) / 1920, "first_audio_s": first}


if __name__ == "__main__":
    main(sys.argv[1:])
