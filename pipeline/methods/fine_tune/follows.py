"""Settings of fine-tuning that follow from declared lengths (`pipeline.methods.follows`).

Steps and learning rate are those of the runs that docs/measured.md scores ('Fine-tuning beside votes'), with
Gemma 3 270M at 768 and 5,452 records and ε of 1 and 3; of a model as small as the bundled one those of
`launch/demo/fine_tune.toml`. Others were not measured.
"""

import dataclasses

from models.decoders import device
from pipeline.methods import follows
from pipeline.methods.fine_tune.settings import SMALL_PARAMETERS, UNITS_ON_ACCELERATOR, FineTuneSettings
from pipeline.methods.follows import Asked, Follows

_STEPS, _STEPS_OF_SMALL = 30, 60
_BATCH = 64
# A step takes at most such a share of the units, so that there is a sample to hide in.
_LARGEST_SHARE, _SMALLEST_BATCH = 1 / 8, 8
# Rows of a cap and a prompt of usual lengths, 256 tokens together, whose gradients fit into a GiB or two.
_TOKENS_TOGETHER = UNITS_ON_ACCELERATOR * 256


def of(asked: Asked[FineTuneSettings], *, steps: int = _STEPS, batch: int = _BATCH) -> dict[str, Follows]:
    """Caps of a text and of an instruction, steps, their size and their rate, and rows computed together.

    `steps` and `batch` are those of a method whose texts were measured, for thousands of units and a model
    that is not as small as the bundled one.
    """
    settings = asked.method
    if settings.adapter is not None or settings.typical_words is None:
        # The card of an adapter says the lengths.
        return {}
    following = follows.of_lengths(asked, texts_in_prompt=0)
    if not settings.full:
        following |= _of_training(asked, steps, batch)
    held = dataclasses.replace(settings, **{name: each.value for name, each in following.items()})
    most = settings.units_together(on_accelerator=device.has_plugin())
    rows = follows.rows_together(held, tokens=_TOKENS_TOGETHER, most=most)
    if rows < most and not settings.full:
        because = f'Long texts: gradients of about {_TOKENS_TOGETHER:,} tokens are held together.'
        following['micro_batch_size'] = Follows(value=rows, because=because)
    return asked.without_given(following)


def _of_training(asked: Asked[FineTuneSettings], steps: int, most: int) -> dict[str, Follows]:
    rate, source = asked.method.rate, 'of the runs that docs/measured.md scores'
    if asked.method.model_sizes.num_parameters < SMALL_PARAMETERS:
        steps, source = _STEPS_OF_SMALL, 'of launch/demo/fine_tune.toml'
    following = {
        'tuning_steps': Follows(value=steps, because=f'The steps {source}.'),
        'learning_rate': Follows(value=rate, because=f'The rate {source}.'),
    }
    units = asked.input.sampled_records
    if units is None:
        return following
    batch = max(_SMALLEST_BATCH, min(most, int(units * _LARGEST_SHARE)))
    because = f'{batch} units of about {units:,.0f} declared ones are in a step.'
    return following | {'expected_batch_size': Follows(value=batch, because=because)}
