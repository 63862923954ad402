"""Settings of privacy: the unit, the budget, the mechanism, the clusters and the ledger."""

import dataclasses
import functools
import math
import pathlib
import re
import typing

from models import bundled
from models.privacy.aggregates import AGGREGATES, INDIVIDUAL_DIFFERENCE, Aggregate
from pipeline import methods
from pipeline.config import panel

_setting = functools.partial(panel.setting, 'Privacy')

DEFAULT_CLUSTERING_RHO = 0.005
DEFAULT_CONDITION_RHO = 0.005
# Other embedders are folders of weights.
EMBEDDERS = ('tfidf', 'minilm', 'decoder')
_PASSWORD = re.compile(r'^[^:/?#]+://[^/?#@]*:[^/?#]*@|[?&](?:password|sslpassword)=')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Privacy(panel.Panel):
    """What is promised, what it may cost, and who is told."""

    method: str = _setting(
        'What makes a corpus of the records: '
        + '; '.join(f'{method.name}, {method.summary}' for method in methods.METHODS.values())
        + '.',
        'predict',
        choices=methods.METHODS,
    )
    unit: typing.Literal['example', 'user'] = _setting(
        'Unit of privacy: one record, or all records that share a unit id.', 'example'
    )
    examples_per_context: int = _setting(
        'k: records that may share one context. Without unit ids, k > 1 costs 4 times the rho.', 1
    )
    epsilon: float | None = _setting(
        'Target epsilon; the run then solves for --context-budget, or for --max-private-tokens.', None
    )
    delta: float | None = _setting('delta. Without it, records ** -1.1 of the declared --records.', None)
    batch_size: int = _setting('s: expected contexts per batch, the public divisor of every vote.', 64)
    clip_bound: float | None = _setting(
        'c: votes are clipped to [-c, c]. Default: '
        + ', '.join(f'{known.default_clip_bound:g} for the {name}' for name, known in AGGREGATES.items())
        + f', {INDIVIDUAL_DIFFERENCE.default_clip_bound:g} with individual accounting.',
        None,
    )
    temperature: float | None = _setting(
        'Temperature of private tokens. Default: '
        + ', '.join(f'{known.default_temperature:g} for the {name}' for name, known in AGGREGATES.items())
        + '.',
        None,
    )
    threshold: float | None = _setting(
        'Distance in [0, 2] above which a token is private; without it every token is.', None
    )
    threshold_noise_scale: float | None = _setting('Laplace scale of the threshold; needs --threshold.', None)
    max_private_tokens: int | None = _setting(
        'r: cap on private tokens of a batch, which the guarantee is stated for, with worst-case accounting.',
        None,
    )
    accounting: typing.Literal['individual', 'worst-case'] | None = _setting(
        'Who pays for a token. individual: each context what it gives itself, and it votes as long as its '
        'own budget lasts; --max-batch-tokens ends a batch. worst-case: all the same, what any could give. '
        'Default: individual for the difference without --threshold, else worst-case.',
        None,
    )
    context_budget: float | None = _setting(
        'B: what one context may spend, in rho, with individual accounting.', None
    )
    omega: float | None = _setting(
        'Largest Renyi order of individual accounting. Default: chosen for the target; with --ledger the '
        'order at which the target converts best.',
        None,
    )
    shift_bound: float | None = _setting(
        'c2: up to here all votes together lift a score in full, and beyond it ever less; in nats, with '
        'individual accounting. Default: '
        f'{INDIVIDUAL_DIFFERENCE.default_shift_bound:g}.',
        None,
    )
    batches_per_label: int | None = _setting(
        'Batches of each label. Without it they follow from a noisy count, charged to the budget.', None
    )
    count_rho: float = _setting('rho of the noisy count, where one is drawn without --clusters.', 0.005)
    aggregate: str = _setting(
        'How the votes of a batch are combined. The loss of a median is known afterwards only, and only to '
        'the curator; the difference from the public prompt needs a far smaller c than the mean.',
        'difference',
        choices=AGGREGATES,
    )
    clusters: int | None = _setting(
        'Group similar records: public centres kept for each label. Without it, labels alone make groups.',
        None,
    )
    clustering_rho: float | None = _setting(
        'rho of the two noisy counts of --clusters, half for each. Default: 0.005.', None
    )
    condition_rho: float | None = _setting('rho of the noisy counts of --condition-on. Default: 0.005.', None)
    centers: str | None = _setting(
        "Folder of public centres, as `dp-corpus centers` writes it. Default: the package's, for tfidf.",
        None,
    )
    embedder: str | None = _setting(
        "What tells how alike texts are: tfidf, minilm, decoder (the model's own), or a folder of MiniLM "
        'weights. Default: tfidf.',
        None,
    )
    reference: str | None = _setting(
        "Public texts of the records' own genre, whose prediction the difference is taken from: files like "
        'those of --input, or the folder of an earlier release. Choose them without a look at the records.',
        None,
    )
    reference_label_field: str | None = _setting(
        'Column of the label in the files of --reference. Without it all texts serve all labels.',
        None,
        names_path=False,
    )
    reference_size: int = _setting('M: reference texts of each label.', 8)
    reference_rounds: int | None = _setting(
        '2: a tenth of the batches of each label is decoded first, and texts that they release are the '
        'reference of the others. 1: without. Default: 2 for the difference without --reference, else 1.',
        None,
    )
    dataset: str | None = _setting(
        "Name of the records in a ledger, which charges this run to the dataset's budget before its first "
        'token. Needs --ledger.',
        None,
        names_path=False,
    )
    ledger: str | None = _setting(
        'Ledger of all runs: a SQLite file, or a database URL (postgresql://user@host/name).', None
    )

    def check(self) -> None:
        if not self.votes:
            self._check_delta()
            self._check_ledger()
            return
        if self.epsilon is not None and not AGGREGATES[self.aggregate].has_price_in_advance:
            raise ValueError(
                f'Expected no epsilon with aggregate={self.aggregate!r}, got epsilon={self.epsilon!r}. '
                'Its loss is a function of the records and the output, so no number of tokens can be solved '
                'for in advance: give --max-private-tokens, and the curator learns the loss after the run.'
            )
        self._check_ledger()
        self._check_accounting()
        self._check_delta()
        if self.unit == 'user' and self.centers_source == 'dp-k-means':
            raise ValueError(
                f"Expected public centres with unit='user', got centers={self.centers!r} of DP k-means, "
                "whose price is that of one record. Use public centres, or unit='example'."
            )
        if self.batches_per_label is None and not (self.count_rho > 0 and math.isfinite(self.count_rho)):
            raise ValueError(
                f'Expected count_rho > 0 for the noisy count, got count_rho={self.count_rho}. '
                'Or give --batches-per-label, which needs no count.'
            )
        self._check_clusters()
        self._check_reference()
        self._check_positive('batches_per_label', 'clusters', 'reference_size')

    def _check_delta(self) -> None:
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(
                f'Expected 0 < delta < 1, got delta={self.delta}. A usual choice is records ** -1.1.'
            )

    def _check_accounting(self) -> None:
        if not self.is_individual:
            for name in ('context_budget', 'omega', 'shift_bound'):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(
                        f'Expected {name} with individual accounting only, got {name}={value!r}, '
                        f'aggregate={self.aggregate!r}, accounting={self.accounting!r}, '
                        f'threshold={self.threshold!r}. Leave it out, or give --accounting individual '
                        '--aggregate difference without --threshold.'
                    )
            if (self.epsilon is None) == (self.max_private_tokens is None):
                raise ValueError(
                    f'Expected either epsilon or max_private_tokens, got epsilon={self.epsilon!r}, '
                    f'max_private_tokens={self.max_private_tokens!r}. Each follows from the other: give one.'
                )
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
        if (self.epsilon is None) == (self.context_budget is None):
            raise ValueError(
                f'Expected either epsilon or context_budget, got epsilon={self.epsilon!r}, '
                f'context_budget={self.context_budget!r}. Each follows from the other: give one, or give '
                '--accounting worst-case with --max-private-tokens.'
            )
        for name, least in (('context_budget', 0), ('shift_bound', 0), ('omega', 1)):
            value = getattr(self, name)
            if value is not None and not (value > least and math.isfinite(value)):
                raise ValueError(
                    f'Expected a finite {name} > {least}, got {name}={value!r}. Give '
                    f'--{name.replace("_", "-")} a number in that range, or leave it out.'
                )

    def _check_ledger(self) -> None:
        if (self.dataset is None) != (self.ledger is None):
            raise ValueError(
                f'Expected dataset and ledger together or not at all, got dataset={self.dataset!r}, '
                f'ledger={"given" if self.ledger else None}. The ledger charges the run to the dataset.'
            )
        if self.ledger is None:
            return
        if _PASSWORD.search(self.ledger):
            # Neither a process list nor a config file is a place for one.
            raise ValueError(
                'Expected a ledger URL without a password, got one with it. Leave it out and give '
                'PGPASSWORD or PGPASSFILE in the environment.'
            )
        if not AGGREGATES[self.aggregate].has_price_in_advance:
            raise ValueError(
                f'Expected no dataset with aggregate={self.aggregate!r}, got dataset={self.dataset!r}. It '
                'has no price that could be charged before it runs. Use another aggregate, or leave the '
                "ledger out and count the run against the records' budget yourself."
            )
        if self.centers_source == 'k-means':
            raise ValueError(
                f'Expected centres with a price with a dataset, got dataset={self.dataset!r}, '
                f'centers={self.centers!r} of plain k-means, which void every guarantee. Use public centres.'
            )

    def _check_clusters(self) -> None:
        if self.clusters is None:
            for name in ('clustering_rho', 'centers', 'embedder'):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(
                        f'Expected {name} with clusters only, got {name}={value!r}, clusters=None. '
                        'Give --clusters too, or leave it out.'
                    )
        elif self.batches_per_label is not None:
            raise ValueError(
                f'Expected clusters or batches_per_label, got clusters={self.clusters!r}, '
                f'batches_per_label={self.batches_per_label!r}. How many batches a cluster fills is counted, '
                'with noise: leave --batches-per-label out.'
            )
        elif not (self.resolved_clustering_rho > 0 and math.isfinite(self.resolved_clustering_rho)):
            raise ValueError(
                f'Expected clustering_rho > 0, got clustering_rho={self.clustering_rho}. '
                'Counts without noise cannot be released.'
            )
        elif self.resolved_embedder != 'tfidf' and self.centers is None:
            raise ValueError(
                f'Expected centers for embedder={self.embedder!r}, got centers=None. Fit some on a public '
                'corpus with `dp-corpus centers`; the package has centres for tfidf only.'
            )

    def _check_reference(self) -> None:
        if self.reference_rounds not in (None, 1, 2):
            raise ValueError(
                f'Expected reference_rounds 1 or 2, got reference_rounds={self.reference_rounds}. Give 2 for '
                'a reference from the run itself, or 1.'
            )
        if self.reference is None and self.reference_label_field is not None:
            raise ValueError(
                'Expected reference_label_field with reference only, got '
                f'reference_label_field={self.reference_label_field!r}, reference=None. Give --reference '
                'too, or leave it out.'
            )
        if self.reference is not None and self.reference_rounds == 2:
            raise ValueError(
                f'Expected one source of the reference, got reference={self.reference!r}, '
                'reference_rounds=2. Leave out --reference, or --reference-rounds.'
            )
        given = self.reference is not None or self.reference_rounds == 2
        if given and not AGGREGATES[self.aggregate].takes_reference:
            raise ValueError(
                f"Expected aggregate='difference' with a reference, got aggregate={self.aggregate!r}, "
                f'reference={self.reference!r}, reference_rounds={self.reference_rounds}. Only a difference '
                'is taken from one: give --aggregate difference, or leave the reference out.'
            )

    @property
    def votes(self) -> bool:
        """Whether batches of contexts vote on tokens: whether the mechanism is private prediction's."""
        return methods.METHODS[self.method].votes

    @property
    def resolved_reference_rounds(self) -> int:
        """Rounds of batches: 2 where the first one releases the reference of the others."""
        if self.reference_rounds is not None:
            return self.reference_rounds
        return 2 if AGGREGATES[self.aggregate].takes_reference and self.reference is None else 1

    @property
    def is_individual(self) -> bool:
        """Whether each context is charged what it gives itself: as given, or what the aggregate allows."""
        if not self.votes:
            return False
        if self.accounting is not None:
            return self.accounting == 'individual'
        return AGGREGATES[self.aggregate].takes_reference and self.threshold is None

    @property
    def strategy(self) -> Aggregate:
        """The aggregate as it is accounted for."""
        return INDIVIDUAL_DIFFERENCE if self.is_individual else AGGREGATES[self.aggregate]

    @property
    def resolved_shift_bound(self) -> float:
        """c₂ as given, or the default of individual accounting."""
        return INDIVIDUAL_DIFFERENCE.default_shift_bound if self.shift_bound is None else self.shift_bound

    @property
    def resolved_clip_bound(self) -> float:
        """c as given, or what suits the aggregate."""
        if self.clip_bound is not None:
            return self.clip_bound
        return self.strategy.default_clip_bound

    @property
    def resolved_temperature(self) -> float:
        """τ as given, or what suits the aggregate."""
        if self.temperature is not None:
            return self.temperature
        return self.strategy.default_temperature

    @property
    def resolved_clustering_rho(self) -> float:
        """rho of both noisy counts of a clustered run, as given or METHOD 3's default."""
        return DEFAULT_CLUSTERING_RHO if self.clustering_rho is None else self.clustering_rho

    @property
    def resolved_condition_rho(self) -> float:
        """rho of the noisy counts of cells, as given or what the counts of labels cost."""
        return DEFAULT_CONDITION_RHO if self.condition_rho is None else self.condition_rho

    @property
    def resolved_embedder(self) -> str:
        """The embedder as given, or the default that needs no weights."""
        return self.embedder or 'tfidf'

    @property
    def centers_path(self) -> pathlib.Path:
        """Where the public centres are."""
        return pathlib.Path(self.centers) if self.centers else bundled.FOLDER / 'centers'

    @functools.cached_property
    def centers_source(self) -> str | None:
        """Source of the centres: 'public', or 'k-means' and 'dp-k-means' for comparisons; None without."""
        return None if self.clusters is None else self._centers_facts[0]

    @functools.cached_property
    def centers_rho(self) -> float:
        """rho that the centres themselves cost: 0 for public ones."""
        return 0.0 if self.clusters is None else self._centers_facts[1]

    @functools.cached_property
    def _centers_facts(self) -> tuple[str, float]:
        """Source and rho; reads the artefact's small file, and only one that was named."""
        if self.centers is None:
            return 'public', 0.0
        from models.clustering.centers import Centers

        centers = Centers.read(self.centers)
        return centers.source, centers.rho

    @property
    def noisy_count_rho(self) -> float:
        """rho that the run spends on noisy counts: 0 where the batches are given."""
        if not self.votes:
            return 0.0
        if self.clusters is not None:
            return self.resolved_clustering_rho
        return self.count_rho if self.batches_per_label is None else 0.0
