"""A run of the GPU benchmark: its sections, its clock, and the file that it writes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from gpu_work import Scale
from loops import wait

from curate.files import write_json


@dataclass
class Bench:
    """A run of the script: where it computes, how much, and what it has found."""

    device: torch.device
    scale: Scale
    seconds: float
    out: Path | None
    found: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        try:
            self.cores = len(os.sched_getaffinity(0))
        except AttributeError:
            self.cores = os.cpu_count() or 1
        self.pool = ThreadPoolExecutor(self.cores)

    @property
    def left(self) -> float:
        """Seconds until no section begins any more."""
        return self.seconds - (time.monotonic() - self.started)

    def section(
        self, into: dict[str, Any], name: str, needs: float, work: Callable[[], dict[str, Any]]
    ) -> None:
        """Do a section if it has the seconds that it needs, and write all that is known."""
        began = time.monotonic()
        if self.left < needs * self.scale.seconds:
            into[name] = {"skipped": f"{self.left:.0f} s were left"}
        else:
            try:
                into[name] = work()
            except Exception as error:
                # Whatever a driver, a compiler or a library raises: other sections still count.
                into[name] = {"error": line(error)}
        into[name]["section seconds"] = round(time.monotonic() - began, 1)
        print(f"{name}: {json.dumps(into[name])}", flush=True)
        self.write()

    def write(self) -> None:
        """Write what is known, whole or not at all."""
        if self.out is not None:
            write_json(self.out, self.found)

    def rate(self, call: Callable[[], Any], seconds: float) -> float:
        """Calls a second, after a warm-up."""
        for _ in range(2):
            call()
        wait(self.device)
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds * self.scale.seconds:
            for _ in range(4):
                call()
            wait(self.device)
            done += 4
        return done / (time.perf_counter() - started)


def line(error: Exception) -> str:
    """What an error says, in one line."""
    told = str(error).strip().splitlines()
    return f"{type(error).__name__}: {told[0] if told else ''}"
