"""The report of a run of training and votes: its facts and settings, and the files beside the corpus."""

from typing import Any

from models.privacy.report import PrivacyReport, TunedVoted
from pipeline.methods import report_settings
from pipeline.methods.evolve import report as of_votes
from pipeline.methods.tune_refine.graph import TunedVotingSettings
from pipeline.methods.tune_refine.run import TunedVotingRun
from transforms.write import Files

# Settings that the report shows, in its order.
SHOWN = (
    *report_settings.OF_EVERY_RUN,
    'vote_share', 'examples', 'candidates', 'tuning_steps', 'expected_batch_size', 'clip_norm', 'lora_rank',
    'remat', 'learning_rate', 'nearest', 'embedder', 'form_share', 'any_text', 'temperature', 'top_p',
    'top_k', 'prompt', 'label_name', 'text_name', 'corpus_description', 'regex', 'fixed', 'close_truncated',
    'max_prompt_tokens',
    'min_example_tokens', 'max_example_tokens', 'model', 'dtype', 'micro_batch_size', 'shards',
)  # fmt: skip


def facts(run: TunedVotingRun) -> TunedVoted:
    """The method's facts for a report."""
    return TunedVoted(mechanism=run.params, has_structure=run.method.structure is not None)


def settings(run: TunedVotingRun) -> dict[str, Any]:
    """Settings that the report shows beside those of the mechanism."""
    method = run.method
    shown = report_settings.shown(run.config, SHOWN, run.params)
    shown |= {
        'embedder': method.shown_embedder,
        'candidates': method.texts_to_vote_on,
        'learning_rate': run.tuning.method.rate,
        'temperature': method.temperature or 1.0,
    }
    return report_settings.with_texts(shown, method, run.input)


def files(run: TunedVotingRun, prepared: TunedVotingSettings, privacy_report: PrivacyReport) -> Files:
    """The files beside the corpus, by name."""
    return of_votes.files(run.voting, prepared.voting, privacy_report)
