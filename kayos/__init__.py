"""Kayos: a durable, ordered, de-duplicating message log."""

__version__ = "0.1.0"
