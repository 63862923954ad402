"""The rules of a Lark grammar, read from its text."""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from models.grammars import expressions, regular_expressions
from models.grammars.expressions import Expression
from models.grammars.json_schema import json_text, schema


class UnsupportedGrammarError(ValueError):
    """A grammar is malformed, or has what no automaton can enforce.

    Attributes:
        construct: What it is.
        line: Its line, from 1.
    """

    def __init__(self, construct: str, line: int, why: str) -> None:
        super().__init__(
            f'Expected a grammar that can be enforced exactly, got {construct} at line {line}: {why}.'
        )
        self.construct, self.line = construct, line


@dataclasses.dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


_TOKENS = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*)
    |(?P<json>%json(?=\s*\{))
    |(?P<directive>%[a-z]+)
    |(?P<string>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?:\\.|[^/\\\n])+/[imslux]*)
    |(?P<special><[^>\n]*>)
    |(?P<arrow>->)
    |(?P<range>\.\.)
    |(?P<name>_?[A-Za-z][A-Za-z0-9_]*)
    |(?P<number>[0-9]+)
    |(?P<sign>[:|()\[\]{}?*+~.,&!@=-])
    """,
    re.VERBOSE,
)
# Of `common`, as Lark's own library defines them.
_COMMON: Mapping[str, str] = {
    'DIGIT': '[0-9]',
    'HEXDIGIT': '[0-9a-fA-F]',
    'INT': '[0-9]+',
    'SIGNED_INT': '[+-]?[0-9]+',
    'DECIMAL': r'[0-9]+\.[0-9]*|\.[0-9]+',
    'LCASE_LETTER': '[a-z]',
    'UCASE_LETTER': '[A-Z]',
    'LETTER': '[a-zA-Z]',
    'WORD': '[a-zA-Z]+',
    'CNAME': '[a-zA-Z_][a-zA-Z0-9_]*',
    'CR': r'\r',
    'LF': r'\n',
    'NEWLINE': r'(\r?\n)+',
    'WS_INLINE': r'[ \t]+',
    'WS': r'[ \t\f\r\n]+',
}
_DIRECTIVES = {
    '%ignore': 'what is left out would have to be chosen. Write it where it belongs',
    '%declare': 'a terminal without a text has none to hold an example to. Define it',
    '%regex': 'parts of texts are not read. Write a regular expression',
    '%lark': 'a grammar inside of a grammar is not read. Write its rules',
    '%override': 'rules are defined once. Change the rule',
    '%extend': 'rules are defined once. Change the rule',
}


@dataclasses.dataclass(frozen=True)
class Name:
    """A rule or a terminal in an alternative."""

    name: str
    line: int


# An expression, a name, or a node: ('union' | 'sequence', parts) or ('repetition', part, least, most).
Node = Any


def rules_of(grammar: str) -> dict[str, tuple[Node, int]]:
    """Each rule's and terminal's alternatives, and the line where it is defined.

    Raises:
        UnsupportedGrammarError: The grammar is malformed, or has what is not supported.
        UnsupportedKeywordError: A `%json` of it has a keyword that is not enforced.
        ValueError: A `%json` is malformed.
    """
    return _Reader(grammar).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[_Token] = []
        self.place = 0
        self.rules: dict[str, tuple[Node, int]] = {}

    def read(self) -> dict[str, tuple[Node, int]]:
        self._cut()
        while self.place < len(self.tokens):
            self._statement()
        return self.rules

    def _cut(self) -> None:
        place, line = 0, 1
        while place < len(self.text):
            found = _TOKENS.match(self.text, place)
            if found is None:
                raise UnsupportedGrammarError(
                    repr(self.text[place : place + 8]), line, 'it begins nothing of a grammar. Correct it'
                )
            kind, text = str(found.lastgroup), found[0]
            place = found.end()
            if kind == 'json':
                begin = self.text.index('{', place)
                try:
                    _, end = json.JSONDecoder().raw_decode(self.text, begin)
                except ValueError:
                    raise UnsupportedGrammarError("'%json'", line, 'no JSON follows it. Correct it') from None
                text, place = self.text[begin:end], end
            if kind != 'space':
                self.tokens.append(_Token(kind, text, line))
            line += self.text.count('\n', found.start(), place)

    # --- Statements ---

    def _at(self, ahead: int = 0) -> _Token:
        if self.place + ahead < len(self.tokens):
            return self.tokens[self.place + ahead]
        return _Token('end', 'the end', self.tokens[-1].line if self.tokens else 1)

    def _take(self, text: str) -> bool:
        found = self._at().text == text and self._at().kind not in ('string', 'regex', 'json')
        self.place += found
        return found

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise self._refuse(f'{text!r} was expected. Correct it')

    def _refuse(self, why: str, token: _Token | None = None) -> UnsupportedGrammarError:
        token = self._at() if token is None else token
        return UnsupportedGrammarError(repr(token.text[:40]), token.line, why)

    def _statement(self) -> None:
        token = self._at()
        if token.kind == 'directive':
            self._directive(token)
            return
        while self._at().text in ('?', '!') and self._at().kind == 'sign':
            # They shape Lark's tree, and no text.
            self.place += 1
        name = self._at()
        if name.kind != 'name':
            raise self._refuse('a rule or a terminal was expected. Correct it')
        self.place += 1
        if self._at().text in ('[', '{') and self._at().kind == 'sign':
            what = 'attributes' if self._at().text == '[' else 'a template'
            raise UnsupportedGrammarError(
                f'{what} of {name.text!r}', name.line, 'they are not enforced. Leave them out'
            )
        if self._at().text == '.':
            raise UnsupportedGrammarError(
                f'the priority of {name.text!r}',
                name.line,
                'of one text there are no two trees. Leave it out',
            )
        self._need(':')
        if name.text in self.rules:
            raise UnsupportedGrammarError(repr(name.text), name.line, 'it is defined twice. Remove one')
        self.rules[name.text] = (self._alternatives(), name.line)

    def _directive(self, token: _Token) -> None:
        self.place += 1
        if token.text == '%llguidance':
            if not (self._take('{') and self._take('}')):
                raise self._refuse('its options are not read. Leave it out', token)
        elif token.text == '%import':
            self._import()
        else:
            why = _DIRECTIVES.get(token.text, 'it is no directive of Lark. Correct it')
            raise self._refuse(why, token)

    def _import(self) -> None:
        library = self._at()
        self.place += 1
        if library.text != 'common' or not self._take('.'):
            raise self._refuse('only terminals of common are known. Define it', library)
        token = self._at()
        self.place += 1
        if token.text not in _COMMON:
            raise self._refuse(f'of common are known {", ".join(_COMMON)}. Define it', token)
        name = token.text
        if self._take('->'):
            name, self.place = self._at().text, self.place + 1
        self.rules[name] = (regular_expressions.matched(_COMMON[token.text]), token.line)

    # --- Alternatives ---

    def _begins_statement(self) -> bool:
        """Whether a directive or a definition comes next: a name at the beginning of a line, and a colon."""
        token, ahead = self._at(), 0
        if token.kind in ('directive', 'end'):
            return True
        if self._at(-1).line == token.line:
            return False
        while self._at(ahead).kind == 'sign' and self._at(ahead).text in ('?', '!'):
            ahead += 1
        name, follows = self._at(ahead), self._at(ahead + 1)
        if name.kind != 'name' or follows.kind != 'sign':
            return False
        return follows.text in (':', '.') or (
            follows.text in ('[', '{') and follows.line == name.line and self._has_colon(ahead + 1)
        )

    def _has_colon(self, ahead: int) -> bool:
        """Whether a bracket that begins there ends before a colon."""
        while self._at(ahead).kind != 'end' and self._at(ahead).text not in (']', '}'):
            ahead += 1
        return self._at(ahead + 1).text == ':'

    def _alternatives(self) -> Node:
        parts = [self._sequence()]
        while self._take('|'):
            parts.append(self._sequence())
        return ('union', parts) if len(parts) > 1 else parts[0]

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while not self._begins_statement():
            token = self._at()
            if token.kind == 'sign' and token.text in '|)]':
                break
            if token.kind == 'arrow':
                # It names Lark's tree.
                self.place += 2
                break
            parts.append(self._repeated(self._atom()))
        return ('sequence', parts)

    def _atom(self) -> Node:
        token = self._at()
        self.place += 1
        if token.kind == 'string':
            return self._literal(token)
        if token.kind == 'regex':
            return _regex(token)
        if token.kind == 'json':
            return schema.expression_of(json_text.read(token.text))
        if token.kind == 'name':
            return Name(token.text, token.line)
        if token.kind == 'special':
            raise self._refuse('tokens that are no text are not sampled. Leave it out', token)
        if token.text in ('(', '['):
            found = self._alternatives()
            self._need(')' if token.text == '(' else ']')
            return found if token.text == '(' else ('repetition', found, 0, 1)
        if token.text in ('&', '~', '-'):
            raise self._refuse('texts of both, and of none, are not read. Write them out', token)
        raise self._refuse('a part of a rule was expected. Correct it', token)

    def _literal(self, token: _Token) -> Expression:
        text = self._unquoted(token)
        if self._at().kind == 'range':
            self.place += 1
            high = self._at()
            if high.kind != 'string':
                raise self._refuse('a range ends with a literal. Correct it')
            self.place += 1
            last = self._unquoted(high)
            if len(text) != 1 or len(last) != 1 or last < text:
                raise self._refuse('a range is of two characters, the first not after the last', token)
            return expressions.utf_8(((ord(text), ord(last)),))
        return expressions.literal(text)

    def _unquoted(self, token: _Token) -> str:
        _refuse_flags(token)
        try:
            text = json.loads(token.text)
            text.encode()
        except ValueError:
            raise self._refuse('its escapes are not those of JSON. Write \\\\ or \\u0041', token) from None
        return str(text)

    def _repeated(self, atom: Node) -> Node:
        token = self._at()
        if self._begins_statement():
            return atom
        if self._take('?'):
            least, most = 0, 1
        elif self._take('*'):
            least, most = 0, None
        elif self._take('+'):
            least, most = 1, None
        elif self._take('~'):
            least = self._number()
            most = least
            if self._at().kind == 'range':
                self.place += 1
                most = self._number()
        elif self._take('{'):
            least = 0 if self._at().text == ',' else self._number()
            most = least
            if self._take(','):
                most = None if self._at().text == '}' else self._number()
            self._need('}')
        else:
            return atom
        if most is not None and most < least:
            raise self._refuse('a repetition is from n to m times, n <= m', token)
        return ('repetition', atom, least, most)

    def _number(self) -> int:
        token = self._at()
        if token.kind != 'number':
            raise self._refuse('a number of times was expected. Correct it')
        self.place += 1
        return int(token.text)


def _refuse_flags(token: _Token) -> None:
    flags = token.text[token.text.rindex(token.text[0]) + 1 :]
    if flags:
        raise UnsupportedGrammarError(
            f'the flags {flags!r} of {token.text!r}', token.line, 'write classes of characters instead'
        )


def _regex(token: _Token) -> Expression:
    """A regular expression between slashes: of Rust's dialect what ECMAScript's means alike."""
    _refuse_flags(token)
    pattern, written, place, in_class = token.text[1:-1], [], 0, False
    while place < len(pattern):
        part = pattern[place : place + 2] if pattern[place] == '\\' else pattern[place]
        refused = None
        if part in ('\\d', '\\D', '\\w', '\\W', '\\s', '\\S'):
            refused = 'it stands for characters of all scripts. Write a class such as [0-9]'
        elif len(part) == 2 and part[1] in 'bBcAzpP0<>':
            refused = 'it is not read. Write a class or the character itself'
        elif part in '^$' and not in_class:
            refused = 'a terminal has no anchors. Leave it out'
        elif in_class and pattern[place : place + 2] in ('&&', '--', '~~'):
            refused = 'sets of classes are not read. Write the class out'
        elif not in_class and part in '*+?}' and pattern[place + 1 : place + 2] == '?':
            refused = 'a lazy repetition ends where llguidance stops it. Leave the ? out'
        if refused is not None:
            raise UnsupportedGrammarError(f'{part!r} of {token.text!r}', token.line, refused)
        if part == '[' and not in_class:
            in_class = True
        elif part == ']':
            in_class = False
        written.append('[^\\n]' if part == '.' and not in_class else part)
        place += len(part)
    try:
        return regular_expressions.matched(''.join(written))
    except regular_expressions.UnsupportedPatternError as error:
        raise UnsupportedGrammarError(repr(token.text), token.line, str(error).rstrip('.')) from None
