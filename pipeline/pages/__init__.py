"""Looks of reports: HTML pages, terminal screens and the dataset card, made of plain data."""
