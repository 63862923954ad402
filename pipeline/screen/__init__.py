"""The screen of whoever waits for a command: consoles, progress, Ctrl-C, and what stays off it."""
