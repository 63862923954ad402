"""Beam transforms: thin wiring beside the plain functions that hold the logic."""
