"""Which tokens may come next, as a function of the tokens before them: public by construction (METHOD 4).

A constraint sees the tokens of the current example and public settings, and nothing else: no
logits, no context. So its mask is a function of the output, and free. The compiled loop of
`models/generate.py` carries its state, and begins it anew where an example ends.

A new one is one class: a frozen dataclass under `jax.tree_util.register_dataclass`, whose arrays
are data and whose other fields are static (`STATIC`), so that a constraint of another size, but not
one of other values, is another program. tests/contracts/constraint_test.py holds it to what follows.
"""

import abc
import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from models.grammars import automaton as automaton_lib
from models.grammars.automaton import Automaton

# Metadata of a field that is compiled into the program.
STATIC: Mapping[str, bool] = {'static': True}


class Constraint(abc.ABC):
    """A public restriction of each token of an example.

    Formal guarantees: `start` reads public settings and the example's number alone; `advance` and with it
    every mask read the example's tokens too, and nothing else. After tokens that were all allowed, some
    token is.

    Attributes:
        narrows_predictions: Whether every prediction is taken given that an allowed token comes: votes are
            centred, and the sparse-vector test compares, on the allowed tokens alone. For masks that leave
            few of the tokens that a model expects.
    """

    narrows_predictions: ClassVar[bool] = False

    @abc.abstractmethod
    def start(self, example: jax.Array | int = 0) -> Any:
        """The state at the beginning of an example: a pytree of arrays, whose shapes `advance` keeps.

        Args:
            example: Which one of its token stream, an int32 scalar from 0; public, like the stream.
        """

    @abc.abstractmethod
    def allowed(self, state: Any) -> jax.Array:
        """The tokens that may come next, `[V]` bool, never none."""

    @abc.abstractmethod
    def allowed_among(self, state: Any, tokens: jax.Array) -> jax.Array:
        """Which of some tokens may come next, `[K]` bool, for `[K]` int32 tokens: those of `allowed`."""

    @abc.abstractmethod
    def advance(self, state: Any, token: jax.Array) -> Any:
        """The state after a token, an int32 scalar."""

    def forced(self, state: Any) -> jax.Array | None:
        """The one token that is allowed, an int32 scalar, or -1 where there is a choice.

        It is emitted without a vote, a test or a price. None where no state of the constraint has one.
        """
        return None


@typing.final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Vocabulary(Constraint):
    """The same tokens everywhere: what text may contain, and the stop tokens.

    Attributes:
        tokens: `[V]` bool.
    """

    tokens: jax.Array

    @classmethod
    def of(cls, tokens: np.ndarray) -> 'Vocabulary':
        """From a mask `[V]`.

        Raises:
            ValueError: It allows no token.
        """
        if not np.any(tokens):
            raise ValueError(
                'Expected some token to be allowed, got an empty mask. Allow the stop tokens at least.'
            )
        return cls(jnp.asarray(tokens, bool))

    def start(self, example: jax.Array | int = 0) -> tuple[()]:
        """Nothing changes, so there is no state."""
        return ()

    def allowed(self, state: tuple[()]) -> jax.Array:
        """`tokens`."""
        return self.tokens

    def allowed_among(self, state: tuple[()], tokens: jax.Array) -> jax.Array:
        """Of `tokens`."""
        return self.tokens[tokens]

    def advance(self, state: tuple[()], token: jax.Array) -> tuple[()]:
        """Still nothing."""
        return ()


