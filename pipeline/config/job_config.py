"""All panels of settings as one config, and what follows from several of them."""

import dataclasses
import math
import typing
from typing import Any

import tomli_w

from models import bundled
from models.attributes import Attribute
from models.finetuning import label_mix
from models.privacy import accounting
from models.privacy.params import MechanismParams
from pipeline import fine_tuning
from pipeline.config.generation import Generation
from pipeline.config.input import Input
from pipeline.config.model import Model
from pipeline.config.output import Output
from pipeline.config.panel import setting_types
from pipeline.config.privacy import Privacy
from pipeline.config.runner import Runner
from pipeline.config.tuning import Tuning
from pipeline.methods import METHODS

DEFAULT_BATCH_TOKENS_PER_PRIVATE_TOKEN = 8
# Of tokens that a context is paid for that adds the whole clip bound to each: others vote for longer.
DEFAULT_BATCH_TOKENS_PER_WORST_CASE_TOKEN = 16
# A large budget is better spent on a larger clip bound than on ever longer batches.
MOST_DEFAULT_BATCH_TOKENS = 1024
# Units whose gradients are computed together, and texts that are sampled together.
DEFAULT_TUNING_MICRO_BATCH = 16
# Of these gradients of all weights are held together, in numbers: 1 GiB.
MOST_GRADIENT_NUMBERS = 2**28
# In the order of --help.
PANELS = (Input, Privacy, Generation, Tuning, Model, Output, Runner)


