"""What is going on, for people on a terminal and for machines elsewhere? Fields, not sentences with holes.

    log = get("scheduler")
    log.info("bound", pod="default/train", node="node-a")

A terminal gets one short line, anything else JSON lines. It never decides what is worth logging.
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from dragoman.runtime.clock import Clock
from dragoman.values.visible import json_safe, visible

ROOT = "dragoman"
LogFormat = Literal["auto", "human", "json"]
_COLOURS = {"DEBUG": "\x1b[2m", "INFO": "", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m"}


class Log:
    """A named logger whose messages carry fields."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, Any]) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: Any) -> Log:
        """The same logger with fields that every message carries."""
        return Log(self._logger, {**self._fields, **fields})

    def debug(self, message: str, /, **fields: Any) -> None:
        """For whoever looks for the cause of something."""
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, /, **fields: Any) -> None:
        """What a running system does."""
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, /, **fields: Any) -> None:
        """It went on, but somebody should know."""
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, /, *, exc: BaseException | None = None, **fields: Any) -> None:
        """Something did not happen; `exc` adds its traceback."""
        self._log(logging.ERROR, message, fields, exc)

    def _log(self, level: int, message: str, fields: dict[str, Any], exc: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, extra={"fields": {**self._fields, **fields}}, exc_info=exc)


def get(name: str, /, **fields: Any) -> Log:
    """The logger of a part, such as `scheduler`."""
    return Log(logging.getLogger(f"{ROOT}.{name}"), fields)


def setup(
    *, level: str = "INFO", format: LogFormat = "auto", stream: TextIO | None = None, clock: Clock | None = None
) -> None:
    """Send our log to `stream` (stderr). "auto" is human on a terminal and JSON elsewhere."""
    stream = stream or sys.stderr
    human = stream.isatty() if format == "auto" else format == "human"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        _Human(clock, colour=stream.isatty() and not os.environ.get("NO_COLOR")) if human else _Json(clock)
    )
    logger = logging.getLogger(ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


class _Formatter(logging.Formatter):
    def __init__(self, clock: Clock | None) -> None:
        super().__init__()
        self._clock = clock

    def _when(self, record: logging.LogRecord) -> datetime:
        return self._clock.utc() if self._clock else datetime.fromtimestamp(record.created, UTC)


class _Human(_Formatter):
    def __init__(self, clock: Clock | None, *, colour: bool) -> None:
        super().__init__(clock)
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        words = " ".join(f"{key}={_word(value)}" for key, value in fields.items())
        part = record.name.removeprefix(f"{ROOT}.")
        level = record.levelname
        said = visible(f"{record.getMessage()}{' ' if words else ''}{words}")
        line = f"{self._when(record):%H:%M:%S} {level[0]} {part}: {said}"
        if self._colour and (colour := _COLOURS.get(level)):
            line = f"{colour}{line}\x1b[0m"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self._when(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix(f"{ROOT}."),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json_safe(msgspec.json.encode(line, enc_hook=str).decode())


def _word(value: Any) -> str:
    text = str(value)
    return repr(text) if not text or any(c in text for c in ' "\n=') else text
