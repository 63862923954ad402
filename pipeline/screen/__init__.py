"""The screen of a command: consoles, progress, Ctrl-C, and what stays off it."""
