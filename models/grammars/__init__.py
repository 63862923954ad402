"""The texts of a structure as an automaton of their bytes: from JSON Schema and regular expressions.

`json_schema` and `regular_expressions.py` write their source as an expression of bytes (`expressions.py`);
`automaton.py` turns that into a minimal automaton, whose table `models.constraints.Grammar` walks on the
device. All of it is public, and runs on the host, once.
"""
