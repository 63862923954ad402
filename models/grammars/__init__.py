"""What a text may be, as an automaton of its bytes: from JSON Schema, regular expressions and Lark grammars.

`json_schema`, `regular_expressions.py` and `lark.py` write their source as an expression of bytes
(`expressions.py`); `automaton.py` turns that into a minimal automaton, whose table
`models.constraints.Grammar` walks on the device. All of it is public, and runs on the host, once.
"""
