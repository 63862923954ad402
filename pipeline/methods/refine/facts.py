"""What a report says of refining a corpus: its facts and its settings."""

from typing import Any

from models.evolution.settings import EvolutionSettings
from models.privacy.report import Voted
from pipeline.methods import report_settings
from pipeline.methods.refine.settings import RefineSettings
from pipeline.settings.job_config import JobConfig

# Settings that the report shows, in its order.
SHOWN = (
    *report_settings.OF_EVERY_RUN,
    'nearest', 'vote_noise', 'embedder', 'form_share', 'keep', 'model', 'dtype', 'micro_batch_size', 'shards',
)  # fmt: skip
# A path of the curator's machine.
HIDDEN = (report_settings.HIDDEN | {'corpus'}) - {'schema', 'json_schema'}
# Of the model, which may embed and does nothing else.
_OF_MODEL = ('model', 'dtype', 'micro_batch_size')


def facts(prepared: EvolutionSettings) -> Voted:
    """What the method tells a report."""
    return Voted(
        mechanism=prepared.params,
        releases=prepared.start_origin.releases,
        start=prepared.start_origin.given,
        writes_texts=False,
    )


def settings(config: JobConfig[RefineSettings], of_mechanism: tuple[str, ...]) -> dict[str, Any]:
    """Settings that the report shows beside those of the mechanism."""
    own = config.method
    found = report_settings.shown(config, SHOWN, (*of_mechanism, 'vote_noise'))
    found['embedder'] = own.shown_embedder
    if own.resolved_embedder != 'decoder':
        for name in _OF_MODEL:
            del found[name]
    if not config.input.attributes:
        del found['attributes']
    return found
