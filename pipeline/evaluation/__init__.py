"""What a corpus is worth and whether it keeps quiet: measures that `dp-corpus evaluate` runs.

Each measure is a final subclass of `Measure` in a file of its own; `measures.MEASURES` is the table. A
measure that reads records or held-out records spends no budget, and so what it finds is for the curator
alone; `Sources.reads_records` says which evaluation that is.
"""
