"""A mechanism once more: replayed for an audit in NumPy float64, right, or broken on purpose.

Positions come from the loop that runs decode with (`generate.walk`); what becomes of their logits
is computed again, slowly, by formulas that share nothing with those of the loop. An audit
that finds nothing proves nothing, so each can be run on a mechanism that is broken
on purpose (`Sabotage`), which it must find.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from models import generate
from models.constraints import Constraint
from models.decoders import decoder as decoder_lib
from models.privacy import accounting, ex_post, mechanism, randomness
from models.privacy.aggregates.replay import log_softmax
from models.privacy.params import MechanismParams
from models.records import Batch, Context
from models.stop_rule import StopRule

Sabotage = Literal['none', 'no-clipping', 'paste']

# A sabotage puts in outliers, whose logits are this much larger: clipping would hold them.
LOUDNESS = 100.0
# Below this a pasted token's rivals have no weight.
PASTED = 60.0


def output_bound(stream: generate.TokenStream, params: MechanismParams) -> float:
    """What an output may cost: see `leave_one_out.LeaveOneOut.bound`."""
    flags = stream.is_private
    count = len(flags)
    losses = np.zeros((2, count)) if stream.losses is None else stream.losses
    loss = ex_post.BatchLoss(
        batch_id='',
        minus_log_alpha=tuple(losses[0].tolist()),
        log_beta=tuple(losses[1].tolist()),
        places=(0,) * count,
        is_private=tuple(flags.tolist()),
    )
    if params.is_ex_post:
        return loss.epsilon(params)
    # A sample from softmax(z/τ) where no component of z moves by more than Δ.
    per_token = 2 * params.aggregate_sensitivity / params.temperature
    runs = loss.sparse_vector_runs() * accounting.sparse_vector_pure_cost(params)
    return int(flags.sum()) * per_token + runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One batch under audit, and its mechanism once more in NumPy: right, or broken.

    Attributes:
        decoder: The model.
        params: The mechanism.
        sabotage: What is broken of it.
        public: The public prompt or the reference; None where no public logits are read.
        inside: Token ids of the batch's private prompts.
        outside: Those of the contexts that are put in.
        texts: Token ids of each context's first text, inside and then outside.
        constraint: Which tokens may be sampled.
        stop_rule: What ends an example.
    """

    decoder: decoder_lib.Decoder
    params: MechanismParams
    sabotage: Sabotage
    public: generate.PublicRows | None
    inside: list[np.ndarray] = dataclasses.field(repr=False)
    outside: list[np.ndarray] = dataclasses.field(repr=False)
    texts: list[np.ndarray] = dataclasses.field(repr=False)
    constraint: Constraint
    stop_rule: StopRule

    @classmethod
    def of(
        cls,
        generator: generate.BatchGenerator,
        batch: Batch,
        outsiders: Sequence[Context] = (),
        sabotage: Sabotage = 'none',
        constraint: Constraint | None = None,
    ) -> 'Case':
        """The case of a batch and of contexts to add, all under the batch's label.

        Args:
            generator: The run's generator.
            batch: The batch.
            outsiders: Contexts of other batches.
            sabotage: What to break.
            constraint: Which tokens may be sampled; None for that of a run.
        """
        writer, params = generator.writer, generator.params
        contexts = [*batch.contexts, *outsiders]
        prefix = writer.template.response_prefix
        return cls(
            decoder=generator.decoder,
            params=params,
            sabotage=sabotage,
            public=generator.public_rows(batch.label),
            inside=writer.private_prompts(batch.label, batch.contexts),
            outside=writer.private_prompts(batch.label, outsiders),
            texts=writer.tokenizer.encode_batch(
                [context.texts[0].removeprefix(prefix) for context in contexts]
            ),
            constraint=generator.constraint() if constraint is None else constraint,
            stop_rule=generator.stop_rule,
        )

    def decode(self, draws: randomness.BatchDraws) -> generate.TokenStream:
        """The token stream of the broken mechanism, and the losses that a run would report for it."""
        params = self.params
        members = list(range(len(self.inside)))
        tokens: list[int] = []
        flags: list[bool] = []
        losses: list[tuple[float, float]] = []
        for position in self.positions(self.inside, tokens):
            is_private = True
            if params.threshold is not None:
                noisy = distances([members], position, params)[0] + draws.distance_noise[len(tokens)]
                is_private = bool(noisy >= params.threshold + draws.threshold_noise[sum(flags)])
            allowed = self.allowed(position)
            (scores,) = self.scores(position, allowed, [members])
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
        return generate.TokenStream(
            np.array(tokens, np.int32),
            np.array(flags, bool),
            np.array(losses, np.float32).T if params.is_ex_post else None,
        )

    def positions(self, private: Sequence[np.ndarray], tokens: Sequence[int]) -> Iterator[generate.Position]:
        """Every position of the stream, with a sabotage's outliers among the logits.

        The caller appends each position's token to `tokens` before it asks for the next.
        """
        steps = generate.walk(
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
            public = np.where(np.isfinite(public).all(), public, 0.0)
            yield found._replace(logits=logits, public_logits=public)
            found = steps.send(tokens[-1])

    def scores(
        self, position: generate.Position, allowed: np.ndarray, batches: Sequence[Sequence[int]]
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
        )
        for rows, scores in zip(batches, clean, strict=True):
            pastes = self.sabotage == 'paste' and len(rows) > 0
            yield self._pasted(rows, position) if pastes else scores / params.temperature

    def _pasted(self, rows: Sequence[int], position: generate.Position) -> np.ndarray:
        """All weight on the next token of a context's own text, example by example."""
        text = self.texts[rows[position.example % len(rows)]]
        scores = np.zeros(len(position.public_logits))
        ended = position.place >= len(text)
        scores[min(self.stop_rule.tokens) if ended else text[position.place]] = PASTED
        return scores

    def allowed(self, position: generate.Position, token: int | None = None) -> np.ndarray:
        """The tokens that could be sampled, `[V]` bool; one that was sampled is among them.

        In the replay a logit may differ by a rounding from the one that decided.
        """
        if self.sabotage == 'paste':
            return position.mask
        allowed = self.params.strategy.replayed_tokens(position.mask, position.public_logits, self.params)
        if token is not None:
            allowed[token] = True
        return allowed

    def _reported_loss(self, position: generate.Position, token: int) -> tuple[float, float]:
        """The loss that the run's own accounting would state for a token of the broken mechanism."""
        rows = np.concatenate([position.public_logits[None], position.logits])
        mask = jnp.arange(len(rows)) > 0
        return tuple(map(float, _token_losses(rows, mask, position.mask, token, params=self.params)))  # type: ignore[return-value]


@functools.partial(jax.jit, static_argnames=('params',))
def _token_losses(
    rows: jax.Array, is_private: jax.Array, mask: jax.Array, token: jax.Array, *, params: MechanismParams
) -> Any:
    rows = jnp.asarray(rows)
    public = rows[:1] if params.needs_public_logits else None
    votes = mechanism.tally(public, (rows,), (is_private,), jnp.asarray(mask), params)
    return mechanism.token_losses(votes, token, params)


def distances(
    batches: Sequence[Sequence[int]], position: generate.Position, params: MechanismParams
) -> np.ndarray:
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
