"""Lark grammars in the dialect of llguidance, as expressions of bytes: the part that is regular.

A grammar describes characters: a rule matches what its parts match one after another. (The lexer of
llguidance takes the longest terminal that it can, so it refuses some of these texts where one terminal can
go on with what the next one begins with.) Supported are rules and terminals, literals and their ranges,
regular expressions, groups, options, repetitions and `%json`. A rule that refers to itself at one end of
its alternatives, as lists do, is a repetition. Everything else is refused with its name and its line.

Sources: Lark's grammar reference, and docs/syntax.md of llguidance.
"""

from typing import Final

from models.grammars import expressions
from models.grammars.expressions import Expression
from models.grammars.lark_rules import Name, Node, UnsupportedGrammarError, rules_of

START: Final = 'start'


def matched(grammar: str) -> Expression:
    """The texts of a grammar's rule `start`.

    Raises:
        UnsupportedGrammarError: It is malformed, or has what is not supported.
        UnsupportedKeywordError: A `%json` of it has a keyword that is not enforced.
        ValueError: A `%json` is malformed.
    """
    return _Texts(rules_of(grammar)).expression()


class _Texts:
    def __init__(self, rules: dict[str, tuple[Node, int]]) -> None:
        self.rules = rules
        self._found: dict[str, Expression] = {}
        self._within: list[str] = []

    def expression(self) -> Expression:
        if START not in self.rules:
            raise UnsupportedGrammarError('no rule start', 1, 'say what a whole text is. Write start: ...')
        return self._rule(Name(START, self.rules[START][1]))

    def _rule(self, name: Name) -> Expression:
        if name.name in self._found:
            return self._found[name.name]
        if name.name not in self.rules:
            raise UnsupportedGrammarError(repr(name.name), name.line, 'it is not defined. Define it')
        if name.name in self._within:
            ring = [*self._within[self._within.index(name.name) :], name.name]
            raise UnsupportedGrammarError(
                f'the recursion {" -> ".join(ring)}',
                self.rules[name.name][1],
                'an automaton remembers no depth. Write a repetition, or the depths that are wanted as rules '
                'of their own',
            )
        self._within.append(name.name)
        found = self._listed(name.name, self.rules[name.name][0])
        self._within.pop()
        self._found[name.name] = found
        return found

    def _listed(self, name: str, node: Node) -> Expression:
        """A rule's texts; as a repetition where it stands in itself at one end of its alternatives."""
        alternatives = node[1] if isinstance(node, tuple) and node[0] == 'union' else [node]
        others, heads, tails = [], [], []
        for one in alternatives:
            parts = one[1] if isinstance(one, tuple) and one[0] == 'sequence' else [one]
            own = [place for place, part in enumerate(parts) if isinstance(part, Name) and part.name == name]
            if own == [len(parts) - 1] and len(parts) > 1:
                heads.append(('sequence', parts[:-1]))
            elif own == [0] and len(parts) > 1:
                tails.append(('sequence', parts[1:]))
            else:
                others.append(one)
        if heads and tails:
            # Both ends at once: texts whose halves count each other.
            return self._texts(node)
        base = expressions.union(*map(self._texts, others))
        around = expressions.union(*map(self._texts, heads or tails))
        if not heads and not tails:
            return base
        times = expressions.repetition(around, 0, None)
        return expressions.concatenation(*((times, base) if heads else (base, times)))

    def _texts(self, node: Node) -> Expression:
        match node:
            case Expression():
                return node
            case Name():
                return self._rule(node)
            case ('union', parts):
                return expressions.union(*map(self._texts, parts))
            case ('sequence', parts):
                return expressions.concatenation(*map(self._texts, parts))
            case ('repetition', part, least, most):
                return expressions.repetition(self._texts(part), least, most)
        raise TypeError(f'Expected a part of a grammar, got {type(node).__name__}.')
