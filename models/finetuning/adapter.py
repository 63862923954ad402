"""The adapter: arrays by name, from the first ones to the released artefact that holds its guarantee.

An adapter holds low-rank factors, or a difference of all weights; "factors" means either here. The released
artefact is two files: `adapter.safetensors` with the factors in float32, and `adapter.json`, an
`AdapterCard`, which names the weights that they are added to, the privacy guarantee, and the kind of text
that the adapter was trained to write. Both are released: the adapter is the mechanism's output, and all text
sampled with it is post-processing.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import math
import typing
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from models.decoders import family
from models.privacy import codec, earlier_release
from models.privacy.accounting import subsampled
from models.privacy.earlier_release import EarlierRelease, TextOrigin
from models.privacy.events import DpEvent
from models.privacy.gradients import TuningParams
from models.privacy.params import Unit
from models.privacy.report import Tuned, composition
from models.privacy.report.tuned import STAGE
from models.prompt_templates import PromptTemplate

CARD, TENSORS = 'adapter.json', 'adapter.safetensors'


class Prompt(typing.TypedDict):
    """The words and lengths that fill a template: settings of the run, by their names.

    Attributes:
        label_name: The label's name in prompts.
        text_name: A text's name in prompts.
        corpus_description: The line that instructions may begin with.
        max_prompt_tokens: Longest instruction.
        max_example_tokens: Longest text.
        schema: Text for `{schema}`; None without.
    """

    label_name: str
    text_name: str
    corpus_description: str
    max_prompt_tokens: int
    max_example_tokens: int
    schema: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdapterCard:
    """The card of an adapter, with all that it may tell of the records that trained it. All of it is public.

    Attributes:
        schema: Kind of document.
        schema_version: Changes with every change that a reader has to know of.
        run_id: Public name of the run that trained it.
        dataset: Name of the records in the ledger that charged the run; None where it was charged to none.
        run_number: Its place among the charged runs on them; None where there is no ledger.
        model: Name of the model.
        weights: SHA-256 of the weights that the factors are added to.
        lora_rank: r of low-rank factors; None for a difference of all weights.
        factors: SHA-256 of `adapter.safetensors`.
        epsilon: At `delta`, under adding or removing one unit, of the adapter and of all releases that went
            into it, as far as they hide the same unit.
        epsilon_of_run: The same for the training alone, given what went in.
        delta: As set in the run that trained it.
        mechanism: Every number that the guarantee depends on.
        template: The prompt whose public form its texts are asked for with.
        prompt: The words that fill it, and lengths, by name.
        labels: The declared labels, each with its words where it has any: VALUE=WORDS; none for a run
            without labels. Of attributes their values, COLUMN:VALUE=WORDS.
        attributes: Columns of the attributes whose values are combined to labels; none where a label is one
            value.
        label_counts: Released noisy number of units of each label, whose price is in `epsilon`: texts have
            the labels in these shares unless another mix is asked for. None where the run counted none.
        warm_texts: Texts, no records, that it was trained on before the first private step; 0 for none.
        warm_vouched: True if some of them are of files of which nothing but the curator's word is known.
        releases: All releases that went in, each once: those of the warm start, and what went into these.
        commitment: To the run key of the run that trained it.
    """

    __pydantic_config__: ClassVar[Any] = codec.STRICT

    schema: Literal['dp-corpus/adapter'] = 'dp-corpus/adapter'
    schema_version: Literal[4] = 4
    run_id: str
    dataset: str | None
    run_number: int | None
    model: str
    weights: str
    lora_rank: int | None
    factors: str
    epsilon: float
    epsilon_of_run: float
    delta: float
    mechanism: TuningParams
    template: PromptTemplate
    prompt: Prompt
    labels: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    label_counts: tuple[int, ...] | None = None
    warm_texts: int = 0
    warm_vouched: bool = False
    releases: tuple[EarlierRelease, ...] = ()
    commitment: str | None = None

    def __post_init__(self) -> None:
        epsilon_of_run = subsampled.epsilon_of_event(self.mechanism.event, self.delta)
        if not math.isclose(epsilon_of_run, self.epsilon_of_run, rel_tol=1e-6):
            raise ValueError(
                'Expected the guarantee that the settings give, got epsilon_of_run='
                f'{self.epsilon_of_run!r} at delta={self.delta!r}, where they give {epsilon_of_run!r}. '
                'Restore adapter.json as it was released.'
            )
        composition.check(self.releases)
        counted = [release for release in self.releases if release.unit == self.unit]
        epsilon = composition.epsilon_with(self.epsilon_of_run, self.costs, counted, self.delta)
        if not math.isclose(epsilon, self.epsilon, rel_tol=1e-6):
            raise ValueError(
                'Expected epsilon of the training and of all releases that went in, got '
                f'epsilon={self.epsilon!r} at delta={self.delta!r}, where they give {epsilon!r}. Restore '
                'adapter.json as it was released.'
            )
        labels = None if self.mechanism.label_mix_rho is None else self._label_number
        if (None if self.label_counts is None else len(self.label_counts)) != labels:
            raise ValueError(
                f'Expected a noisy count of each label where they were paid for, and only there, got '
                f'label_counts={self.label_counts!r}, label_mix_rho={self.mechanism.label_mix_rho!r}, '
                f'labels={list(self.labels)!r}. Restore adapter.json as it was released.'
            )

    @property
    def _label_number(self) -> int:
        """Number of declared labels: for attributes the combinations of their values."""
        of_column = collections.Counter(entry.partition(':')[0] for entry in self.labels)
        if not self.attributes:
            return len(self.labels)
        return math.prod(of_column[name] for name in self.attributes)

    @property
    def unit(self) -> Unit:
        """The unit whose presence is hidden."""
        return self.mechanism.unit

    @property
    def costs(self) -> dict[str, DpEvent]:
        """The cost of the training, by stage."""
        return {STAGE: self.mechanism.event}

    @property
    def warm_start(self) -> TextOrigin:
        """The origin of the texts of the warm start."""
        return TextOrigin(releases=self.releases, vouched=self.warm_vouched)

    def handed_on(self, sampled_by: str | None = None) -> tuple[EarlierRelease, ...]:
        """This release and all that went into it, for a run that it goes into.

        `sampled_by` is the run that sampled the texts from it which go in; None where it goes in itself.
        """
        release = EarlierRelease(
            run_id=self.run_id,
            method=Tuned.did,
            unit=self.unit,
            epsilon=self.epsilon_of_run,
            delta=self.delta,
            costs=self.costs,
            dataset=self.dataset,
            run_number=self.run_number,
            charged_rho=None,
            identity=self.commitment or digest(self.to_json().encode()),
            told_by='card',
            sampled_by=sampled_by,
        )
        return earlier_release.handed_on(release, self.releases)

    def to_json(self) -> str:
        """The card as one JSON object."""
        return codec.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> AdapterCard:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: It is no card of this version, or states another guarantee than its settings give.
        """
        return codec.read(cls, text, f'{CARD} of this version', 'Restore it as it was released')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedAdapter:
    """An adapter that an earlier run released, for a run that decodes with it. All of it is public."""

    folder: str
    card: AdapterCard

    def read(self, data: bytes) -> Any:
        """The factors, as `Family.adapter_shapes` of the model has them.

        Raises:
            ValueError: They are not those of the card.
        """
        check_factors(self.card, data)
        return from_bytes(data, self.card.model, self.card.lora_rank)


