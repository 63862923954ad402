"""Settings of private prediction: how contexts vote, what groups them, what they are compared with."""

import dataclasses
import functools
import math
import pathlib
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

from models import bundled
from models.decoders import device
from models.decoders.device import Dtype
from models.privacy.aggregates import AGGREGATES, INDIVIDUAL_DIFFERENCE, Aggregate
from models.privacy.params import MechanismParams
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.method import MethodSettings
from pipeline.settings.output import Output
from pipeline.settings.structure import Structured
from pipeline.settings.text_votes import EMBEDDER_HELP, EMBEDDERS

_votes = functools.partial(panel.setting, 'Votes')
_clusters = functools.partial(panel.setting, 'Clusters')
_reference = functools.partial(panel.setting, 'Reference')
_structure = functools.partial(panel.setting, 'Structure')
_model = functools.partial(panel.setting, 'Model')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Votes(panel.Panel):
    """Settings of votes: how the contexts of a batch vote on a token, and how long."""

    batch_size: int = _votes('s: expected contexts per batch, the public divisor of every vote.', 64)
    aggregate: str = _votes(
        'How the votes of a batch are combined. The loss of a median is known afterwards only, and only to '
        'the curator; the difference from the public prompt needs a far smaller c than the mean.',
        'difference',
        choices=AGGREGATES,
    )
    clip_bound: float | None = _votes(
        'c: votes are clipped to [-c, c]. Default: '
        + ', '.join(f'{known.default_clip_bound:g} for the {name}' for name, known in AGGREGATES.items())
        + f', {INDIVIDUAL_DIFFERENCE.default_clip_bound:g} with individual accounting.',
        None,
    )
    temperature: float | None = _votes(
        'Temperature of private tokens. Default: '
        + ', '.join(f'{known.default_temperature:g} for the {name}' for name, known in AGGREGATES.items())
        + '.',
        None,
    )
    threshold: float | None = _votes(
        'Distance in [0, 2] above which a token is private; without it every token is.', None
    )
    threshold_noise_scale: float | None = _votes('Laplace scale of the threshold; needs --threshold.', None)
    accounting: typing.Literal['individual', 'worst-case'] | None = _votes(
        'Who pays for a token. individual: each context what it gives itself, and it votes as long as its '
        'own budget lasts; --max-batch-tokens ends a batch. worst-case: all the same, what any could give. '
        'Default: individual for the difference without --threshold, else worst-case.',
        None,
    )
    max_private_tokens: int | None = _votes(
        'r: cap on private tokens of a batch, which the guarantee is stated for, with worst-case accounting.',
        None,
        instead_of='epsilon',
    )
    context_budget: float | None = _votes(
        'B: what one context may spend, in rho, with individual accounting.', None, instead_of='epsilon'
    )
    omega: float | None = _votes(
        'Largest Renyi order of individual accounting. Default: chosen for the target; with --ledger the '
        'order at which the target converts best.',
        None,
    )
    shift_bound: float | None = _votes(
        'c2: up to here all votes together lift a score in full, and beyond it ever less; in nats, with '
        'individual accounting. Default: '
        f'{INDIVIDUAL_DIFFERENCE.default_shift_bound:g}.',
        None,
    )
    batches_per_label: int | None = _votes(
        'Batches of each label. Without it they follow from a noisy count, charged to the budget.', None
    )
    count_rho: float = _votes('rho of the noisy count, where one is drawn without --clusters.', 0.005)
    public_temperature: float = _votes('Temperature of public tokens.', 1.5)
    public_top_k: int | None = _votes(
        'K: sample only from the K most probable public tokens, so that a step computes their logits alone; '
        '0 for the whole vocabulary. Default: '
        + ', '.join(
            f'{known.default_public_top_k or "the whole vocabulary"} for the {name}'
            for name, known in AGGREGATES.items()
        )
        + '.',
        None,
    )
    examples: int | None = _votes(
        'Texts wanted, about: from the declared records and epsilon follow the size of a batch, its cap and '
        'the share of the records that is used, where they are not given. Default: as many as all batches '
        'write.',
        None,
    )
    max_batch_tokens: int | None = _votes(
        'Cap on all tokens of a batch, public ones too. Default: r, or 8 r with --threshold; with '
        'individual accounting 16 times the tokens that any context is paid for, and 1024 at most.',
        None,
    )

    def check(self) -> None:
        # The mechanism checks its own settings (`MechanismParams`).
        if self.public_top_k is not None and self.public_top_k < 0:
            raise ValueError(
                f'Expected public_top_k >= 0, got public_top_k={self.public_top_k}. Give a positive whole '
                'number, or 0 for the whole vocabulary.'
            )
        if self.batches_per_label is None:
            self._check_finite('count_rho')
        self._check_positive('batches_per_label', 'examples')

    def check_budget(self, budget: Budget) -> None:
        """Refuses a budget that this mechanism cannot have."""
        has_price = AGGREGATES[self.aggregate].has_price_in_advance
        if budget.epsilon is not None and not has_price:
            raise ValueError(
                f'Expected no epsilon with aggregate={self.aggregate!r}, got epsilon={budget.epsilon!r}. '
                'Its loss is a function of the records and the output, so no number of tokens can be solved '
                'for in advance: give --max-private-tokens, and the curator learns the loss after the run.'
            )
        if budget.ledger is not None and not has_price:
            raise ValueError(
                f'Expected no dataset with aggregate={self.aggregate!r}, got dataset={budget.dataset!r}. It '
                'has no price that could be charged before it runs. Use another aggregate, or leave the '
                "ledger out and count the run against the records' budget yourself."
            )
        self._check_accounting(budget)

    def _check_accounting(self, budget: Budget) -> None:
        if not self.is_individual:
            for name in ('context_budget', 'omega', 'shift_bound'):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(
                        f'Expected {name} with individual accounting only, got {name}={value!r}, '
                        f'aggregate={self.aggregate!r}, accounting={self.accounting!r}, '
                        f'threshold={self.threshold!r}. Leave it out, or give --accounting individual '
                        '--aggregate difference without --threshold.'
                    )
            budget.check_either('max_private_tokens', self.max_private_tokens)
            return
        if not AGGREGATES[self.aggregate].takes_reference or self.threshold is not None:
            raise ValueError(
                "Expected aggregate='difference' without a threshold for individual accounting, got "
                f'aggregate={self.aggregate!r}, threshold={self.threshold!r}. Votes of a mean or a median '
                'span the clip range at every token, and a token on which contexts and the public prompt '
                'agree costs next to nothing without a test: give --accounting worst-case, or --aggregate '
                'difference and no --threshold.'
            )
        if self.max_private_tokens is not None:
            raise ValueError(
                'Expected no max_private_tokens with individual accounting, got '
                f'max_private_tokens={self.max_private_tokens!r}, accounting={self.accounting!r}. Give '
                '--accounting worst-case to charge all contexts the same for each of them; or leave it out, '
                'and give --max-batch-tokens to end a batch, with --epsilon or --context-budget.'
            )
        more = ', or give --accounting worst-case with --max-private-tokens'
        budget.check_either('context_budget', self.context_budget, more)
        self._check_finite('context_budget', 'shift_bound')
        self._check_finite('omega', above=1)

    @property
    def is_individual(self) -> bool:
        """True if each context is charged what it gives itself: as given, or what the aggregate allows."""
        if self.accounting is not None:
            return self.accounting == 'individual'
        return AGGREGATES[self.aggregate].takes_reference and self.threshold is None

    @property
    def strategy(self) -> Aggregate:
        """The aggregate as it is accounted for."""
        return INDIVIDUAL_DIFFERENCE if self.is_individual else AGGREGATES[self.aggregate]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clusters(panel.Panel):
    """Settings of clusters of the records of a label, if there are any (METHOD 3)."""

    clusters: int | None = _clusters(
        'Group similar records: public centres kept for each label. Without it, labels alone make groups.',
        None,
    )
    clustering_rho: float = _clusters('rho of the two noisy counts of --clusters, half for each.', 0.005)
    centers: str | None = _clusters(
        "Folder of public centres, as `dp-corpus centers` writes it. Default: the package's, for tfidf.",
        None,
        path='file',
    )
    embedder: str = _clusters(
        EMBEDDER_HELP,
        'tfidf',
        path='file',
        presets=EMBEDDERS,
    )

    def check(self) -> None:
        self._check_beside('clusters', 'clustering_rho', 'centers', 'embedder')
        if self.embedder != 'tfidf' and self.centers is None:
            raise ValueError(
                f'Expected centers for embedder={self.embedder!r}, got centers=None. Fit some on a public '
                'corpus with `dp-corpus centers`; the package has centres for tfidf only.'
            )
        self._check_finite('clustering_rho')
        self._check_positive('clusters')

    @property
    def centers_path(self) -> pathlib.Path:
        return pathlib.Path(self.centers) if self.centers else bundled.FOLDER / 'centers'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference(panel.Panel):
    """Settings of the public texts that the records are compared with."""

    reference: str | None = _reference(
        "Public texts of the records' own genre, whose prediction the difference is taken from: files like "
        'those of --input, or the folder of an earlier release. Choose them without a look at the records.',
        None,
        path='patterns',
    )
    reference_label_field: str | None = _reference(
        'Column of the label in the files of --reference. Without it all texts serve all labels.',
        None,
        names_path=False,
    )
    reference_size: int = _reference('M: reference texts of each label.', 8)
    reference_rounds: int | None = _reference(
        '2: a tenth of the batches of each label is decoded first, and texts that they release are the '
        'reference of the others. 1: without. Default: 2 for the difference without --reference, else 1.',
        None,
    )

    def check(self) -> None:
        if self.reference_rounds not in (None, 1, 2):
            raise ValueError(
                f'Expected reference_rounds 1 or 2, got reference_rounds={self.reference_rounds}. Give 2 for '
                'a reference from the run itself, or 1.'
            )
        self._check_beside('reference', 'reference_label_field')
        if self.reference is not None and self.reference_rounds == 2:
            raise ValueError(
                f'Expected one source of the reference, got reference={self.reference!r}, '
                'reference_rounds=2. Leave out --reference, or --reference-rounds.'
            )
        self._check_positive('reference_size')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells(panel.Panel):
    """Settings of the values that examples are given in the shares of the records."""

    condition_on: tuple[str, ...] = _structure(
        'Declared fields of --json-schema, comma-separated, each an enum, a boolean or a const, whose mix '
        'the corpus takes from the records: contexts are counted by their values, with noise, and every '
        'example is given values in the released shares. Declare them first: what comes before them in an '
        'example does not hang on them.',
        (),
        names_path=False,
    )
    condition_rho: float = _structure('rho of the noisy counts of --condition-on.', 0.005)

    def check(self) -> None:
        self._check_beside('condition_on', 'condition_rho')
        self._check_finite('condition_rho')

    @property
    def cell_count_rho(self) -> float:
        """rho that the run spends on the noisy counts of cells: 0 where none are counted."""
        return self.condition_rho if self.condition_on else 0.0


