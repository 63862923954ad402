"""Component-wise medians of clipped logits, and how far one unit can move them (CL 4.2; METHOD 5).

CL = the clustering paper. A batch of n contexts holds, for each token, n sorted votes
v[0] ≤ … ≤ v[n−1] in [−c, c]. One unit moves the median by half a place (an added or a
removed context) or by a whole place (a replaced one):

    places        even n, h = n/2            odd n, h = (n−1)/2
    middle        (v[h−1] + v[h])/2          v[h]
    half below    v[h−1]                     (v[h−1] + v[h])/2
    one below     (v[h−2] + v[h−1])/2        v[h−1]

and upwards alike. Adding w makes the even median clamp(w, v[h−1], v[h]), and the odd
one (v[h] + clamp(w, v[h−1], v[h+1]))/2; removals end in the same range. CL takes a
whole place for odd n, where the true range is half of it.

The vocabulary is large and most votes lie at the floor −c. A column whose upper middle
lies there has all its medians there: counting finds it. Only the others are selected
from, by bisection over the upper and then the lower 16 bits of a float32, in blocks of
columns: exact, without sorting, at a cost that follows the number of such columns.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from etils import epy

from models.privacy import ex_post
from models.privacy.aggregates import aggregate, clipping, replay
from models.privacy.facts import Facts, RhoStage, StatementWords
from models.privacy.sampling import MAX_CLIP_OVER_TEMPERATURE

if typing.TYPE_CHECKING:
    from models.privacy.candidates import Candidates
    from models.privacy.params import Change, MechanismParams

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp
    import numpy as np

# Columns that are selected from at once: their votes stay in a core's cache.
BLOCK = 256
# Below this many contexts the range is the whole clip range (METHOD 5).
FEWEST = 3


class Medians(NamedTuple):
    """Medians of one step's votes.

    Attributes:
        middle: `[V]` the aggregate.
        lowest: `[V]` the lowest median that a change of one unit can cause.
        highest: `[V]` the highest.
    """

    middle: jax.Array
    lowest: jax.Array
    highest: jax.Array


@typing.final
class Median(aggregate.Aggregate):
    """The component-wise median of clipped logits: its loss is known after the run only (METHOD 5)."""

    name: ClassVar[str] = 'median'
    summary: ClassVar[str] = 'the component-wise median of the private logits, clipped; no price in advance'
    default_clip_bound: ClassVar[float] = 6.0  # CL appendix E.2
    default_temperature: ClassVar[float] = 1.5  # CL section 5
    default_public_top_k: ClassVar[int | None] = None
    # An empty batch predicts what the public prompt does (METHOD 2).
    reads_public_logits: ClassVar[bool] = True
    takes_reference: ClassVar[bool] = False
    has_price_in_advance: ClassVar[bool] = False
    largest_clip_over_temperature: ClassVar[float] = MAX_CLIP_OVER_TEMPERATURE

    def tally(
        self,
        logits: tuple[jax.Array, ...],
        is_private: tuple[jax.Array, ...],
        candidates: Candidates,
        params: MechanismParams,
    ) -> Medians:
        """The medians, and how far one unit can move them."""
        return medians(
            logits,
            is_private,
            candidates.public_logits,
            params.clip_bound,
            params.change,
            candidates.counted,
        )

    def combine(self, tallied: Any, candidates: Candidates, params: MechanismParams) -> jax.Array:
        """The medians, `[C]` (CL equation 3). An empty batch gives the clipped public logits."""
        return tallied.middle

    def allowed(self, mask: jax.Array, public_logits: jax.Array, params: MechanismParams) -> jax.Array:
        """The K best tokens of the mask, by the public logits."""
        return aggregate.top_k(mask, public_logits, params.public_top_k)

    def sensitivity(self, params: MechanismParams) -> float:
        """None is known in advance.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "Expected an aggregate of bounded sensitivity, got aggregate='median'. "
            'Its loss is known after the run only: see models/privacy/ex_post.py.'
        )

    def event(self, params: MechanismParams) -> None:
        """None: what a token costs depends on the records."""

    def facts(self, params: MechanismParams) -> Facts:
        """What a report states of a loss that is known afterwards only (CL 4.2; METHOD 5)."""
        places = 'two places' if params.change.value > 1 else 'one place'
        return Facts(
            statement='ex-post',
            statement_words=StatementWords(
                guarantee=(
                    'The text of this corpus has no (ε, δ) guarantee. Its privacy loss is data-dependent and '
                    'ex-post: an ε that depends on the records and on the text that came out, and that '
                    'bounds how much more or less likely this very text would have been with one {one} '
                    'added or removed. It became known after the run and is not published: it is computed '
                    'from the private records. The curator holds it.'
                ),
                accounting=(
                    'Data-dependent ex-post accounting (Clustering improves differentially private '
                    'inference, Definition 2 and Theorem 2): the loss of a token follows from the medians '
                    'of its batch and from how far one context could have moved them. The losses of a '
                    "batch's tokens add up, and the run's loss is that of its largest batch, since batches "
                    'hold disjoint contexts. The curator computes it after the run; nothing of it is in '
                    'this report. Noisy counts, where there are any, are priced in advance in '
                    'zero-concentrated differential privacy (zCDP).'
                ),
                limits=(
                    'It promises nothing in advance: a second run with the same settings, or the same run on '
                    'other records, may lose more.',
                    'It is about one {one}, and says nothing of several together.',
                ),
            ),
            stages=(
                RhoStage(
                    name='Private tokens',
                    rho=None,
                    explanation=(
                        'Sampling private tokens from the component-wise medians of the clipped private '
                        'logits of a batch. The cost depends on the records and the text; the curator holds '
                        'it.'
                    ),
                    formula='ε = max(−Σ log α, Σ log β)',
                    numbers='',
                ),
            ),
            why_no_sensitivity=(
                'How far one unit moves a median depends on the other records. That is why the loss is known '
                'afterwards only.'
            ),
            on_replacement='losses are computed for that',
            assumptions_enforced=(
                'Logits are clipped before their medians are taken; a batch too small to have neighbours on '
                'both sides of its median counts with the whole clip range, and an empty one predicts what '
                'the public prompt does.',
                f'The range of the medians that one change can cause ({places} from the middle) is computed '
                'exactly, for every private token.',
                *aggregate.candidate_facts(params),
            ),
            assumptions_of_curator=(
                'The data-dependent loss, of the run, of a batch or of a token, is told to nobody who may '
                'not see the records.',
            ),
            symbols=(
                'log α and log β the most that one context can have lowered or raised the odds of a token',
            ),
            sources=('CL: Clustering improves differentially private inference, sections 4 and 5.',),
        )

    def token_losses(
        self, tallied: Any, allowed: jax.Array, index: jax.Array, params: MechanismParams
    ) -> tuple[jax.Array, jax.Array]:
        """−log α and log β of the token (CL appendix B; METHOD 5)."""
        return ex_post.token_losses(tallied, allowed, index, params.temperature)

    def replayed_scores(
        self,
        logits: np.ndarray,
        public_logits: np.ndarray,
        allowed: np.ndarray,
        batches: Sequence[Sequence[int]],
        params: MechanismParams,
        *,
        clips: bool = True,
        narrows: bool = False,
    ) -> Iterator[np.ndarray]:
        """np.median over the rows; of none, the public prompt's vote; see `Aggregate.replayed_scores`."""
        counted = replay.counted(allowed, params, narrows=narrows)
        votes = replay.clipped(logits, params.clip_bound, counted, clips=clips)
        lowest = votes.min(axis=0, initial=np.inf)
        # Only here may the medians of the batch and its neighbours be above the lowest vote: with
        # one lowest vote of the batch gone, the others are still more than half of one row more.
        inside = (votes[list(batches[0])] == lowest).sum(axis=0)
        open_ = 2 * (inside - 1) <= len(batches[0]) + 1
        for rows in batches:
            if not rows:
                yield replay.clipped(public_logits[None], params.clip_bound, counted, clips=clips)[0]
                continue
            middle = lowest.copy()
            middle[open_] = np.median(votes[list(rows)][:, open_], axis=0)
            yield middle

    def replayed_tokens(
        self, mask: np.ndarray, public_logits: np.ndarray, params: MechanismParams
    ) -> np.ndarray:
        """See `Aggregate.replayed_tokens`."""
        return replay.top_k(mask, public_logits, params)


