"""The report of a run of votes on texts: its facts and settings, and the files beside the corpus."""

from typing import Any

from apache_beam.io.filesystems import FileSystems

from models.evolution.settings import EvolutionSettings
from models.privacy import earlier_release
from models.privacy.report import PrivacyReport, Voted
from pipeline.methods import report_settings
from pipeline.methods.evolve.run import VotingRun
from pipeline.methods.evolve.settings import RefineSettings
from pipeline.pages import dataset_card, report_page
from transforms.durable import read_file
from transforms.evolve.files import candidates_name, votes_name
from transforms.run_files import CARD, REPORT_PAGE, ROUNDS_FOLDER
from transforms.write import Files

_OF_VOTES = ('nearest', 'vote_noise', 'embedder', 'form_share')
# Settings that the report shows, in its order: of texts that are sampled, and of those that are given.
SHOWN = (
    *report_settings.OF_EVERY_RUN,
    'rounds', *_OF_VOTES, 'examples', 'candidates', 'children',
    'unvoted', 'fresh_share', 'shots', 'any_text', 'temperature', 'top_p', 'top_k', 'endpoint_model',
    'prompt',
    'label_name', 'text_name', 'corpus_description', 'regex', 'fixed', 'close_truncated', 'max_prompt_tokens',
    'min_example_tokens', 'max_example_tokens', 'model', 'dtype', 'micro_batch_size', 'shards',
)  # fmt: skip
SHOWN_OF_REFINING = (
    *report_settings.OF_EVERY_RUN,
    *_OF_VOTES, 'keep', 'model', 'dtype', 'micro_batch_size', 'shards',
)  # fmt: skip
# The model where it samples nothing and embeds nothing.
_OF_MODEL = ('model', 'model_origin', 'dtype', 'micro_batch_size')


def facts(run: VotingRun, prepared: EvolutionSettings) -> Voted:
    """The method's facts for a report."""
    method = run.method
    card = run.card
    return Voted(
        mechanism=run.params,
        releases=earlier_release.each_once(
            () if card is None else card.handed_on(), prepared.start_origin.releases
        ),
        adapter=None if card is None else card.factors,
        start=prepared.start_origin.given if prepared.start else None,
        writes_texts=not isinstance(method, RefineSettings),
        has_structure=not isinstance(method, RefineSettings) and method.structure is not None,
    )


def settings(run: VotingRun) -> dict[str, Any]:
    """Settings that the report shows beside those of the mechanism."""
    method, sizes = run.method, run.sizes
    if isinstance(method, RefineSettings):
        shown = report_settings.shown(run.config, SHOWN_OF_REFINING, run.params)
        shown |= {'embedder': method.shown_embedder, 'keep': run.examples}
        uses_model = method.embedder == 'decoder'
        if not run.input.attributes:
            del shown['attributes']
    else:
        shown = report_settings.shown(run.config, SHOWN, run.params)
        shown |= {
            'embedder': method.shown_embedder,
            'candidates': sizes.candidates,
            'children': sizes.children,
            'unvoted': sizes.unvoted,
            'fresh_share': sizes.fresh_share,
            'shots': sizes.shots,
            'temperature': method.temperature or 1.0,
        }
        shown = report_settings.with_texts(shown, method, run.input)
        uses_model = method.endpoint is None
        if uses_model:
            del shown['endpoint_model']
        if run.card is not None:
            shown['prompt'] = "the adapter's"
            shown['model_origin'] += f', with the released adapter of the run {run.card.run_id!r}'
    # The noise scale of the mechanism is the noise.
    for name in ('vote_noise', *(() if uses_model else _OF_MODEL)):
        shown.pop(name, None)
    return shown


def files(run: VotingRun, prepared: EvolutionSettings, privacy_report: PrivacyReport) -> Files:
    """The files beside the corpus, by name."""
    rounds = run.params.rounds
    names = [name(number) for number in range(1, rounds + 1) for name in (candidates_name, votes_name)]
    if prepared.unvoted_per_label:
        names.append(candidates_name(rounds + 1))
    folder = FileSystems.join(run.work_dir, ROUNDS_FOLDER)
    return {
        REPORT_PAGE: report_page.render_html(privacy_report).encode(),
        CARD: dataset_card.render_card(privacy_report, columns=run.columns.meanings).encode(),
        **{f'{ROUNDS_FOLDER}/{name}': read_file(FileSystems.join(folder, name)) for name in names},
    }
