"""Measures of a corpus, which `dp-corpus evaluate` runs: how useful it is, and whether it repeats records.

Each measure is a final subclass of `Measure` in a file of its own. To add one, write the file and one line
in `measures`: the command, the JSON document and the page need no change.

No budget pays for a measure that reads records or held-out records, so its result is for the curator alone.
`Sources.reads_records` tells whether that is so.
"""
