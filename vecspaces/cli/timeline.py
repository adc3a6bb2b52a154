"""A timeline of caller and workers for `profile --trace`, in Chrome's trace format (Perfetto).

The environments record when each of their steps and resets began and ended, and the caller records
its own calls. The vector env is not changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, NamedTuple

from vecspaces.vector import AsyncVectorEnv

_SPANS = "_vecspaces_spans"

# One process of the trace, with one track for the caller and one for each worker.
_PROCESS, _CALLER = 1, 0


class Span(NamedTuple):
    """A call and its times by `time.perf_counter_ns`, the clock that all processes share."""

    name: str
    began: int
    ended: int


class TimelineRecorder:
    """Records spans, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.spans: list[Span] = []
        self._limit = limit

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls another one, and records when each call began and ended."""

        def call(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                if len(self.spans) < self._limit:
                    self.spans.append(Span(name, began, perf_counter_ns()))

        return call


@dataclass(frozen=True)
class Traced:
    """A factory whose environments record their steps and resets, up to a limit each."""

    make: Callable[[], Any]
    limit: int

    def __call__(self) -> Any:
        """Make the environment."""
        env = self.make()
        recorder = TimelineRecorder(self.limit)
        env.step = recorder.timed("step", env.step)
        env.reset = recorder.timed("reset", env.reset)
        setattr(env, _SPANS, recorder.spans)
        return env


def read_spans(env: Any) -> list[Span]:
    """Return the spans of a traced environment; for `VectorEnv.call`."""
    return list(getattr(env, _SPANS, ()))


def chrome_trace(envs: AsyncVectorEnv[Any, Any], caller: Sequence[Span]) -> dict[str, Any]:
    """Return the spans as JSON of Google's "Trace Event Format": complete events, microseconds.

    The caller has one track, and each worker has one with the spans of its environments.
    """
    stats = envs.stats()
    spans = envs.call(read_spans)
    origin = min([span.began for found in (caller, *spans) for span in found], default=0)
    events = [_label("process_name", _CALLER, f"vecspaces, caller's pid {os.getpid()}")]
    events.append(_label("thread_name", _CALLER, "caller"))
    events += [_event(_CALLER, span, origin) for span in caller]
    for worker, rows in enumerate(stats.worker_envs):
        track = worker + 1
        title = f"worker {worker}: environments {rows.start} to {rows.stop - 1}"
        events.append(_label("thread_name", track, title))
        for row in rows:
            events += [_event(track, span, origin, env=row) for span in spans[row]]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _event(track: int, span: Span, origin: int, **args: Any) -> dict[str, Any]:
    name = f"{span.name} {args['env']}" if "env" in args else span.name
    return {
        "ph": "X",
        "name": name,
        "pid": _PROCESS,
        "tid": track,
        "ts": (span.began - origin) / 1e3,
        "dur": (span.ended - span.began) / 1e3,
        "args": args,
    }


def _label(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": track, "args": {"name": name}}