def check_factors(card: AdapterCard, data: bytes) -> None:
    """Refuses factors that are not those of a card.

    Raises:
        ValueError: See above.
    """
    if (sha256 := digest(data)) != card.factors:
        raise ValueError(
            f'Expected the factors that the card of the adapter names, got {TENSORS} with SHA-256 '
            f'{sha256[:12]}…, not {card.factors[:12]}…. Its guarantee is of no other: restore both files as '
            'they were released.'
        )


def first(shapes: Any, rank: int | None, normals: Callable[[int], np.ndarray]) -> Any:
    """The adapter before training; it adds nothing (Hu et al. 2021, section 4.1).

    Args:
        shapes: `Family.adapter_shapes`.
        rank: Rank of the factors; None for a difference of all weights, which starts at zero.
        normals: Takes n and returns n draws from N(0, 1), public or from the run key, never from records.
    """
    import jax

    if rank is None:
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)
    named, tree = jax.tree_util.tree_flatten_with_path(shapes)
    sizes = [math.prod(leaf.shape) for _, leaf in named]
    drawn = np.split(normals(sum(sizes)), np.cumsum(sizes)[:-1])
    leaves = []
    for (path, leaf), of_leaf in zip(named, drawn, strict=True):
        values = np.zeros(leaf.shape, np.float32)
        if _name(path).endswith('down'):
            values = (of_leaf.reshape(leaf.shape) / math.sqrt(leaf.shape[0])).astype(np.float32)
        leaves.append(values)
    return jax.tree_util.tree_unflatten(tree, leaves)


def to_bytes(adapter: Any) -> bytes:
    """The factors as a safetensors file: the same bytes for the same numbers."""
    import jax

    named, _ = jax.tree_util.tree_flatten_with_path(adapter)
    return safetensors_numpy.save({_name(path): np.asarray(leaf, np.float32) for path, leaf in named})


def from_bytes(data: bytes, model: str, rank: int | None) -> Any:
    """Reads `to_bytes`, as `Family.adapter_shapes` of a model has it.

    Raises:
        ValueError: It is damaged, or the factors are another model's.
    """
    import jax

    try:
        arrays = safetensors_numpy.load(data)
    except safetensors.SafetensorError as error:
        raise ValueError(f'Expected {TENSORS} whole, got one that cannot be read. Restore it.') from error
    named, tree = jax.tree_util.tree_flatten_with_path(family.family_of(model).adapter_shapes(model, rank))
    expected = {_name(path): tuple(leaf.shape) for path, leaf in named}
    if expected != {name: array.shape for name, array in arrays.items()}:
        raise ValueError(
            f'Expected {in_words(rank)} for model={model!r}, got other names or shapes. Give the '
            'model that the adapter was trained on.'
        )
    return jax.tree_util.tree_unflatten(tree, [arrays[name] for name in expected])


def in_words(rank: int | None) -> str:
    """The content of an adapter, in words."""
    return 'a difference of all weights' if rank is None else f'factors of rank {rank}'


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _name(path: Any) -> str:
    import jax

    return jax.tree_util.keystr(path, simple=True, separator='.')
