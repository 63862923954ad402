"""The rounds of a run, and what they are built from."""

import math
import pathlib
import re
from typing import Any

import apache_beam as beam

from models.evolution.settings import EvolutionSettings
from models.privacy.earlier_release import TextOrigin
from models.prompt_templates import read_template
from models.records import Record
from models.sampling.endpoint import EndpointSettings, EndpointSource
from models.sampling.loading import SourceSettings
from models.sampling.non_texts import PublicWords
from models.sampling.settings import AdapterFile, SamplerSettings
from pipeline.methods import earlier, model_digest, start_corpus, workers
from pipeline.methods.evolve.run import VotingRun
from pipeline.methods.evolve.settings import TEXTS_TOGETHER, EvolveSettings, RefineSettings
from pipeline.methods.fine_tune import released
from pipeline.methods.method import Generated
from pipeline.run.digests import digest_of_files
from transforms.evolve import EvolveText

# Units that a worker embeds and counts the votes of at a time, and most shares of them.
_UNITS_OF_SHARD, _MOST_SHARDS = 1000, 256
# Characters of a record that are embedded: more than 256 tokens of any embedder here have.
_CHARACTERS = 8192


def prepare(run: VotingRun) -> EvolutionSettings:
    """Settings that workers sample, embed and vote with; checks the model's files, prompts and the start."""
    settings, sizes, labels = run.method, run.sizes, len(run.input.label_values)
    embedder = settings.embedder_settings(settings)
    embedder.load_embedder()
    sampling: dict[str, Any] = {'source': None}
    if not isinstance(settings, RefineSettings):
        sampling = {
            'source': _source(run, settings),
            'candidates_per_label': math.ceil(sizes.candidates / labels),
            'children_per_label': math.ceil(sizes.children / labels),
            'unvoted_per_label': math.ceil(sizes.unvoted / labels),
            'fresh_share': sizes.fresh_share,
            'shots': sizes.shots,
            'texts_together': TEXTS_TOGETHER,
            'least_tokens': settings.least_tokens,
            'public_words': _public_words(run, settings),
        }
    origins = [earlier.origin_of_texts(one.place, one.name) for one in run.begun if not one.is_adapter]
    return EvolutionSettings(
        run_id=run.run_id,
        params=run.params,
        labels=run.input.label_values,
        embedder=embedder,
        examples=run.examples,
        start=run.start,
        start_origin=origins[0] if origins else TextOrigin(),
        **sampling,
    )


def generate(
    run: VotingRun,
    prepared: EvolutionSettings,
    records: beam.PCollection[Record],
    after: beam.PCollection | None = None,
) -> Generated:
    """Records -> the texts that they favour; the first list waits for the single element of `after`."""
    plan = records.pipeline | 'Plan' >> beam.Create([run.batch_plan], reshuffle=False)
    units = run.input.sampled_records or 0
    rows, sizes, facts, counted = records | 'Generate' >> EvolveText(
        prepared,
        run.work_dir,
        shards=min(_MOST_SHARDS, max(1, math.ceil(units / _UNITS_OF_SHARD))),
        text_limit=_CHARACTERS,
        accelerator=run.runner.accelerator,
        after=after,
    )
    return Generated(plan=plan, rows=rows, sizes=sizes, facts=facts, counted=counted)


# A place in a template that other words fill.
_FIELD = re.compile(r'{\w+}')


def _public_words(run: VotingRun, settings: EvolveSettings) -> PublicWords | None:
    """The words of the prompts; None where every text counts: as asked for, or since a structure decides."""
    if settings.any_text or settings.structure is not None:
        return None
    attributes = settings.label_attributes(run.input)
    template = read_template(settings.prompt_name) if run.card is None else run.card.template
    return PublicWords(
        names=(settings.text_name, *([one.name for one in attributes] or [settings.label_name])),
        others=(
            settings.corpus_description, *run.input.label_words.values(), _FIELD.sub(' ', template.public)
        ),
    )  # fmt: skip


# Settings of prompts that an endpoint has no use for: it counts no tokens before it samples.
_OF_TOKENS = ('max_prompt_tokens', 'min_example_tokens', 'structure')


def _source(run: VotingRun, settings: EvolveSettings) -> SourceSettings:
    """The source of texts: an endpoint, or the run's model."""
    prompt = workers.prompt_settings(settings, run.input)
    sampling: dict[str, Any] = {
        'max_example_tokens': settings.max_example_tokens,
        'temperature': 1.0 if settings.temperature is None else settings.temperature,
        'top_p': settings.top_p,
        'label_words': tuple(run.input.label_words.items()),
    }
    if settings.endpoint is not None:
        words = {name: value for name, value in prompt.items() if name not in _OF_TOKENS}
        assert settings.endpoint_model is not None  # `Evolution.check`
        endpoint = EndpointSettings(
            url=settings.endpoint,
            model=settings.endpoint_model,
            requests_at_once=settings.endpoint_requests,
            token_variable=settings.endpoint_token,
            **words,
            **sampling,
        )
        if run.runner.is_local:
            # Other machines may have the package and the token where this one has not.
            EndpointSource(endpoint)
        return endpoint
    adapter = None
    if run.card is not None:
        assert settings.adapter is not None  # it has the card
        prompt |= {'template': run.card.template, 'schema': run.card.prompt['schema']}
        adapter = AdapterFile(
            folder=released.adapter_folder(settings.adapter),
            rank=run.card.lora_rank,
            sha256=run.card.factors,
        )
    sampler = SamplerSettings(
        **workers.model_settings(settings, run.runner),
        top_k=settings.top_k,
        rows=settings.rows_together,
        adapter=adapter,
        **prompt,
        **sampling,
    )
    writer, chosen = sampler.writer(), run.sizes
    shows_texts = chosen.shots > 0 and (chosen.rounds > 1 or chosen.unvoted > 0)
    for label in run.input.label_values:
        writer.public_prompt(label)
        if shows_texts:
            _check_room(writer.room(label, chosen.shots), chosen.shots, settings)
    return sampler


def _check_room(room: int, shots: int, settings: EvolveSettings) -> None:
    """Refuses prompts of later rounds that would show less of a text than the shortest text has."""
    if room < settings.least_tokens:
        raise ValueError(
            f'Expected prompts with room for shots={shots} texts of at least min_example_tokens='
            f'{settings.least_tokens}, got max_prompt_tokens={settings.max_prompt_tokens}, which leaves '
            f'{room} tokens for each. Raise --max-prompt-tokens, or lower --shots.'
        )


def digests(run: VotingRun) -> dict[str, str]:
    """Digest of the model, the embedder and the given texts."""
    settings, embedder = run.method, pathlib.Path(run.method.embedder)
    folders = [embedder] if embedder.is_dir() else []
    further = [*settings.embedder_digests, *([start_corpus.digest(run.start)] if run.start else [])]
    if not isinstance(settings, RefineSettings):
        if settings.adapter is not None:
            further.append(released.card_digest(settings.adapter))
        return {'model': model_digest.of_settings(settings, folders, further)}
    if settings.embedder == 'decoder':
        folders.append(settings.checkpoint_path)
    files = [
        path
        for folder in folders
        for path in ([folder] if folder.is_file() else folder.rglob('*'))
        if path.is_file()
    ]
    return {'model': ' '.join((digest_of_files(files), *further))}