@typing.final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Digits(Constraint):
    """So many digits, then the end: the keys of the reconstruction audit (CL D.5.1).

    Attributes:
        digits: `[V]` bool, the ten tokens of single digits.
        ends: `[V]` bool, the stop tokens, one of which follows the last digit.
        length: Digits of an example.
    """

    digits: jax.Array
    ends: jax.Array
    length: int = dataclasses.field(metadata=STATIC)

    @classmethod
    def of(
        cls, vocab_size: int, *, digits: Iterable[int], stop_tokens: Iterable[int], length: int
    ) -> 'Digits':
        """From token ids.

        Raises:
            ValueError: There is no digit, no stop token or no length.
        """
        masks = {}
        for name, ids in (('digits', sorted(digits)), ('stop_tokens', sorted(stop_tokens))):
            if not ids:
                raise ValueError(f'Expected {name}, got none. Some token has to be allowed at every place.')
            masks[name] = np.zeros(vocab_size, bool)
            masks[name][ids] = True
        if length < 1:
            raise ValueError(f'Expected length >= 1, got length={length}. Give the digits of an example.')
        return cls(jnp.asarray(masks['digits']), jnp.asarray(masks['stop_tokens']), length)

    def start(self, example: jax.Array | int = 0) -> jax.Array:
        """The digits so far, an int32 scalar: none."""
        return jnp.int32(0)

    def allowed(self, state: jax.Array) -> jax.Array:
        """Digits, until there are enough."""
        return jnp.where(state < self.length, self.digits, self.ends)

    def allowed_among(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        """Of `allowed`."""
        return jnp.where(state < self.length, self.digits[tokens], self.ends[tokens])

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        """One digit more."""
        return state + 1


@typing.final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Grammar(Constraint):
    """The tokens whose bytes an automaton can go on from; an end where a text may end.

    Where the automaton leaves no choice of bytes one spelling of them is allowed alone, and so is one end.

    Tokens are ranked by length, the longest first, and their bytes lie position by position: those at
    position l belong to the first `counts[l]` ranks. So a walk of all tokens gathers once for each byte of
    the vocabulary and no more, and one of some tokens finds the bytes of a rank by an offset.

    Attributes:
        table: `[states, classes]` int32, `Automaton.table`.
        accepting: `[states]` bool.
        classes: `[bytes of the vocabulary]` uint8, the byte class of each, position by position.
        ranks: `[V]` int32.
        sampled: `[V]` bool, the tokens that may be sampled and have bytes.
        ends: `[V]` bool, the stop tokens.
        forced_tokens: `[states]` int32, the token that is allowed alone, -1 where there is a choice.
        first: `[E]` int32, the automaton's state at the beginning of each example; all further ones begin
            in the last.
        counts: Tokens that are longer than l, for every l.
    """

    table: jax.Array
    accepting: jax.Array
    classes: jax.Array
    ranks: jax.Array
    sampled: jax.Array
    ends: jax.Array
    forced_tokens: jax.Array
    first: jax.Array
    counts: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    narrows_predictions: ClassVar[bool] = True

    @classmethod
    def of(
        cls,
        automaton: Automaton,
        token_bytes: Sequence[bytes],
        *,
        tokens: np.ndarray,
        stop_tokens: Iterable[int],
        forced_tokens: np.ndarray | None = None,
        first: Sequence[int] = (automaton_lib.START,),
    ) -> 'Grammar':
        """From an automaton and a vocabulary.

        Args:
            automaton: Of the whole example's bytes.
            token_bytes: `Tokenizer.token_bytes`.
            tokens: `[V]` bool, the tokens that may be sampled, `Tokenizer.released_token_mask`; V may be more
                than there are pieces.
            stop_tokens: Ids that end an example.
            forced_tokens: `[states]` int32, of `models.grammars.forced.forced_table`; None to force nothing.
            first: States of the automaton where examples begin, at least one.

        Raises:
            ValueError: The automaton accepts nothing, there is no stop token, or tokens can lead to where
                none may follow.
        """
        if forced_tokens is None:
            forced_tokens = np.full(automaton.states, -1, np.int32)
        ends = np.zeros(len(tokens), bool)
        ends[sorted(stop_tokens)] = True
        if automaton.is_empty or not ends.any():
            raise ValueError(
                'Expected an automaton that accepts some text and some stop token, got '
                f'is_empty={automaton.is_empty}, stop_tokens={sorted(stop_tokens)}. Allow one of each.'
            )
        lengths = np.zeros(len(tokens), int)
        lengths[: len(token_bytes)] = [len(data) for data in token_bytes]
        # A token that may not be sampled needs no bytes.
        lengths[~tokens | ends] = 0
        order = np.argsort(-lengths, kind='stable')
        ranks = np.empty(len(tokens), np.int32)
        ranks[order] = np.arange(len(tokens))
        longest = [token_bytes[token] for token in order[: np.count_nonzero(lengths)]]
        counts = tuple(
            int(np.count_nonzero(lengths > position)) for position in range(lengths.max(initial=0))
        )
        flat = np.array(
            [data[position] for position, count in enumerate(counts) for data in longest[:count]], np.uint8
        )
        found = cls(
            table=jnp.asarray(automaton.table, jnp.int32),
            accepting=jnp.asarray(automaton.accepting),
            classes=jnp.asarray(automaton.class_of_byte[flat]),
            ranks=jnp.asarray(ranks),
            sampled=jnp.asarray(lengths > 0),
            ends=jnp.asarray(ends),
            forced_tokens=jnp.asarray(forced_tokens, jnp.int32),
            first=jnp.asarray(first, jnp.int32),
            counts=counts,
        )
        found._check_goes_on(automaton, first, [data for data in longest if len(data) == 1])
        return found

    def start(self, example: jax.Array | int = 0) -> jax.Array:
        """The automaton's state, an int32 scalar, of `first`."""
        return jnp.take(self.first, example, mode='clip')

    def of_cells(self, cells: Sequence[int]) -> 'Grammar':
        """The same with the starts of a stream's examples: for each one the place of its own in `first`."""
        return dataclasses.replace(self, first=self.first[np.asarray(cells, np.int32)])

    def allowed(self, state: jax.Array) -> jax.Array:
        """The forced token, or the tokens of which no byte is dead, and the ends where a text may end."""
        found = jnp.where(
            self.ends, self._may_end(state), self.sampled & (self._walked(state) > 0)[self.ranks]
        )
        return self._or_forced(state, jnp.arange(len(found)), found)

    def allowed_among(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        """Of `allowed`, by walking these tokens alone."""
        is_live = self._walked_by(state, self.ranks[tokens]) > 0
        found = jnp.where(self.ends[tokens], self._may_end(state), self.sampled[tokens] & is_live)
        return self._or_forced(state, tokens, found)

    def forced(self, state: jax.Array) -> jax.Array:
        """Of `forced_tokens`."""
        return self.forced_tokens[state]

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        """The state after a token's bytes; a stop token has none."""
        return self._walked_by(state, self.ranks[token])

    def _or_forced(self, state: jax.Array, tokens: jax.Array, found: jax.Array) -> jax.Array:
        forced = self.forced(state)
        return jnp.where(forced < 0, found, tokens == forced)

    def _may_end(self, state: jax.Array) -> jax.Array:
        # Allowed tokens never lead to the dead state; a stream that is sent may, and has to end.
        return self.accepting[state] | (state == automaton_lib.DEAD)

    def _walked(self, state: jax.Array) -> jax.Array:
        """The state after each token, `[V]` by rank."""
        states, begin = jnp.full(self.ranks.shape, state), 0
        for count in self.counts:
            classes = self.classes[begin : begin + count].astype(jnp.int32)
            states = states.at[:count].set(self.table[states[:count], classes])
            begin += count
        return states

    def _walked_by(self, state: jax.Array, ranks: jax.Array) -> jax.Array:
        """The state after each token of some ranks, in the ranks' shape."""
        counts = np.array(self.counts, np.int32)
        begins = np.cumsum(counts) - counts

        def one_byte(states: jax.Array, position: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            begin, count = position
            has_byte = ranks < count
            classes = self.classes[jnp.where(has_byte, begin + ranks, 0)].astype(jnp.int32)
            return jnp.where(has_byte, self.table[states, classes], states), None

        begun = jnp.full(ranks.shape, state)
        if not self.counts:
            return begun
        return jax.lax.scan(one_byte, begun, (jnp.asarray(begins), jnp.asarray(counts)))[0]

    def _check_goes_on(self, automaton: Automaton, first: Sequence[int], single: Sequence[bytes]) -> None:
        """Checks that after allowed tokens some token is allowed.

        A live state accepts, or some byte leads on to another. So it is enough that every byte which leads
        anywhere is a token, as with a vocabulary that spells unknown text in bytes. Without them every state
        that tokens lead to is walked.

        Raises:
            ValueError: There is a state without.
        """
        leads = (automaton.table[automaton.reached_from(first)] != automaton_lib.DEAD).any(axis=0)
        tokens_of_class = np.zeros(len(leads), bool)
        tokens_of_class[[automaton.class_of_byte[data[0]] for data in single]] = True
        if np.all(tokens_of_class | ~leads):
            return
        walked = jax.jit(lambda grammar, state: grammar._walked(state))
        by_length = np.asarray(self.sampled)[np.argsort(np.asarray(self.ranks))]
        seen, stack = set(first), list(first)
        while stack:
            state = stack.pop()
            reached = np.unique(np.asarray(walked(self, jnp.int32(state)))[by_length])
            reached = reached[reached != automaton_lib.DEAD]
            if not len(reached) and not automaton.accepting[state]:
                bytes_here = np.flatnonzero(automaton.table[state][automaton.class_of_byte])
                raise ValueError(
                    'Expected a vocabulary of which some token can follow everywhere, got a state that only '
                    f'bytes={bytes_here.tolist()} lead on from, with which no token goes on. Take a '
                    'tokenizer with a token for every byte, or another schema.'
                )
            stack.extend(found for found in reached.tolist() if found not in seen)
            seen.update(reached.tolist())
