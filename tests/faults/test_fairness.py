"""One tenant floods the queue; another, who asks for one thing at a time, hardly notices.

Waiting is counted in steps and admissions of a worker that moves one step at a time, so the numbers
are the same on every machine. A step makes one frame for every slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from engine.request import FinishReason, Job
from engine.scheduler import Scheduler
from engine.stream import Finished, Stats, Stream
from engine.tts.slot import Slot
