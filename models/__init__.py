"""Computations of one worker; nothing here knows Beam."""
