"""Settings of votes on tokens that follow from lengths and the texts wanted (`pipeline.methods.follows`).

A batch of s records writes as many tokens as the budget of its contexts pays for, so the records and epsilon
say how many texts come out at the most. Larger batches pay less for a token, and there are fewer of them:
of the sizes that docs/settings.md tells ('How far an ε goes'), the largest that still writes the texts
wanted is taken. What the budget leaves over then buys the bounds that docs/measured.md scored, and time is
saved by a sample of the records, if so few batches are enough.
"""

import dataclasses
import math
from typing import Any

from models.privacy import accounting
from pipeline.methods import follows
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.predict.run import DEFAULT_BATCH_TOKENS_PER_WORST_CASE_TOKEN, mechanism
from pipeline.methods.predict.settings import PredictSettings

_SIZES = (64, 128, 255)
# Batches of each label that a size has to leave where nobody said how many texts are wanted.
_FEWEST_BATCHES = 8
# A batch is several times as long as a text, because its limit cuts the last one.
_TEXTS_OF_BATCH = 8
# Tokens of the contexts of a batch that are held together: 4 GiB of Gemma 3 270M in float32.
_TOKENS_OF_BATCH = 2**17
# Bounds of the rows 'individual' of docs/measured.md, 768 records at ε = 1: not one context in 100 stopped.
_SCORED = {'clip_bound': 2.8, 'shift_bound': 0.8, 'temperature': 0.8}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writing:
    """The texts of a run with batches of one size, of typical length, the cut one of each batch too."""

    batch_size: int
    batches: int
    batch_tokens: int
    texts: int


def of(asked: Asked[PredictSettings]) -> dict[str, Follows]:
    """Caps of a text, a prompt and a batch, the size of a batch, the bounds, and the share of the records."""
    following = follows.of_lengths(asked, texts_in_prompt=1)
    settings = dataclasses.replace(asked.method, **{name: each.value for name, each in following.items()})
    if settings.examples is not None and asked.input.sampled_records is None:
        raise ValueError(
            'Expected a declared number of records with examples, got records=None, '
            f'examples={settings.examples}. Give --records N: how many texts votes can write follows from it.'
        )
    if not settings.is_individual or asked.input.sampled_records is None or settings.clusters is not None:
        return following
    writing = _chosen(asked, settings)
    if writing is None:
        # The error of the settings themselves says what the budget does not buy.
        return following
    groups = len(asked.input.label_values)
    typical = follows.typical_tokens(settings)
    following['batch_size'] = Follows(
        value=writing.batch_size,
        because=f'{asked.input.sampled_records:,.0f} declared records make {writing.batches:,} batches of '
        f'{writing.batch_size}; the larger a batch, the less its noise, and the fewer the texts.',
    )
    following['max_batch_tokens'] = Follows(
        value=writing.batch_tokens,
        because=f'About {writing.batch_tokens / typical:.2g} texts of {typical:,} tokens in each batch.',
    )
    following |= _bounds(asked, settings, writing)
    if settings.examples is not None and 'sample_rate' not in asked.given:
        # A batch of each label is in either round.
        needed = max(2 * groups, math.ceil(settings.examples * typical / writing.batch_tokens))
        rate = math.ceil(1000 * needed / writing.batches) / 1000
        if rate < 1:
            following['sample_rate'] = Follows(
                value=rate,
                because=f'About {needed:,} of {writing.batches:,} batches write {settings.examples:,} texts. '
                'All records are paid for; a sample saves time.',
            )
    return asked.without_given(following)


def expected_texts(settings: PredictSettings, batches: int, batch_tokens: int) -> int:
    """Texts of typical length that so many batches write, the cut one of each among them."""
    return max(batches, math.floor(batches * batch_tokens / follows.typical_tokens(settings)))


def _chosen(asked: Asked[PredictSettings], settings: PredictSettings) -> Writing | None:
    """The largest batches that write the texts wanted; None where no size pays for a text."""
    length = settings.max_prompt_tokens + settings.max_example_tokens
    fit = tuple(size for size in _SIZES if size == _SIZES[0] or size * length <= _TOKENS_OF_BATCH)
    sizes = (settings.batch_size,) if 'batch_size' in asked.given else fit
    ways = [way for size in sizes if (way := _writing(asked, settings, size)) is not None]
    if not ways:
        return None
    if asked.given >= {'batch_size', 'max_batch_tokens'}:
        # Nothing is left to choose: the plan says how many texts come out.
        return ways[0]
    if settings.examples is None:
        groups = len(asked.input.label_values)
        enough = [way for way in ways if way.batches >= _FEWEST_BATCHES * groups]
        return enough[-1] if enough else ways[0]
    enough = [way for way in ways if way.texts >= settings.examples]
    if not enough:
        most = max(way.texts for way in ways)
        raise ValueError(
            f'Expected examples <= {most:,}, which votes of records={asked.input.records:,} at '
            f'epsilon={asked.budget.epsilon} pay for, got examples={settings.examples:,}. Ask for fewer, '
            'raise --epsilon, or give another --method: `dp-corpus plan --compare` shows what each writes.'
        )
    return enough[-1]


def _writing(asked: Asked[PredictSettings], settings: PredictSettings, size: int) -> Writing | None:
    """The texts of batches of one size; None where they do not pay for a text, or no batch is full."""
    assert asked.input.sampled_records is not None
    labels = len(asked.input.label_values)
    per_batch = size * (asked.budget.examples_per_context if asked.budget.unit == 'example' else 1)
    batches = int(asked.input.sampled_records / per_batch)
    if settings.batches_per_label is not None:
        batches = settings.batches_per_label * labels
    if batches < labels and size > _SIZES[0]:
        return None
    batches = max(batches, labels)
    typical = follows.typical_tokens(settings)
    if settings.max_batch_tokens is not None:
        tokens = settings.max_batch_tokens
    else:
        wanted = math.ceil((settings.examples or 0) * typical / batches)
        paid = _paid_tokens(asked, dataclasses.replace(settings, batch_size=size))
        tokens = min(paid, max(_TEXTS_OF_BATCH * typical, wanted))
        if tokens < typical:
            return None
    texts = expected_texts(settings, batches, tokens)
    return Writing(batch_size=size, batches=batches, batch_tokens=tokens, texts=texts)


def _paid_tokens(asked: Asked[PredictSettings], settings: PredictSettings) -> int:
    """Tokens of a batch for which the budget of its contexts usually lasts; 0 where it buys none."""
    assert asked.delta is not None  # there are declared records
    try:
        params = mechanism(settings, asked.budget, asked.delta)
    except ValueError:
        return 0
    assert params.context_budget is not None  # individual accounting
    worst = accounting.worst_case_tokens(params, params.context_budget)
    return DEFAULT_BATCH_TOKENS_PER_WORST_CASE_TOKEN * worst


def _bounds(asked: Asked[PredictSettings], settings: PredictSettings, writing: Writing) -> dict[str, Follows]:
    """The bounds that were scored, where the budget pays for a batch with them; else the defaults stay."""
    if any(name in asked.given for name in _SCORED):
        return {}
    wide: dict[str, Any] = {**_SCORED, 'batch_size': writing.batch_size, 'max_batch_tokens': None}
    if _paid_tokens(asked, dataclasses.replace(settings, **wide)) < writing.batch_tokens:
        return {}
    because = 'The budget pays for the bounds and the temperature of the runs that docs/measured.md scores.'
    return {name: Follows(value=value, because=because) for name, value in _SCORED.items()}
