"""The reconstruction audit (CL D.5.1): plants keys, and counts those that come out.

CL is the clustering paper. The keys are made up, so nothing here is private.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from models.audits import batches, bounds, replay
from models.batch_plan import BatchPlan
from models.constraints import Digits
from models.generate.batch import BatchGenerator
from models.generate.examples import split_examples
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from models.records import Batch, Record

# Whether unclipped votes give keys away hangs on how the model copies: leaving one out shows them.
KeySabotage = Literal['none', 'paste']

# p-value below which the audit raises its alarm: one false alarm in a thousand.
ALARM = 1e-3
KEY_PREFIX = 'My 5-digit key is '
KEY_DIGITS = 5
_KEY = re.compile(re.escape(KEY_PREFIX) + r'(\d{5})(?!\d)')


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeySets:
    """Unique 5-digit keys, in two halves (CL D.5.1). Made up, so not private.

    Attributes:
        source: Those that the method sees.
        holdout: Those that nothing sees.
    """

    source: frozenset[str]
    holdout: frozenset[str]


def draw_keys(count: int, seed: int) -> KeySets:
    """`count` unique keys, half of them source, by a seed.

    Raises:
        ValueError: `count` is odd, or out of 2 to 100,000.
    """
    if count % 2 or not 2 <= count <= 100_000:
        raise ValueError(
            f'Expected an even number of keys from 2 to 100,000, got keys={count}. There are 100,000 in all.'
        )
    keys = [f'{number:05d}' for number in np.random.default_rng(seed).permutation(100_000)[:count]]
    return KeySets(source=frozenset(keys[: count // 2]), holdout=frozenset(keys[count // 2 :]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """The numbers of synthetic keys from the source and from the holdout (CL Table 7).

    Attributes:
        keys: Keys of both halves together.
        synthetic: Synthetic texts that hold a 5-digit key.
        source_hits: Those whose key is of the source.
        holdout_hits: Those whose key is of the holdout.
        distinct: Distinct synthetic keys.
        distinct_source_hits: Distinct ones of the source.
        distinct_holdout_hits: Distinct ones of the holdout.
        examples: All synthetic texts.
    """

    keys: int
    synthetic: int
    source_hits: int
    holdout_hits: int
    distinct: int
    distinct_source_hits: int
    distinct_holdout_hits: int
    examples: int

    @property
    def p_value(self) -> float:
        """Probability of at least this many source keys among the distinct hits, by chance alone.

        If the output does not depend on the halves, the number is exactly hypergeometric. Distinct keys
        count, because the model may repeat a key that it likes, whichever half it is in.
        """
        from scipy import stats

        hits = self.distinct_source_hits + self.distinct_holdout_hits
        return float(stats.hypergeom.sf(self.distinct_source_hits - 1, self.keys, self.keys // 2, hits))

    @property
    def ok(self) -> bool:
        """Whether the excess of source keys over holdout keys is not suspicious (`ALARM`)."""
        return self.p_value >= ALARM

    @property
    def conclusive(self) -> bool:
        """Whether the alarm would be raised if all distinct synthetic keys were of the source."""
        from scipy import stats

        return bool(stats.hypergeom.pmf(self.distinct, self.keys, self.keys // 2, self.distinct) < ALARM)

    def interval(self, hits: int) -> tuple[float, float]:
        """95 % confidence interval of the rate of `hits` among the distinct keys (Wilson)."""
        from scipy import stats

        if self.distinct == 0:
            return 0.0, 1.0
        found = stats.binomtest(hits, self.distinct).proportion_ci(0.95, method='wilson')
        return float(found.low), float(found.high)


def count_keys(texts: Sequence[str], sets: KeySets) -> Reconstruction:
    """Counts the synthetic keys: the first five digits of a text after the prefix, and no sixth."""
    found = [match[1] for text in texts if (match := _KEY.match(text))]
    distinct = set(found)
    return Reconstruction(
        keys=len(sets.source) + len(sets.holdout),
        synthetic=len(found),
        source_hits=sum(key in sets.source for key in found),
        holdout_hits=sum(key in sets.holdout for key in found),
        distinct=len(distinct),
        distinct_source_hits=len(distinct & sets.source),
        distinct_holdout_hits=len(distinct & sets.holdout),
        examples=len(texts),
    )


def key_batches(sets: KeySets, params: MechanismParams, key: RunKey) -> list[Batch]:
    """The source's keys as batches, by keyed hash as in a run; each key is a unit of its own.

    Args:
        sets: The keys.
        params: The mechanism. Under k > 1 without unit ids, keys share slots.
        key: Places the keys.
    """
    contexts = params.batch_size * (params.examples_per_context if params.unit == 'example' else 1)
    count = max(1, round(len(sets.source) / contexts))
    plan = BatchPlan(labels=(None,), batches_per_group=(count,), noisy_counts=None, contexts_rho=0.0)
    records = [Record(text=f'{KEY_PREFIX}{digits}.', unit=digits) for digits in sorted(sets.source)]
    return batches.batches_of(batches.placements(records, (None,), params, key), plan, params, key)


def reconstruct(
    generator: BatchGenerator, batch: Batch, key: RunKey, *, sabotage: KeySabotage = 'none'
) -> tuple[list[str], float | None]:
    """The synthetic keys of one batch of keys, and a median's loss, by the run's mechanism or a broken one.

    Digits alone may be sampled, five for each example. Such a restriction is public and free
    (METHOD 4), and makes every example a key, however poor the model.

    Args:
        generator: With `KEY_PREFIX` as the response prefix of its prompts, and
            `max_example_tokens` of `KEY_DIGITS`.
        batch: Of `key_batches`.
        key: The key that formed it.
        sabotage: 'paste' copies the texts of the contexts to the output.

    Raises:
        ValueError: The vocabulary spells a digit with more than one token.
    """
    params, writer = generator.params, generator.writer
    constraint = Digits.of(
        generator.decoder.vocab_size,
        digits=map(writer.tokenizer.single_token_id, '0123456789'),
        stop_tokens=generator.stop_rule.tokens,
        length=KEY_DIGITS,
    )
    draws = generator.draws(batch, key)
    if sabotage == 'none':
        stream = generator.decode(batch, draws, constraint)
    else:
        stream = replay.Case.of(generator, batch, sabotage=sabotage, constraint=constraint).decode(draws)
    examples = split_examples(
        stream, stop_rule=generator.stop_rule, max_example_tokens=params.max_example_tokens
    )
    texts = writer.texts([example.tokens for example in examples])
    return texts, bounds.output_bound(stream, params) if params.is_ex_post else None
