"""The node's log: one event a line on stderr, JSON for machines or coloured for a terminal.

Fields have fixed names (node, topic, shard, epoch, seq, error_id); keys, values and headers of messages
are never logged.
"""

import logging
import sys
from typing import Any

import structlog

LEVELS = ("debug", "info", "warning", "error")


def set_up_logs(*, level: str, log_format: str) -> None:
    """Call once per process, before the first event."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    renderers: list[Any] = [structlog.dev.ConsoleRenderer()]
    if as_json:
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def get_log(**fields: Any) -> Any:
    """A logger that puts `fields` on each line."""
    return structlog.get_logger(**fields)