@dataclasses.dataclass(frozen=True, kw_only=True)
# Fields come from the last base to the first.
class JobConfig(Runner, Output, Model, Tuning, Generation, Privacy, Input):
    """One run's settings: the fields of every panel, flat.

    `input` and `output` may be None for `plan`, which reads and writes nothing.
    """

    def check(self) -> None:
        for panel in PANELS:
            panel.check(self)
        if self.delta is None and self.records is None and self.reads_records:
            raise ValueError(
                'Expected delta or a declared number of records, got delta=None, records=None. '
                'Give --delta, or --records N for delta = N ** -1.1. The true number is private, never used.'
            )
        if (self.unit == 'user') != (self.unit_field is not None):
            raise ValueError(
                f"Expected unit_field exactly with unit='user', got unit={self.unit!r}, "
                f'unit_field={self.unit_field!r}. Name the column of the user ids and pass --unit user.'
            )
        if self.reference_label_field is not None and not self.labels:
            raise ValueError(
                'Expected labels with reference_label_field, got '
                f'reference_label_field={self.reference_label_field!r}, labels=[]. Declare --labels, or '
                'leave it out: all texts then serve.'
            )
        if self.condition_rho is not None and not self.condition_on:
            raise ValueError(
                f'Expected condition_rho with condition_on only, got condition_rho={self.condition_rho!r}, '
                'condition_on=[]. Give --condition-on too, or leave it out.'
            )
        if not (self.resolved_condition_rho > 0 and math.isfinite(self.resolved_condition_rho)):
            raise ValueError(
                f'Expected condition_rho > 0, got condition_rho={self.condition_rho}. Counts without noise '
                'cannot be released.'
            )
        _ = self.label_attributes
        METHODS[self.method].check(self)

    @property
    def label_attributes(self) -> tuple[Attribute, ...]:
        """The attributes of every label, with what prompts call them; empty where it is one value.

        Raises:
            ValueError: `label_name` names something else than attributes.
        """
        if not self.attributes:
            return ()
        names = {name: name for name in self.attributes}
        if self.label_name != type(self).label_name:
            for entry in self.label_name.split(','):
                column, _, name = map(str.strip, entry.partition('='))
                if column not in names or not name:
                    raise ValueError(
                        'Expected COLUMN=NAME of attributes in label_name, got '
                        f'label_name={self.label_name!r}, attributes={list(self.attributes)!r}. Give '
                        f"--label-name '{self.attributes[0]}=About', say, or leave it out: an attribute is "
                        'called as its column is.'
                    )
                names[column] = name
        return tuple(
            Attribute(
                column=column,
                name=names[column],
                words=tuple((value, of or value) for value, of in words.items()),
            )
            for column, words in self.attribute_words.items()
        )

    @property
    def resolved_delta(self) -> float:
        """delta as given, or `records ** -1.1` of the declared number, rounded down to three digits."""
        if self.delta is not None:
            return self.delta
        assert self.records is not None  # `check`
        exact = self.records**-1.1
        unit = 10.0 ** (math.floor(math.log10(exact)) - 2)
        # Through text, so that the number that is printed is the number that is meant.
        return float(f'{math.floor(exact / unit) * unit:.2e}')

    @property
    def resolved_prompt(self) -> str:
        """The prompt as given, else the preset of the form that the model was trained on."""
        return self.prompt or ('pretrained' if self.model == bundled.MODEL else 'document')

    @property
    def resolved_micro_batch_size(self) -> int:
        """Rows that go through the model together: equal parts, of at most 128, of a full batch.

        Public, so that the shape of a program never tells a batch's size. Hashed
        batches vary by about √s; a full one has s + 2√s contexts. Public rows are apart. Of fine-tuning,
        texts that are sampled together.
        """
        if not self.votes:
            return self.micro_batch_size or DEFAULT_TUNING_MICRO_BATCH
        full = self.batch_size + 2 * math.isqrt(self.batch_size)
        return self.micro_batch_size or math.ceil(full / math.ceil(full / 128))

    @property
    def resolved_units_together(self) -> int:
        """Units whose gradients are computed together: one has as many numbers as are trained. Public."""
        if self.micro_batch_size is not None or not self.full:
            return self.resolved_micro_batch_size
        held = MOST_GRADIENT_NUMBERS // self.model_sizes.num_parameters
        return max(1, min(DEFAULT_TUNING_MICRO_BATCH, held))

    @property
    def configured_batches(self) -> tuple[int, ...] | None:
        """Batches of each label where the settings say how many; None where a noisy count does.

        Of a method without votes a batch is of texts that are sampled together; there may be none.
        """
        if self.votes:
            batches = self.batches_per_label
            return None if batches is None else (batches,) * len(self.label_values)
        return None if self.label_mix_rho is not None else self.batches_of_texts

    @property
    def batches_of_texts(self) -> tuple[int, ...]:
        """Batches of `texts_of_labels`; with a noisy mix what is expected before it is known."""
        return label_mix.batches_of_texts(self.texts_of_labels, self.resolved_micro_batch_size)

    @property
    def texts_of_labels(self) -> tuple[int, ...]:
        """Texts to sample of each label, in their declared order: the same number of each, or by the mix.

        That is the mix that was given, or else the one that was released with the adapter. Where the run
        itself counts labels it is not known yet, and the number of each is the same: see
        `models.finetuning.settings.TuningSettings.texts_by`.

        Raises:
            ValueError: The mix has other labels than were declared.
        """
        labels = self.label_values
        if not self.label_mix:
            released = fine_tuning.released_counts(self)
            if released is not None:
                return label_mix.texts_of_counts(self.examples_per_label * len(labels), released)
            return (self.examples_per_label,) * len(labels)
        pairs = [(label, float(share)) for label, _, share in (of.rpartition('=') for of in self.label_mix)]
        shares = dict(pairs)
        if len(pairs) != len(labels) or shares.keys() != set(labels):
            raise ValueError(
                f'Expected the share of each declared label once, got label_mix={list(self.label_mix)!r}, '
                f'labels={list(labels)!r}. Give LABEL=SHARE for every one of them.'
            )
        in_order = [shares[str(label)] for label in labels]
        return label_mix.texts_of_shares(self.examples_per_label * len(labels), in_order)

    @property
    def reads_records(self) -> bool:
        """Whether the run reads records; otherwise it samples from an adapter that was released before."""
        return self.votes or self.adapter is None

    @property
    def writes_texts(self) -> bool:
        """Whether the run leaves a corpus; otherwise it trains an adapter, and leaves that alone."""
        return self.votes or self.examples_per_label > 0

    @property
    def resolved_public_top_k(self) -> int | None:
        """K as given, or what suits the aggregate; None for the whole vocabulary, which 0 asks for."""
        if self.public_top_k is not None:
            return self.public_top_k or None
        return self.strategy.default_public_top_k

    def params(self) -> MechanismParams:
        """The mechanism, with r, or B and ω, solved for where epsilon was given.

        Raises:
            ValueError: A setting out of range, or a budget that buys no private token.
        """
        if self.is_individual and self.resolved_public_top_k is None:
            raise ValueError(
                'Expected public_top_k >= 1 with individual accounting, got '
                f'public_top_k={self.public_top_k!r}, the whole vocabulary. Give the tokens that may be '
                'voted on, such as --public-top-k 1024, or give --accounting worst-case.'
            )
        settings: dict[str, Any] = {
            'batch_size': self.batch_size,
            'clip_bound': self.resolved_clip_bound,
            'temperature': self.resolved_temperature,
            'threshold': self.threshold,
            'threshold_noise_scale': self.threshold_noise_scale,
            'public_temperature': self.public_temperature,
            'public_top_k': self.resolved_public_top_k,
            'max_example_tokens': self.max_example_tokens,
            'unit': self.unit,
            'examples_per_context': self.examples_per_context,
            'aggregate': self.aggregate,
        }
        if self.is_individual:
            return self._individual_params(settings)
        cap = self.max_private_tokens
        if cap is None:
            assert self.epsilon is not None  # `check`
            try:
                cap = accounting.solve_max_private_tokens(
                    MechanismParams(**settings, max_private_tokens=1, max_batch_tokens=1),
                    epsilon=self.epsilon,
                    delta=self.resolved_delta,
                    other_rho=self._other_rho,
                )
            except ValueError as error:
                raise ValueError(f'{error}{self._bought_by_difference()}') from None
            if self.max_batch_tokens is not None:
                # No batch can have more: the rest is not paid for.
                cap = min(cap, self.max_batch_tokens)
        per_private_token = 1 if self.threshold is None else DEFAULT_BATCH_TOKENS_PER_PRIVATE_TOKEN
        return MechanismParams(
            **settings,
            max_private_tokens=cap,
            max_batch_tokens=self.max_batch_tokens or cap * per_private_token,
        )

    def _bought_by_difference(self) -> str:
        """What the same epsilon pays for with the default aggregate, in a sentence; nothing where none."""
        if self.strategy.takes_reference:
            return ''
        names = (
            'accounting',
            'clip_bound',
            'temperature',
            'threshold',
            'threshold_noise_scale',
            'public_top_k',
        )
        own: dict[str, Any] = dict.fromkeys(names)
        try:
            other = dataclasses.replace(self, aggregate='difference', **own).params()
        except ValueError:
            return ''
        assert other.context_budget is not None
        tokens = accounting.worst_case_tokens(other, other.context_budget)
        return (
            f' Or give --aggregate difference: with its own bounds this epsilon pays for {tokens:,} tokens.'
        )

    def _individual_params(self, settings: dict[str, Any]) -> MechanismParams:
        """The mechanism with individual accounting: B and ω as given, or solved for."""
        settings |= {'accounting': 'individual', 'shift_bound': self.resolved_shift_bound}
        others: dict[str, float] = {'delta': self.resolved_delta, 'other_rho': self._other_rho}
        # B and ω are not read where they are solved for.
        unsolved = MechanismParams(**settings, max_batch_tokens=1, context_budget=1.0, omega=1.5)
        if self.context_budget is None:
            assert self.epsilon is not None  # `check`
            budget, omega = accounting.solve_context_budget(
                unsolved,
                epsilon=self.epsilon,
                omega=self.omega,
                # A ledger keeps its budget at one order, which a run that takes all of it has to reach.
                to_best=self.dataset is not None,
                **others,
            )
        else:
            budget = self.context_budget
            omega = self.omega or accounting.omega_of_budget(unsolved, budget, **others)
        if self.epsilon is not None and self.max_batch_tokens is not None:
            most = accounting.worst_case_budget(unsolved, self.max_batch_tokens)
            if most < budget:
                # No context can spend more: the rest is not paid for.
                budget = most
                omega = self.omega or accounting.omega_of_budget(unsolved, budget, **others)
        tokens = accounting.worst_case_tokens(unsolved, budget)
        if tokens < 1:
            raise ValueError(
                'Expected a context_budget that pays for one token of a context that adds the whole clip '
                f'bound, got context_budget={budget!r}, price of that token='
                f'{accounting.worst_case_price(unsolved):.6g}. Raise --context-budget, '
                '--batch-size or --temperature, or lower --clip-bound.'
            )
        return MechanismParams(
            **settings,
            context_budget=budget,
            omega=omega,
            max_batch_tokens=self.max_batch_tokens
            or min(MOST_DEFAULT_BATCH_TOKENS, tokens * DEFAULT_BATCH_TOKENS_PER_WORST_CASE_TOKEN),
        )

    @property
    def _other_rho(self) -> float:
        """rho of all that the run releases beside its text."""
        return math.fsum((self.noisy_count_rho, self.cell_count_rho, self.centers_rho))

    @property
    def cell_count_rho(self) -> float:
        """rho that the run spends on the noisy counts of cells: 0 where none are counted."""
        return self.resolved_condition_rho if self.condition_on else 0.0

    def to_toml(self) -> str:
        """The config as TOML that `read_config` reads back to an equal one; panels are comments."""
        lines: list[str] = []
        panel = None
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata['panel'] != panel:
                panel = field.metadata['panel']
                lines.append(f'{"" if not lines else chr(10)}# {panel}')
            if value is None:
                lines.append(f'# {field.name} is not set')
            else:
                plain = list(value) if isinstance(value, tuple) else value
                lines.append(tomli_w.dumps({field.name: plain}).rstrip('\n'))
        return '\n'.join(lines) + '\n'


def path_settings() -> frozenset[str]:
    """Names of the settings whose value may be a path: who sets one chooses what file is read or written.

    Every setting that takes any text is one of them unless its metadata says that it names
    something else, so that a schedule's form leaves a new one to whoever deploys it.
    """
    hints = setting_types(JobConfig)
    return frozenset(
        field.name
        for field in dataclasses.fields(JobConfig)
        if field.metadata['names_path'] and _takes_any_text(hints[field.name])
    )


def _takes_any_text(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return False
    return hint is str or any(_takes_any_text(option) for option in typing.get_args(hint))
