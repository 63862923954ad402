"""What a report says of a run of votes on texts: its facts and its settings."""

from typing import Any

from models.evolution.settings import EvolutionSettings
from models.privacy.report import Voted
from pipeline.methods import report_settings
from pipeline.methods.evolve.mechanism import Config, resolved

# Settings that the report shows, in its order.
SHOWN = (
    *report_settings.OF_EVERY_RUN,
    'rounds', 'nearest', 'vote_noise', 'embedder', 'form_share', 'examples', 'candidates', 'children',
    'unvoted', 'fresh_share', 'shots', 'temperature', 'top_p', 'top_k', 'endpoint_model', 'prompt',
    'label_name', 'text_name', 'corpus_description', 'regex', 'fixed', 'close_truncated', 'max_prompt_tokens',
    'min_example_tokens', 'max_example_tokens', 'model', 'dtype', 'micro_batch_size', 'shards',
)  # fmt: skip
# Paths of the curator's machine, addresses in the curator's network, and what settings that are shown follow
# from.
HIDDEN = report_settings.HIDDEN | {
    'start', 'endpoint', 'endpoint_requests', 'endpoint_token', 'typical_words',
}  # fmt: skip


def facts(config: Config, prepared: EvolutionSettings) -> Voted:
    """What the method tells a report."""
    return Voted(
        mechanism=prepared.params,
        releases=prepared.start_origin.releases,
        start=prepared.start_origin.given if prepared.start else None,
        has_structure=config.method.structure is not None,
    )


def settings(config: Config, of_mechanism: tuple[str, ...]) -> dict[str, Any]:
    """Settings that the report shows beside those of the mechanism."""
    own = config.method
    found = report_settings.shown(config, SHOWN, (*of_mechanism, 'vote_noise'))
    chosen = resolved(config)
    found |= {
        'embedder': own.shown_embedder,
        'candidates': chosen.candidates,
        'children': chosen.children,
        'unvoted': chosen.unvoted,
        'fresh_share': chosen.fresh_share,
        'shots': chosen.shots,
        'temperature': own.temperature or 1.0,
    }
    found = report_settings.with_texts(found, own, config.input)
    if own.endpoint is None:
        del found['endpoint_model']
    else:
        for name in ('model', 'model_origin', 'dtype', 'micro_batch_size'):
            found.pop(name, None)
    return found
