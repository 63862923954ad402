"""Settings of training and votes that follow from declared lengths (`pipeline.methods.follows`)."""

from pipeline.methods import follows
from pipeline.methods.fine_tune import follows as of_tuning
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.tune_refine.settings import TuneRefineSettings

_STEPS, _FEWEST_STEPS = TuneRefineSettings.tuning_steps, 6
_BATCH = TuneRefineSettings.expected_batch_size
# Tokens of all steps, instructions among them: longer texts have fewer steps. Of questions of a dozen words
# 10 steps and 20 differed by less than two hundredths of a nat for a token.
_TOKENS = _STEPS * _BATCH * 160


def of(asked: Asked[TuneRefineSettings]) -> dict[str, Follows]:
    """Caps of a text and of an instruction, steps, their size and their rate, and rows computed together."""
    settings = asked.method.training()
    if settings.typical_words is None:
        return {}
    training = Asked(
        input=asked.input, budget=asked.budget, method=settings, given=asked.given, delta=asked.delta
    )
    of_text = follows.tokens_of_words(settings, settings.typical_words)
    of_unit = follows.tokens_around(settings, asked.input) + of_text
    steps = max(_FEWEST_STEPS, min(_STEPS, _TOKENS // (_BATCH * of_unit)))
    return of_tuning.of(training, steps=steps, batch=_BATCH)
