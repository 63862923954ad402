"""Texts of an automaton, walked by the tokens' bytes."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from models.constraints.constraint import STATIC, Constraint
from models.grammars import automaton as automaton_lib
from models.grammars.automaton import Automaton


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Grammar(Constraint):
    """The tokens whose bytes an automaton accepts as a continuation, and stop tokens where a text may end.

    Where the automaton leaves no choice of bytes, only one spelling of them is allowed, and only one stop
    token.

    Tokens are ranked by length, the longest first, and their bytes are stored position by position: those at
    position l belong to the first `counts[l]` ranks. So a walk of all tokens gathers once for each byte of
    the vocabulary, and a walk of some tokens finds the bytes of a rank by an offset.

    Attributes:
        table: `[states, classes]` int32, `Automaton.table`.
        accepting: `[states]` bool.
        classes: `[bytes of the vocabulary]` uint8, the byte class of each, position by position.
        ranks: `[V]` int32.
        sampled: `[V]` bool, the tokens that may be sampled and have bytes.
        ends: `[V]` bool, the stop tokens.
        forced_tokens: `[states]` int32, the only token that is allowed, -1 where there is a choice.
        first: `[E]` int32, the automaton's state at the beginning of each example; examples after the E-th
            begin in the last of them.
        counts: For every l, the number of tokens that are longer than l.
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
            automaton: Automaton over the whole example's bytes.
            token_bytes: `Tokenizer.token_bytes`.
            tokens: `[V]` bool, the tokens that may be sampled, `Tokenizer.released_token_mask`; V may be more
                than there are pieces.
            stop_tokens: Ids that end an example.
            forced_tokens: `[states]` int32, of `models.grammars.forced.forced_table`; None to force nothing.
            first: States of the automaton where examples begin, at least one.

        Raises:
            ValueError: The automaton accepts nothing, there is no stop token, or allowed tokens can lead to
                a state in which no token is allowed.
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
        grammar = cls(
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
        grammar._check_goes_on(automaton, first, [data for data in longest if len(data) == 1])
        return grammar

    def start(self, example: jax.Array | int = 0) -> jax.Array:
        """The automaton's state, an int32 scalar, of `first`."""
        return jnp.take(self.first, example, mode='clip')

    def of_cells(self, cells: Sequence[int]) -> 'Grammar':
        """The same constraint for a stream whose examples begin in these places of `first`."""
        return dataclasses.replace(self, first=self.first[np.asarray(cells, np.int32)])

    def allowed(self, state: jax.Array) -> jax.Array:
        """The forced token; else tokens whose bytes lead on, and stop tokens where a text may end."""
        allowed = jnp.where(
            self.ends, self._may_end(state), self.sampled & (self._walked(state) > 0)[self.ranks]
        )
        return self._or_forced(state, jnp.arange(len(allowed)), allowed)

    def allowed_among(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        """`allowed` at some tokens, by walking these alone."""
        is_live = self._walked_by(state, self.ranks[tokens]) > 0
        allowed = jnp.where(self.ends[tokens], self._may_end(state), self.sampled[tokens] & is_live)
        return self._or_forced(state, tokens, allowed)

    def forced(self, state: jax.Array) -> jax.Array:
        """The state's entry of `forced_tokens`."""
        return self.forced_tokens[state]

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        """The state after a token's bytes; a stop token has none."""
        return self._walked_by(state, self.ranks[token])

    def _or_forced(self, state: jax.Array, tokens: jax.Array, allowed: jax.Array) -> jax.Array:
        forced = self.forced(state)
        return jnp.where(forced < 0, allowed, tokens == forced)

    def _may_end(self, state: jax.Array) -> jax.Array:
        # Allowed tokens never lead to the dead state. A stream from elsewhere may, and has to end there.
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
        """Checks that after allowed tokens some token is always allowed.

        A live state accepts, or some byte leads to another live state. So it is enough that every byte that
        leads anywhere is a token, as in vocabularies that spell unknown text in bytes. Otherwise every state
        that tokens lead to is visited.

        Raises:
            ValueError: A state allows no token.
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
            stack.extend(target for target in reached.tolist() if target not in seen)
            seen.update(reached.tolist())
