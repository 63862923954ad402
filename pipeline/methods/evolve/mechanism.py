"""The mechanism of a run as its settings give it, and its planned batches."""

import math

from models.batch_plan import BatchPlan
from models.evolution.defaults import Defaults
from models.privacy.text_votes import TextVoteParams
from pipeline.methods.evolve.settings import TEXTS_TOGETHER, EvolveSettings
from pipeline.settings.job_config import JobConfig

type Config = JobConfig[EvolveSettings]


def params(config: Config) -> TextVoteParams:
    """The mechanism, with the noise solved for where epsilon was given.

    Raises:
        ValueError: A setting out of range, or an epsilon that no noise gives.
    """
    return config.method.mechanism(config.input, config.budget, config.resolved_delta)


def resolved(config: Config) -> Defaults:
    """Rounds, candidates and what else follows from public numbers."""
    return config.method.resolved(config.input, config.budget, config.resolved_delta)


def texts_per_label(config: Config) -> tuple[int, ...]:
    """Texts that are sampled for each label in each round, and last those after the last vote."""
    found, labels = resolved(config), len(config.input.label_values)
    first = 0 if config.method.start is not None else found.candidates
    texts = (first, *(found.children,) * (found.rounds - 1), found.unvoted)
    return tuple(math.ceil(number / labels) for number in texts)


def sampled_texts(config: Config) -> int:
    """Texts that the run samples, of all labels and rounds."""
    return len(config.input.label_values) * sum(texts_per_label(config))


def configured_plan(config: Config) -> BatchPlan:
    """The plan of batches of sampled texts; a given list counts as one of each label."""
    batches = int(config.method.start is not None)
    batches += sum(math.ceil(texts / TEXTS_TOGETHER) for texts in texts_per_label(config))
    labels = config.input.label_values
    return BatchPlan(
        labels=labels,
        batches_per_group=(max(1, batches),) * len(labels),
        noisy_counts=None,
        contexts_rho=0.0,
    )
