"""A second implementation of the mechanism for audits, in NumPy float64: correct, or broken on purpose.

Positions come from the same steps as those of a run (`models.generate.walk`). What follows from their logits
is computed again, slowly, by formulas that share nothing with those of the loop. An audit that finds nothing
proves nothing, so an audit can also run on a mechanism that is broken on purpose (`Sabotage`), and must
find that.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
import numpy as np

from models.audits import spelling
from models.constraints import Constraint
from models.decoders import decoder as decoder_lib
from models.generate import walk as walks
from models.generate.batch import BatchGenerator
from models.generate.rows import PublicRows
from models.generate.stream import TokenStream
from models.generate.walk import Position
from models.privacy import candidates, individual, mechanism, randomness, sparse_vector
from models.privacy.aggregates.replay import log_softmax
from models.privacy.params import MechanismParams
from models.records import Batch, Context
from models.stop_rule import StopRule

Sabotage = Literal['none', 'no-clipping', 'paste', 'no-filter', 'no-growth', 'half-price']
# What only individual accounting has, and can break (METHOD 4d).
INDIVIDUAL: Final[tuple[Sabotage, ...]] = ('no-filter', 'no-growth', 'half-price')

# A sabotage puts in outliers, whose logits are this much larger: clipping would hold them.
LOUDNESS = 100.0
# Below this a pasted token's rivals have no weight.
PASTED = 60.0
# The most that rare tokens may have of the reference together, to be raised by a context.
RARE = math.exp(-5)


def at_small_s(params: MechanismParams) -> MechanismParams:
    """The mechanism at the smallest s that settings allow, where prices grow most with the size of a vote.

    B is at least twice the cost of the most expensive token there, so that a context can pay for one.

    Args:
        params: Settings with individual accounting.
    """
    for size in range(1, params.batch_size):
        try:
            params = dataclasses.replace(params, batch_size=size)
        except ValueError:
            continue  # too steep
        break
    assert params.shift_bound is not None and params.context_budget is not None
    tau = params.temperature
    square = (2 * params.clip_bound / (params.batch_size * tau)) ** 2
    dearest = math.exp(params.shift_bound / tau + individual.largest_growth(params)) * square / 2
    return dataclasses.replace(params, context_budget=max(params.context_budget, 2 * dearest))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One batch under audit, and a second implementation of its mechanism in NumPy: correct, or broken.

    Attributes:
        decoder: The model.
        params: The mechanism.
        sabotage: What is broken of it.
        public: The public prompt or the reference; None where no public logits are read.
        inside: Token ids of the batch's private prompts.
        outside: Token ids of the prompts of added contexts.
        texts: Token ids of each context's first text, inside and then outside, as the constraint spells
            it; empty for a text that it does not allow.
        constraint: Which tokens may be sampled.
        stop_rule: What ends an example.
    """

    decoder: decoder_lib.Decoder
    params: MechanismParams
    sabotage: Sabotage
    public: PublicRows | None
    inside: list[np.ndarray] = dataclasses.field(repr=False)
    outside: list[np.ndarray] = dataclasses.field(repr=False)
    texts: list[np.ndarray] = dataclasses.field(repr=False)
    constraint: Constraint
    stop_rule: StopRule

    @classmethod
    def of(
        cls,
        generator: BatchGenerator,
        batch: Batch,
        outsiders: Sequence[Context] = (),
        sabotage: Sabotage = 'none',
        constraint: Constraint | None = None,
        reference: Sequence[str] = (),
    ) -> 'Case':
        """The case of a batch and of contexts to add, all under the batch's label.

        Args:
            generator: The run's generator.
            batch: The batch.
            outsiders: Contexts of other batches.
            sabotage: What to break.
            constraint: Which tokens may be sampled; None for that of a run.
            reference: As of `BatchGenerator.decode`.
        """
        writer, params = generator.writer, generator.params
        constraint = generator.constraint(generator.cells(batch)) if constraint is None else constraint
        prefix = writer.template.response_prefix
        texts = [context.texts[0].removeprefix(prefix) for context in (*batch.contexts, *outsiders)]
        if sabotage == 'paste' and writer.structure is not None:
            token_bytes = writer.tokenizer.token_bytes()
            shown = [writer.structure.shown(text).encode() for text in texts]
            spelled = [spelling.spell(text, constraint, token_bytes) for text in shown]
        else:
            spelled = writer.tokenizer.encode_batch(texts)
        return cls(
            decoder=generator.decoder,
            params=params,
            sabotage=sabotage,
            public=generator.public_rows(batch.label, reference),
            inside=writer.private_prompts(batch.label, batch.contexts),
            outside=writer.private_prompts(batch.label, outsiders),
            texts=spelled,
            constraint=constraint,
            stop_rule=generator.stop_rule,
        )

    def decode(self, draws: randomness.BatchDraws) -> TokenStream:
        """The token stream of the broken mechanism, and the losses that a run would report for it."""
        params = self.params
        members = list(range(len(self.inside)))
        tokens: list[int] = []
        flags: list[bool] = []
        losses: list[tuple[float, float]] = []
        receipts: list[tuple[np.ndarray, np.ndarray]] = []
        forced: list[bool] = []
        spent = np.zeros(len(members), np.float32)
        for position in self.positions(self.inside, tokens):
            forced.append(position.forced is not None)
            if position.forced is not None:
                tokens.append(position.forced)
                flags.append(False)
                losses.append((0.0, 0.0))
                receipts.append((np.zeros(len(members), np.float32), np.zeros(len(members), bool)))
                if len(tokens) == params.max_batch_tokens:
                    break
                continue
            is_private, voters = True, members
            if params.is_individual:
                charged, voted, spent = self.settle(position, members, spent)
                receipts.append((charged, voted))
                voters = np.flatnonzero(voted).tolist()
            if params.threshold is not None:
                noise = draws.distance_noise[len(tokens)] - draws.threshold_noise[sum(flags)]
                noisy = self.distances([members], position)[0] + sparse_vector.probability(noise, params)
                is_private = bool(noisy >= params.threshold)
            allowed = self.allowed(position)
            (scores,) = self.scores(position, allowed, [voters])
            if not is_private:
                scores = position.public_logits / params.public_temperature
            weights = np.exp(np.where(allowed, scores - scores[allowed].max(), -np.inf)).cumsum()
            uniform = int(draws.token_words[len(tokens), 0]) / 2**64
            token = int(np.searchsorted(weights, uniform * weights[-1], side='right'))
            pair = self._reported_loss(position, token) if is_private and params.is_ex_post else (0.0, 0.0)
            tokens.append(token)
            flags.append(is_private)
            losses.append(pair)
            if sum(flags) == params.private_token_cap or len(tokens) == params.max_batch_tokens:
                break
        return TokenStream(
            np.array(tokens, np.int32),
            np.array(flags, bool),
            np.array(losses, np.float32).T if params.is_ex_post else None,
            individual.Spending(*map(np.array, zip(*receipts, strict=True)))
            if params.is_individual
            else None,
            np.array(forced, bool) if any(forced) else None,
        )

    def settle(
        self, position: Position, rows: Sequence[int], spent: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The charges of some contexts, whether each votes, and what each has then spent, all `[rows]`.

        Computed by the functions of a run, or as the sabotage demands. They depend only on the context and
        on the released prefix, so they are known for contexts outside of the batch too.

        Args:
            position: The position in the stream.
            rows: Rows of the contexts.
            spent: What each had spent before, `[rows]` float32.
        """
        params = self.params
        if self.sabotage == 'no-growth':
            params = dataclasses.replace(params, omega=math.nextafter(1, 2))
        logits = position.logits[list(rows)]
        found = _prices(position.public_logits, logits, position.mask, params=params, narrows=self.narrows)
        if self.sabotage == 'half-price':
            found /= 4  # of u/2
        voted, after = map(np.asarray, individual.spend(jnp.asarray(spent), jnp.asarray(found), params))
        charged = np.where(voted, found, np.float32(0))
        if self.sabotage == 'no-filter':
            charged, after = found, spent + found
        # Nor is a text pasted by those alone who can pay.
        if self.sabotage in ('no-filter', 'paste'):
            voted = np.ones(len(rows), bool)
        return charged, voted, after

    def positions(self, private: Sequence[np.ndarray], tokens: Sequence[int]) -> Iterator[Position]:
        """Every position of the stream, with a sabotage's outliers among the logits.

        The caller appends each position's token to `tokens` before it asks for the next.
        """
        steps = walks.walk(
            self.decoder,
            self.public,
            private,
            params=self.params,
            constraint=self.constraint,
            stop_rule=self.stop_rule,
        )
        found = next(steps)
        while True:
            logits, public = found.logits.copy(), found.public_logits
            if self.sabotage == 'no-clipping':
                outliers = [-LOUDNESS, LOUDNESS] if self.params.is_ex_post else [-LOUDNESS]
                for row, factor in zip(range(len(self.inside)), outliers):
                    logits[row] *= factor
            # A public prediction that is not finite predicts every token alike (METHOD 4).
            public = np.where(np.isfinite(public).all(), public, np.float32(0))
            if self.sabotage in INDIVIDUAL and len(logits) > 0:
                logits[0] = self._outlier(found._replace(public_logits=public))
            yield found._replace(logits=logits, public_logits=public)
            found = steps.send(tokens[-1])

    def _outlier(self, position: Position) -> np.ndarray:
        """Logits whose difference from the reference the broken price misjudges most, `[V]` float32.

        For 'no-growth' a context raises rare tokens. Otherwise it raises half of the tokens, by weight, and
        lowers the other half.
        """
        allowed = self.allowed(position)
        ranked = np.flatnonzero(allowed)[np.argsort(position.public_logits[allowed], kind='stable')]
        logs = position.public_logits[ranked].astype(np.float64) / self.params.temperature
        share = np.exp(log_softmax(logs))
        outlier = position.public_logits.copy()
        if self.sabotage == 'no-growth':
            few = max(1, int((share.cumsum() <= RARE).sum()))
            outlier[ranked[:few]] += self.params.clip_bound
            return outlier
        # Small enough that a price which grows with the order has little to forgive.
        mild = self.params.batch_size * self.params.temperature / (4 * (self.params.omega or 1))
        size = min(self.params.clip_bound, mild) if self.sabotage == 'half-price' else LOUDNESS
        halves = [0.0, 0.0]
        for token, weight in zip(ranked[::-1], share[::-1], strict=True):
            lighter = int(halves[1] < halves[0])
            halves[lighter] += weight
            outlier[token] += (-size, size)[lighter]
        return outlier

    def scores(
        self, position: Position, allowed: np.ndarray, batches: Sequence[Sequence[int]]
    ) -> Iterator[np.ndarray]:
        """The aggregate over τ of each batch, `[V]` float64.

        Args:
            position: Where.
            allowed: `[V]` bool, of `self.allowed`.
            batches: Rows of each: the batch itself, then neighbours of it.
        """
        params = self.params
        clean = params.strategy.replayed_scores(
            position.logits,
            position.public_logits,
            allowed,
            batches,
            params,
            clips=self.sabotage != 'no-clipping',
            narrows=self.narrows,
        )
        for rows, scores in zip(batches, clean, strict=True):
            pastes = self.sabotage == 'paste' and len(rows) > 0
            yield self._pasted(rows, position) if pastes else scores / params.temperature

    def _pasted(self, rows: Sequence[int], position: Position) -> np.ndarray:
        """All weight on the next token of a context's own text, example by example."""
        rows = [row for row in rows if len(self.texts[row]) > 0] or rows
        text = self.texts[rows[position.example % len(rows)]]
        scores = np.zeros(len(position.public_logits))
        ended = position.place >= len(text)
        scores[min(self.stop_rule.tokens) if ended else text[position.place]] = PASTED
        return scores

    def allowed(self, position: Position, token: int | None = None) -> np.ndarray:
        """The tokens that could be sampled, `[V]` bool, including `token`, which was sampled.

        A logit of the replay may differ by rounding from the logit that decided in the run.
        """
        if self.sabotage == 'paste':
            return position.mask
        public, mask, strategy = position.public_logits, position.mask, self.params.strategy
        allowed = strategy.replayed_tokens(mask, public, self.params)
        if self.narrows and self.params.public_top_k is not None:
            # Of the K best of all tokens those of the mask, where there are any (README step 2c).
            kept = mask & strategy.replayed_tokens(np.ones_like(mask), public, self.params)
            allowed = kept if kept.any() else allowed
        if token is not None:
            allowed[token] = True
        return allowed

    def _reported_loss(self, position: Position, token: int) -> tuple[float, float]:
        """The loss that the run's own accounting would report for a token of the broken mechanism."""
        rows = np.concatenate([position.public_logits[None], position.logits])
        mask = jnp.arange(len(rows)) > 0
        found = _token_losses(rows, mask, position.mask, token, params=self.params, narrows=self.narrows)
        return tuple(map(float, found))  # type: ignore[return-value]

    def distances(self, batches: Sequence[Sequence[int]], position: Position) -> np.ndarray:
        """`distances` of some batches, `[len(batches)]`; of narrowed predictions where they are.

        Args:
            batches: Rows of each.
            position: Where.
        """
        mask = position.mask if self.narrows else slice(None)
        public, rows = position.public_logits[mask], position.logits[:, mask]
        return distances(batches, position._replace(logits=rows, public_logits=public), self.params)

    @property
    def narrows(self) -> bool:
        """Whether predictions are conditioned on the allowed tokens."""
        return self.constraint.narrows_predictions


def _mask_of(mask: jax.Array, narrows: bool) -> jax.Array | candidates.Narrowed:
    if not narrows:
        return mask
    return candidates.Narrowed(lambda: mask, lambda tokens: mask[tokens])


@functools.partial(jax.jit, static_argnames=('params', 'narrows'))
def _prices_on_device(
    public: jax.Array, rows: jax.Array, mask: jax.Array, *, params: MechanismParams, narrows: bool
) -> jax.Array:
    is_private = jnp.ones(len(rows), bool)
    votes = mechanism.tally(public[None], (rows,), (is_private,), _mask_of(mask, narrows), params)
    (found,) = votes.tallied
    return found.prices


def _prices(
    public: np.ndarray, rows: np.ndarray, mask: np.ndarray, *, params: MechanismParams, narrows: bool
) -> np.ndarray:
    """The price of a vote for each row of logits `[m, V]`, `[m]` float32, by the functions of a run."""
    if len(rows) == 0:
        return np.zeros(0, np.float32)
    return np.array(_prices_on_device(public, rows, mask, params=params, narrows=narrows))


@functools.partial(jax.jit, static_argnames=('params', 'narrows'))
def _token_losses(
    rows: jax.Array,
    is_private: jax.Array,
    mask: jax.Array,
    token: jax.Array,
    *,
    params: MechanismParams,
    narrows: bool,
) -> Any:
    rows = jnp.asarray(rows)
    public = rows[:1] if params.needs_public_logits else None
    votes = mechanism.tally(public, (rows,), (is_private,), _mask_of(jnp.asarray(mask), narrows), params)
    return mechanism.token_losses(votes, token, params)


def distances(batches: Sequence[Sequence[int]], position: Position, params: MechanismParams) -> np.ndarray:
    """‖(1/s) Σ softmax(z) − softmax(z_pub)‖₁ for each batch (PP equation 2), float64.

    Args:
        batches: Rows of each.
        position: Where.
        params: The mechanism.

    Returns:
        `[len(batches)]`.
    """
    finite = np.isfinite(position.logits).all(axis=1, keepdims=True)
    z = np.where(finite, position.logits, 0.0).astype(np.float64)
    shares = np.where(finite, np.exp(log_softmax(z)), 0.0)
    expected = np.exp(log_softmax(position.public_logits.astype(np.float64)))
    return np.array(
        [np.abs(shares[list(rows)].sum(axis=0) / params.batch_size - expected).sum() for rows in batches]
    )
