"""A grammar's masks, computed once for each state of its automaton, in place of a walk at every token."""

import dataclasses
import typing
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models.constraints.constraint import STATIC
from models.constraints.grammar import Grammar
from models.grammars.automaton import DEAD

# Bytes of all masks on the device: 2,048 of 262,144 tokens.
MOST_BYTES = 2**26
# States whose masks are computed, each in some two milliseconds.
MOST_STATES = 8192
# The bits of a byte.
_PLANES = 1 << np.arange(7, -1, -1).astype(np.uint8)


class _Level(NamedTuple):
    """The nodes of a trie at one depth, in the order of their parents."""

    begin: int  # the number of the first of them
    classes: np.ndarray  # [n] the byte class that leads to each
    first: np.ndarray  # [parents] its first child's place in this level
    children: np.ndarray  # [parents] number of its children


class _Trie(NamedTuple):
    """The vocabulary's tokens as byte classes, of which many tokens share their first ones, or all."""

    levels: tuple[_Level, ...]
    nodes: int  # of all levels, with the root, which is node 0
    ends: np.ndarray  # [E] the nodes at which tokens end, ascending
    end_of_rank: np.ndarray  # [V] the place in `ends` of each token; 0 for tokens without bytes


@typing.final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tabulated(Grammar):
    """The same constraint as a `Grammar`, whose masks are read from a table (Willard and Louf 2023).

    A walk of the whole vocabulary reads millions of bytes for every row and token. But a mask is a function
    of the automaton's state, and states that are far from any choice of structure, such as those inside of a
    long string, have the same. So the masks of all states are computed when a run starts, and different ones
    are kept, a bit for each token. A state without a kept mask is walked as before, for its rows alone.

    Attributes:
        masks: `[K, ceil(V / 8)]` uint8; bit b of byte j, the highest first, is token `b ceil(V / 8) + j`.
        mask_of_state: `[states]` int32, the place of a state's mask; -1 where it is walked. 0 in states that
            force a token, which read none.
        walks: True if there are states that are walked.
    """

    masks: jax.Array
    mask_of_state: jax.Array
    walks: bool = dataclasses.field(metadata=STATIC)

    @classmethod
    def of_grammar(
        cls, grammar: Grammar, *, most_states: int = MOST_STATES, most_bytes: int = MOST_BYTES
    ) -> 'Tabulated':
        """Computes the masks, on the host."""
        masks, mask_of_state = _masks(grammar, most_states, most_bytes)
        fields = {field.name: getattr(grammar, field.name) for field in dataclasses.fields(grammar)}
        return cls(
            **fields,
            masks=jnp.asarray(masks),
            mask_of_state=jnp.asarray(mask_of_state),
            walks=bool((mask_of_state < 0).any()),
        )

    def allowed(self, state: jax.Array) -> jax.Array:
        """See `Grammar.allowed`; by the table."""
        return self.allowed_rows(state[None], 1)[0]

    def allowed_rows(self, states: jax.Array, rows: int) -> jax.Array:
        """The forced token; else the tokens of the state's mask, or of a walk where it has none."""
        place, forced = self.mask_of_state[states], self.forced(states)
        size = self.masks.shape[1]
        # A forced token is one bit. So there is little work for each token of the vocabulary.
        plane, byte = jnp.divmod(forced.clip(0), size)
        packed = jnp.where(forced[:, None] < 0, self.masks[place.clip(0)], jnp.uint8(0))
        packed = packed.at[jnp.arange(rows), byte].max(
            jnp.where(forced < 0, jnp.uint8(0), jnp.asarray(_PLANES)[plane])
        )
        allowed = (packed[:, None] & _PLANES[:, None] != 0).reshape(rows, -1)[:, : len(self.ranks)]
        if not self.walks:
            return allowed

        def one(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            is_left, allowed = carry
            row = jnp.argmax(is_left)
            return is_left.at[row].set(False), allowed.at[row].set(Grammar.allowed(self, states[row]))

        return jax.lax.while_loop(lambda carry: carry[0].any(), one, (place < 0, allowed))[1]


def _masks(grammar: Grammar, most_states: int, most_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """`masks` and `mask_of_state`: the different masks of all states, in the order of the states."""
    host: Any = jax.tree.map(np.asarray, grammar)
    trie, rows = _trie(host.classes, host.counts, host.ranks), -(-len(host.ranks) // 8)
    mask_of_state = np.where(host.forced_tokens < 0, -1, 0).astype(np.int32)
    places: dict[bytes, int] = {}
    masks: list[np.ndarray] = []
    for state in np.flatnonzero(mask_of_state < 0)[:most_states].tolist():
        may_end = bool(host.accepting[state]) or state == DEAD
        live = _live(trie, host.table, state)[trie.ends]
        name = np.packbits(np.append(live, may_end)).tobytes()
        if name not in places and (len(masks) + 1) * rows <= most_bytes:
            places[name] = len(masks)
            mask = np.where(host.ends, may_end, host.sampled & live[trie.end_of_rank[host.ranks]])
            planes = np.pad(mask, (0, 8 * rows - len(mask))).reshape(8, rows)
            masks.append(np.packbits(planes, axis=0)[0])
        mask_of_state[state] = places.get(name, -1)
    # A state that forces a token reads some mask, and drops it.
    return np.stack(masks or [np.zeros(rows, np.uint8)]), mask_of_state


def _trie(classes: np.ndarray, counts: tuple[int, ...], ranks: np.ndarray) -> _Trie:
    """The trie of the tokens' byte classes, level by level."""
    # Place and number of each rank: its node's in the last level that it has reached.
    place, number = np.zeros(len(ranks), np.int64), np.zeros(len(ranks), np.int64)
    levels, begin, parents, read = list[_Level](), 1, 1, 0
    for count in counts:
        # A token's first bytes are those of its parent's, so that a node is a parent and a class.
        nodes, inverse = np.unique(place[:count] * 256 + classes[read : read + count], return_inverse=True)
        children = np.bincount(nodes // 256, minlength=parents)
        levels.append(_Level(begin, nodes % 256, np.cumsum(children) - children, children))
        place[:count], number[:count] = inverse, begin + inverse
        begin, parents, read = begin + len(nodes), len(nodes), read + count
    with_bytes = counts[0] if counts else 0
    ends, end_of_rank = np.unique(number[:with_bytes], return_inverse=True)
    if not with_bytes:
        ends = np.zeros(1, np.int64)
    return _Trie(tuple(levels), begin, ends, np.pad(end_of_rank, (0, len(ranks) - with_bytes)))


def _live(trie: _Trie, table: np.ndarray, state: int) -> np.ndarray:
    """`[nodes]` bool: whether the bytes to each node lead from a state to a live one."""
    live = np.zeros(trie.nodes, bool)
    nodes, states = np.zeros(1, np.int64), np.array([state])
    for level in trie.levels:
        children = level.children[nodes]
        ends = np.cumsum(children)
        below = np.repeat(level.first[nodes] - (ends - children), children) + np.arange(ends[-1])
        states = table[np.repeat(states, children), level.classes[below]]
        is_live = states != DEAD
        nodes, states = below[is_live], states[is_live]
        if not len(nodes):
            break
        live[level.begin + nodes] = True
    return live
