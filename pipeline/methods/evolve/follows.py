"""Settings of votes on whole texts that follow from declared lengths (`pipeline.methods.follows`).

Rounds, candidates, children and what a vote is spread over follow from the declared records, epsilon and
`--examples` in any case: `models.evolution.defaults`.
"""

import dataclasses

from models.evolution.defaults import Defaults
from pipeline.methods import follows
from pipeline.methods.evolve.settings import ROWS_TOGETHER, EvolveSettings
from pipeline.methods.follows import Asked, Follows

# Rows of a cap and a prompt of usual lengths, 256 tokens together, that fill a processor.
_TOKENS_TOGETHER = ROWS_TOGETHER * 256


def of(asked: Asked[EvolveSettings]) -> dict[str, Follows]:
    """Caps of a text and of a prompt with texts that votes favoured, and rows that are sampled together."""
    settings = asked.method
    if settings.adapter is not None:
        # The card of an adapter says the lengths.
        return {}
    following = follows.of_lengths(asked, texts_in_prompt=settings.shots or Defaults.shots)
    if settings.typical_words is None:
        return following
    held = dataclasses.replace(settings, **{name: each.value for name, each in following.items()})
    rows = follows.rows_together(held, tokens=_TOKENS_TOGETHER, most=ROWS_TOGETHER)
    if rows < ROWS_TOGETHER:
        because = f'Long texts: about {_TOKENS_TOGETHER:,} tokens go through the model together.'
        following |= asked.without_given({'micro_batch_size': Follows(value=rows, because=because)})
    return following
