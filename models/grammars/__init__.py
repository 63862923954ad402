"""What a text may be, as a deterministic automaton of its bytes: JSON Schema and regular expressions.

`schema.py` and `regular_expressions.py` read a source and write an expression of bytes
(`expressions.py`); `automaton.py` turns that into a minimal automaton, whose table
`models.constraints.Grammar` walks on the device. All of it is public, and runs on the host, once.
"""