def medians(
    logits: tuple[jax.Array, ...],
    is_private: tuple[jax.Array, ...],
    public_logits: jax.Array,
    clip_bound: float,
    change: Change,
    counted: jax.Array | None = None,
) -> Medians:
    """Medians of clipped logits over the private rows of all micro-batches (CL equation 3).

    Formal guarantee: for every batch that one change of one unit makes of this one,
    its medians lie in [`lowest`, `highest`], component by component. A batch without
    contexts has the clipped public logits for its medians (METHOD 2).

    Args:
        logits: `[m, V]` raw logits for every micro-batch.
        is_private: `[m]` bool for every micro-batch.
        public_logits: `[V]`.
        clip_bound: c.
        change: What one unit does to a batch.
        counted: `[V]` bool, the columns that a row is centred over; None for all.
    """
    vocab = public_logits.shape[0]
    parts = [
        (z, *clipping.row_tops(z, counted), mask[:, None]) for z, mask in zip(logits, is_private, strict=True)
    ]
    rows = jnp.concatenate(is_private).sum()
    # Counted in float32, exact to 2^24: the sum over rows is faster than that of integers.
    above = sum(
        jnp.where(mask & (clipping.clip_below(z, top, finite, clip_bound) > -clip_bound), 1.0, 0.0).sum(
            axis=0
        )
        for z, top, finite, mask in parts
    )
    # The highest place that any median reads is n//2 + 1; it lies at the floor unless
    # n − 1 − n//2 votes lie above.
    undecided = above >= jnp.maximum(1, rows - 1 - rows // 2)
    columns = jnp.nonzero(undecided, size=vocab + BLOCK, fill_value=vocab)[0]
    blocks = -(-undecided.sum() // BLOCK)

    def select(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        block, found = carry
        chosen = jax.lax.dynamic_slice(columns, (block * BLOCK,), (BLOCK,))
        held = [
            jnp.where(
                mask,
                clipping.clip_below(jnp.take(z, chosen, axis=1, mode='clip'), top, finite, clip_bound),
                jnp.inf,
            )
            for z, top, finite, mask in parts
        ]
        here = jnp.stack(_medians_of_block(_as_ordered(jnp.concatenate(held)), rows, change))
        return block + 1, jax.lax.dynamic_update_slice(found, here, (0, block * BLOCK))

    # Side by side in the order of `columns`; one gather puts them into their places.
    found = jnp.zeros((len(Medians._fields), vocab + BLOCK), jnp.float32)
    _, found = jax.lax.while_loop(lambda carry: carry[0] < blocks, select, (jnp.int32(0), found))
    spread = jnp.take(found, jnp.cumsum(undecided) - 1, axis=1, mode='clip')
    middle, lowest, highest = jnp.where(undecided, spread, -clip_bound)
    few = rows < FEWEST
    return Medians(
        jnp.where(rows == 0, clipping.clip_logits(public_logits, clip_bound, counted), middle),
        jnp.where(few, -clip_bound, lowest),
        jnp.where(few, clip_bound, highest),
    )


def _medians_of_block(ordered: jax.Array, rows: jax.Array, change: Change) -> Medians:
    """Medians of `[N, B]` votes as ordered integers, of which `rows` in each column are finite, the others ∞.

    With fewer than `FEWEST` rows only the middle means something.
    """
    h = rows // 2
    # Places h − 2 to h + 1 hold all that any median reads.
    middle, below = _select(ordered, h)
    up_to = (ordered <= middle).sum(axis=0)
    least, most = jnp.iinfo(jnp.int32).min, jnp.iinfo(jnp.int32).max
    higher = jnp.where(ordered > middle, ordered, most).min(axis=0)
    lower = jnp.where(ordered < middle, ordered, least).max(axis=0)
    previous = jnp.where(below < h, middle, lower)
    # Strictly below v[h−1], should v[h−2] differ from it.
    below_previous = (ordered < previous).sum(axis=0)
    lowest = jnp.where(ordered < previous, ordered, least).max(axis=0)

    at_h, before = _from_ordered(middle), _from_ordered(previous)
    after = _from_ordered(jnp.where(up_to > h + 1, middle, higher))
    before_that = _from_ordered(jnp.where(below_previous < h - 1, previous, lowest))
    even = rows % 2 == 0
    # From low to high in steps of half a place; the middle is the third.
    if_even = (
        (before_that + before) / 2,
        before,
        (before + at_h) / 2,
        at_h,
        (at_h + after) / 2,
    )
    if_odd = (before, (before + at_h) / 2, at_h, (at_h + after) / 2, after)
    ladder = [jnp.where(even, a, b) for a, b in zip(if_even, if_odd, strict=True)]
    steps = change.value
    return Medians(ladder[2], ladder[2 - steps], ladder[2 + steps])


def _select(ordered: jax.Array, place: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The value at a place of each sorted column: its upper 16 bits, then its lower ones among their like.

    Twice as many int16 as int32 go through a core at once, and there are as many passes.

    Args:
        ordered: `[N, B]` int32.
        place: From 0, int32 scalar below N.

    Returns:
        `[B]` the value, and `[B]` int32 how many are less.
    """
    upper = (ordered >> 16).astype(jnp.int16)
    first, less = _bisect(upper, jnp.broadcast_to(place, ordered.shape[1:]))
    lower = ((ordered & 0xFFFF) - 2**15).astype(jnp.int16)
    # The others lie below, and are left out of the place, or above.
    among = jnp.where(upper == first, lower, jnp.int16(2**15 - 1))
    second, less_among = _bisect(among, place - less)
    return (first.astype(jnp.int32) << 16) + (second.astype(jnp.int32) + 2**15), less + less_among


def _bisect(keys: jax.Array, places: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The key at `places[b]` of each sorted column of `[N, B]` int16, and how many are less, int32."""
    # A count of rows fits into int16 but for the largest batches.
    counter = jnp.int16 if keys.shape[0] < 2**15 else jnp.int32
    places = places.astype(counter)

    def halve(_: int, bounds: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        low, high, less = bounds
        # Halfway without overflow: low + high passes the range of int16.
        middle = (low & high) + ((low ^ high) >> 1)
        up_to = (keys <= middle).astype(counter).sum(axis=0, dtype=counter)
        enough = up_to > places
        return (
            jnp.where(enough, low, middle + 1),
            jnp.where(enough, middle, high),
            jnp.where(enough, less, up_to),
        )

    start = jnp.full_like(places, -(2**15), jnp.int16), jnp.full_like(places, 2**15 - 1, jnp.int16)
    low, _, less = jax.lax.fori_loop(0, 16, halve, (*start, jnp.zeros_like(places)))
    return low, less.astype(jnp.int32)


def _as_ordered(values: jax.Array) -> jax.Array:
    """Integers in the order of the floats: a negative float's bits, but the sign, are turned over."""
    bits = jax.lax.bitcast_convert_type(values + 0.0, jnp.int32)  # + 0.0 makes −0 into 0
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)


def _from_ordered(ordered: jax.Array) -> jax.Array:
    """Inverse of `_as_ordered`."""
    bits = jnp.where(ordered < 0, ordered ^ jnp.int32(0x7FFFFFFF), ordered)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
