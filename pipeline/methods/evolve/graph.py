"""What the rounds of a run are built from."""

import math
import pathlib
from typing import Any

from models.clustering.centers import ClusterSettings
from models.evolution.settings import EvolutionSettings
from models.privacy.earlier_release import TextOrigin
from models.sampling.endpoint import EndpointSettings, EndpointSource
from models.sampling.loading import SourceSettings
from models.sampling.settings import SamplerSettings
from pipeline.methods import earlier, start_corpus, workers
from pipeline.methods.evolve import mechanism
from pipeline.methods.evolve.mechanism import Config
from pipeline.methods.evolve.settings import TEXTS_TOGETHER, EvolveSettings


def prepare(config: Config, dtype: str) -> EvolutionSettings:
    """What workers sample, embed and vote with; checks the files of the model, the prompts and the start.

    Raises:
        FileNotFoundError: A file is not there.
        MissingExtraError: A library is not installed.
        ValueError: A prompt does not fit, a file is another one, or the endpoint's token is not there.
    """
    own, chosen, start = config.method, mechanism.resolved(config), config.method.start
    labels = len(config.input.label_values)
    embedder = _embedder(config, dtype)
    embedder.load_embedder()
    return EvolutionSettings(
        run_id=config.output.resolved_run_id,
        params=mechanism.params(config),
        labels=config.input.label_values,
        embedder=embedder,
        source=_source(config, dtype),
        examples=own.examples,
        candidates_per_label=math.ceil(chosen.candidates / labels),
        children_per_label=math.ceil(chosen.children / labels),
        unvoted_per_label=math.ceil(chosen.unvoted / labels),
        fresh_share=chosen.fresh_share,
        shots=chosen.shots,
        texts_together=TEXTS_TOGETHER,
        least_tokens=own.resolved_min_example_tokens,
        start=() if start is None else start_corpus.read_start(start, config.input, 'start'),
        start_origin=TextOrigin() if start is None else earlier.origin_of_texts(start, 'start'),
    )


def _embedder(config: Config, dtype: str) -> ClusterSettings:
    files = config.method.model_files
    return config.method.embedder_settings(config.method.model, files.checkpoint, files.tokenizer, dtype)


# Settings of prompts that an endpoint has no use for: it counts no tokens before it samples.
_OF_TOKENS = ('max_prompt_tokens', 'min_example_tokens', 'structure')


def _source(config: Config, dtype: str) -> SourceSettings:
    """Where texts come from."""
    own = config.method
    prompt = workers.prompt_settings(own, config.input)
    sampling: dict[str, Any] = {
        'max_example_tokens': own.max_example_tokens,
        'temperature': 1.0 if own.temperature is None else own.temperature,
        'top_p': own.top_p,
        'label_words': tuple(config.input.label_words.items()),
    }
    if own.endpoint is not None:
        words = {name: of for name, of in prompt.items() if name not in _OF_TOKENS}
        assert own.endpoint_model is not None  # `Evolution.check`
        endpoint = EndpointSettings(
            url=own.endpoint,
            model=own.endpoint_model,
            requests_at_once=own.endpoint_requests,
            token_variable=own.endpoint_token,
            **words,
            **sampling,
        )
        if config.runner.is_local:
            # Other machines may have the package and the token where this one has not.
            EndpointSource(endpoint)
        return endpoint
    found = SamplerSettings(
        **workers.model_settings(own, dtype),
        top_k=own.top_k,
        rows=own.resolved_micro_batch_size,
        **prompt,
        **sampling,
    )
    writer, chosen = found.writer(), mechanism.resolved(config)
    shows_texts = chosen.shots > 0 and (chosen.rounds > 1 or chosen.unvoted > 0)
    for label in config.input.label_values:
        writer.public_prompt(label)
        if shows_texts:
            _check_room(writer.room(label, chosen.shots), chosen.shots, own)
    return found


def _check_room(room: int, shots: int, own: EvolveSettings) -> None:
    """Refuses prompts of later rounds that would show less of a text than the shortest text has."""
    if room < own.resolved_min_example_tokens:
        raise ValueError(
            f'Expected prompts with room for shots={shots} texts of at least min_example_tokens='
            f'{own.resolved_min_example_tokens}, got max_prompt_tokens={own.max_prompt_tokens}, which leaves '
            f'{room} tokens for each. Raise --max-prompt-tokens, or lower --shots.'
        )


def further_files(config: Config) -> tuple[list[pathlib.Path], list[str]]:
    """(folders, digests) of what a run reads beside its model."""
    own, folders, digests = config.method, [], []
    if pathlib.Path(own.resolved_embedder).is_dir():
        folders.append(pathlib.Path(own.resolved_embedder))
    digests += own.embedder_digests
    if own.start is not None:
        digests.append(start_corpus.digest(start_corpus.read_start(own.start, config.input, 'start')))
    return folders, digests
