"""Settings of the mechanism of private prediction: how contexts vote on a token, and what that costs."""

import dataclasses
import functools
import math
import typing

from models.privacy.aggregates import AGGREGATES, INDIVIDUAL_DIFFERENCE, Aggregate
from pipeline.settings import panel
from pipeline.settings.budget import Budget

_setting = functools.partial(panel.setting, 'Votes')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Votes(panel.Panel):
    """How the contexts of a batch vote on a token, and how long."""

    batch_size: int = _setting('s: expected contexts per batch, the public divisor of every vote.', 64)
    aggregate: str = _setting(
        'How the votes of a batch are combined. The loss of a median is known afterwards only, and only to '
        'the curator; the difference from the public prompt needs a far smaller c than the mean.',
        'difference',
        choices=AGGREGATES,
    )
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
    accounting: typing.Literal['individual', 'worst-case'] | None = _setting(
        'Who pays for a token. individual: each context what it gives itself, and it votes as long as its '
        'own budget lasts; --max-batch-tokens ends a batch. worst-case: all the same, what any could give. '
        'Default: individual for the difference without --threshold, else worst-case.',
        None,
    )
    max_private_tokens: int | None = _setting(
        'r: cap on private tokens of a batch, which the guarantee is stated for, with worst-case accounting.',
        None,
        instead_of='epsilon',
    )
    context_budget: float | None = _setting(
        'B: what one context may spend, in rho, with individual accounting.', None, instead_of='epsilon'
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
    public_temperature: float = _setting('Temperature of public tokens.', 1.5)
    public_top_k: int | None = _setting(
        'K: sample only from the K most probable public tokens, so that a step computes their logits alone; '
        '0 for the whole vocabulary. Default: '
        + ', '.join(
            f'{known.default_public_top_k or "the whole vocabulary"} for the {name}'
            for name, known in AGGREGATES.items()
        )
        + '.',
        None,
    )
    examples: int | None = _setting(
        'Texts wanted, about: from the declared records and epsilon follow the size of a batch, its cap and '
        'the share of the records that is used, where they are not given. Default: as many as all batches '
        'write.',
        None,
    )
    max_batch_tokens: int | None = _setting(
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
        if self.batches_per_label is None and not (self.count_rho > 0 and math.isfinite(self.count_rho)):
            raise ValueError(
                f'Expected count_rho > 0 for the noisy count, got count_rho={self.count_rho}. '
                'Or give --batches-per-label, which needs no count.'
            )
        self._check_positive('batches_per_label', 'examples')

    def check_budget(self, budget: Budget) -> None:
        """Refuses a budget that this mechanism cannot have.

        Raises:
            ValueError: See above.
        """
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
        self._check_accounting(budget.epsilon)

    def _check_accounting(self, epsilon: float | None) -> None:
        if not self.is_individual:
            for name in ('context_budget', 'omega', 'shift_bound'):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(
                        f'Expected {name} with individual accounting only, got {name}={value!r}, '
                        f'aggregate={self.aggregate!r}, accounting={self.accounting!r}, '
                        f'threshold={self.threshold!r}. Leave it out, or give --accounting individual '
                        '--aggregate difference without --threshold.'
                    )
            if (epsilon is None) == (self.max_private_tokens is None):
                raise ValueError(
                    f'Expected either epsilon or max_private_tokens, got epsilon={epsilon!r}, '
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
        if (epsilon is None) == (self.context_budget is None):
            raise ValueError(
                f'Expected either epsilon or context_budget, got epsilon={epsilon!r}, '
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

    @property
    def is_individual(self) -> bool:
        """Whether each context is charged what it gives itself: as given, or what the aggregate allows."""
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
    def resolved_public_top_k(self) -> int | None:
        """K as given, or what suits the aggregate; None for the whole vocabulary, which 0 asks for."""
        if self.public_top_k is not None:
            return self.public_top_k or None
        return self.strategy.default_public_top_k
