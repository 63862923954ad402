"""Tests that may take longer than 20 seconds, each with the reason; every other one fails that does."""

REASONS: dict[str, str] = {}