NAME = 'predict'


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(Votes, Clusters, Reference, Cells, Structured, MethodSettings):
    """Batches of records vote on every token of a frozen model (METHOD 1 to 5)."""

    name: ClassVar[str] = NAME
    panels: ClassVar[tuple[str, ...]] = ('Votes', 'Clusters', 'Reference', 'Prompt', 'Structure', 'Model')
    added_help: ClassVar[Mapping[str, str]] = {
        'dtype': 'And float32 for the difference on any processor, since it is what is left of two '
        'predictions that nearly agree, and where the model embeds records for clusters.',
        'micro_batch_size': 'Default: enough for a typical batch.',
    }

    adapter: str | None = _model(
        'Folder of a finished fine-tuning run, or of its adapter: records vote on what the model predicts '
        'with it. What it cost comes on top.',
        None,
        path='file',
    )

    def check(self) -> None:
        if self.clusters is not None and self.batches_per_label is not None:
            raise ValueError(
                f'Expected clusters or batches_per_label, got clusters={self.clusters!r}, '
                f'batches_per_label={self.batches_per_label!r}. How many batches a cluster fills is counted, '
                'with noise: leave --batches-per-label out.'
            )
        has_reference = self.reference is not None or self.reference_rounds == 2
        if has_reference and not AGGREGATES[self.aggregate].takes_reference:
            raise ValueError(
                f"Expected aggregate='difference' with a reference, got aggregate={self.aggregate!r}, "
                f'reference={self.reference!r}, reference_rounds={self.reference_rounds}. Only a difference '
                'is taken from one: give --aggregate difference, or leave the reference out.'
            )

    def check_run(self, declared: Input, budget: Budget, output: Output, delta: float | None) -> None:
        if self.reference_label_field is not None and not declared.labels:
            raise ValueError(
                'Expected labels with reference_label_field, got '
                f'reference_label_field={self.reference_label_field!r}, labels=[]. Declare --labels, or '
                'leave it out: all texts then serve.'
            )
        self.label_attributes(declared)
        self.unsolved(budget)  # the mechanism checks its own settings
        _ = self.structure  # a schema checks itself

    def unsolved(self, budget: Budget) -> MechanismParams:
        """The mechanism as far as it is given: of what epsilon is solved for it has any value."""
        # 0 asks for the whole vocabulary.
        public_top_k = _or(self.public_top_k, self.strategy.default_public_top_k) or None
        if self.is_individual and public_top_k is None:
            raise ValueError(
                'Expected public_top_k >= 1 with individual accounting, got '
                f'public_top_k={self.public_top_k!r}, the whole vocabulary. Give the tokens that may be '
                'voted on, such as --public-top-k 1024, or give --accounting worst-case.'
            )
        of_accounting: dict[str, Any] = {'max_private_tokens': _or(self.max_private_tokens, 1)}
        if self.is_individual:
            of_accounting = {
                'accounting': 'individual',
                'shift_bound': _or(self.shift_bound, INDIVIDUAL_DIFFERENCE.default_shift_bound),
                'context_budget': 1.0,
                'omega': _or(self.omega, 1.5),
            }
        return MechanismParams(
            batch_size=self.batch_size,
            clip_bound=_or(self.clip_bound, self.strategy.default_clip_bound),
            temperature=_or(self.temperature, self.strategy.default_temperature),
            threshold=self.threshold,
            threshold_noise_scale=self.threshold_noise_scale,
            public_temperature=self.public_temperature,
            public_top_k=public_top_k,
            max_example_tokens=self.max_example_tokens,
            unit=budget.unit,
            examples_per_context=budget.examples_per_context,
            aggregate=self.aggregate,
            max_batch_tokens=_or(self.max_batch_tokens, 1),
            **of_accounting,
        )

    def fastest_dtype(self, platform: str | None = None) -> Dtype:
        # Centres are of one type, whatever machine embeds the records.
        embeds = self.clusters is not None and self.embedder == 'decoder'
        if embeds or (self.strategy.takes_reference and (platform or device.platform_here()) == 'cpu'):
            return 'float32'
        return device.fastest_dtype(platform)

    @property
    def counted_fields(self) -> tuple[str, ...]:
        return self.condition_on

    @property
    def decoding_rounds(self) -> int:
        """Rounds of batches: 2 where the first one releases the reference of the others."""
        if self.reference_rounds is not None:
            return self.reference_rounds
        return 2 if AGGREGATES[self.aggregate].takes_reference and self.reference is None else 1

    @property
    def rows_together(self) -> int:
        """Rows that go through the model together: those of a full batch, and the public ones.

        Public, so that the shape of a program never tells a batch's size. Hashed batches vary by about
        √s; a full one has s + 2√s contexts. Of those of s = 255 three in a hundred are larger, and take a
        second micro-batch.
        """
        with_reference = self.reference is not None or self.decoding_rounds == 2
        public = self.reference_size if with_reference else 1
        return self.micro_batch_size or self.batch_size + 2 * math.isqrt(self.batch_size) + public

    @property
    def noisy_count_rho(self) -> float:
        """rho that the run spends on noisy counts: 0 where the batches are given."""
        if self.clusters is not None:
            return self.clustering_rho
        return self.count_rho if self.batches_per_label is None else 0.0

    @property
    def other_rho(self) -> float:
        """rho of all that the run releases beside its text."""
        return self.noisy_count_rho + self.cell_count_rho


def _or[T](value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value
