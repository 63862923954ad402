"""A run of private prediction, solved: its mechanism, what every stage costs, and how many batches it has."""

import dataclasses
import typing
from typing import Any

from models.batch_plan import BatchPlan
from models.finetuning.adapter import AdapterCard
from models.privacy import accounting
from models.privacy.params import MechanismParams
from models.speed import Work
from pipeline.methods.predict.settings import PredictSettings
from pipeline.methods.solved import Begun, Run, RunFolders
from pipeline.settings.budget import Budget
from pipeline.settings.job_config import JobConfig
from transforms.run_files import CLUSTERING

if typing.TYPE_CHECKING:
    from transforms.columns import Columns

type Config = JobConfig[PredictSettings]

DEFAULT_BATCH_TOKENS_PER_PRIVATE_TOKEN = 8
# Tokens of a batch for each that a context is paid for at the highest price: others vote for longer.
DEFAULT_BATCH_TOKENS_PER_WORST_CASE_TOKEN = 16
# A large budget is better spent on a larger clip bound than on ever longer batches.
MOST_DEFAULT_BATCH_TOKENS = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionRun(Run[PredictSettings]):
    """A run of private prediction.

    Attributes:
        expected_batches: Planned batches as far as public facts tell; None where they do not.
    """

    params: MechanismParams
    expected_batches: int | None
    adapter: AdapterCard | None

    @property
    def tokens(self) -> dict[Work, int]:
        # All rows, up to their cap.
        of_row = self.method.max_prompt_tokens + self.params.max_batch_tokens
        return {'decoding': (self.expected_batches or 0) * self.params.batch_size * of_row}

    @property
    def own_columns(self) -> 'Columns':
        from transforms import predict

        return predict.COLUMNS if self.method.structure is None else predict.STRUCTURED_COLUMNS


def solve(config: Config) -> PredictionRun:
    """The run of a config."""
    settings = config.method
    params = mechanism(settings, config.budget, config.delta)
    batches = expected_batches(config)
    return PredictionRun(
        config=config,
        statement='ex-post' if params.is_ex_post else 'differential privacy',
        stages=None if params.is_ex_post else _stages(settings, params),
        batch_plan=_batch_plan(config),
        most_tokens=(batches or 0) * params.max_batch_tokens,
        folders=RunFolders() if settings.clusters is None else RunFolders(kept=(CLUSTERING,)),
        begun=tuple(_begun(settings)),
        params=params,
        expected_batches=batches,
        adapter=None if settings.adapter is None else _card(settings, settings.adapter),
    )


def mechanism(settings: PredictSettings, budget: Budget, delta: float) -> MechanismParams:
    """The mechanism, with r, or B and ω, solved for where epsilon was given."""
    unsolved = settings.unsolved(budget)
    if settings.is_individual:
        return _individual(settings, budget, unsolved, delta)
    cap = settings.max_private_tokens
    if cap is None:
        assert budget.epsilon is not None  # `check`
        try:
            cap = accounting.solve_max_private_tokens(
                unsolved,
                epsilon=budget.epsilon,
                delta=delta,
                other_rho=settings.other_rho,
            )
        except ValueError as error:
            raise ValueError(f'{error}{_bought_by_difference(settings, budget, delta)}') from None
        if settings.max_batch_tokens is not None:
            # No batch can have more: the rest is not paid for.
            cap = min(cap, settings.max_batch_tokens)
    per_private_token = 1 if settings.threshold is None else DEFAULT_BATCH_TOKENS_PER_PRIVATE_TOKEN
    return dataclasses.replace(
        unsolved,
        max_private_tokens=cap,
        max_batch_tokens=settings.max_batch_tokens or cap * per_private_token,
    )


def _bought_by_difference(settings: PredictSettings, budget: Budget, delta: float) -> str:
    """The tokens that the same epsilon pays for with the default aggregate, in a sentence; else nothing."""
    if settings.strategy.takes_reference:
        return ''
    names = (
        'accounting',
        'clip_bound',
        'temperature',
        'threshold',
        'threshold_noise_scale',
        'public_top_k',
    )
    unset: dict[str, Any] = dict.fromkeys(names)
    try:
        other = mechanism(dataclasses.replace(settings, aggregate='difference', **unset), budget, delta)
    except ValueError:
        return ''
    assert other.context_budget is not None
    tokens = accounting.worst_case_tokens(other, other.context_budget)
    return f' Or give --aggregate difference: with its own bounds this epsilon pays for {tokens:,} tokens.'


def _individual(
    settings: PredictSettings, budget: Budget, unsolved: MechanismParams, delta: float
) -> MechanismParams:
    """The mechanism with individual accounting: B and ω as given, or solved for."""
    others: dict[str, float] = {'delta': delta, 'other_rho': settings.other_rho}
    if settings.context_budget is None:
        assert budget.epsilon is not None  # `check`
        context_budget, omega = accounting.solve_context_budget(
            unsolved,
            epsilon=budget.epsilon,
            omega=settings.omega,
            # A ledger keeps its budget at one order, which a run that takes all of it has to reach.
            to_best=budget.dataset is not None,
            **others,
        )
    else:
        context_budget = settings.context_budget
        omega = settings.omega or accounting.omega_of_budget(unsolved, context_budget, **others)
    if budget.epsilon is not None and settings.max_batch_tokens is not None:
        most = accounting.worst_case_budget(unsolved, settings.max_batch_tokens)
        if most < context_budget:
            # No context can spend more: the rest is not paid for.
            context_budget = most
            omega = settings.omega or accounting.omega_of_budget(unsolved, context_budget, **others)
    tokens = accounting.worst_case_tokens(unsolved, context_budget)
    if tokens < 1:
        raise ValueError(
            'Expected a context_budget that pays for one token of a context that adds the whole clip '
            f'bound, got context_budget={context_budget!r}, price of that token='
            f'{accounting.worst_case_price(unsolved):.6g}. Raise --context-budget, '
            '--batch-size or --temperature, or lower --clip-bound.'
        )
    return dataclasses.replace(
        unsolved,
        context_budget=context_budget,
        omega=omega,
        max_batch_tokens=settings.max_batch_tokens
        or min(MOST_DEFAULT_BATCH_TOKENS, tokens * DEFAULT_BATCH_TOKENS_PER_WORST_CASE_TOKEN),
    )


def _stages(settings: PredictSettings, params: MechanismParams) -> dict[str, accounting.DpEvent]:
    events: dict[str, accounting.DpEvent] = {
        'noisy_counts': accounting.ZCDpEvent(rho=settings.noisy_count_rho),
    }
    if settings.condition_on:
        events['cell_counts'] = accounting.ZCDpEvent(rho=settings.cell_count_rho)
    return {**events, 'generation': accounting.generation_event(params)}


def _batch_plan(config: Config) -> BatchPlan | None:
    """The plan where the config gives the batches: public, and free."""
    batches, labels = config.method.batches_per_label, config.input.label_values
    if batches is None:
        return None
    return BatchPlan(
        labels=labels, batches_per_group=(batches,) * len(labels), noisy_counts=None, contexts_rho=0.0
    )


def expected_batches(config: Config) -> int | None:
    """Planned batches as far as public facts tell, None where they do not."""
    settings, labels = config.method, len(config.input.label_values)
    groups = labels * (settings.clusters or 1)
    if settings.batches_per_label is not None:
        return settings.batches_per_label * groups
    if config.input.sampled_records is None:
        return None
    texts = config.budget.examples_per_context if config.budget.unit == 'example' else 1
    return max(groups, round(config.input.sampled_records / (settings.batch_size * texts)))


def _begun(settings: PredictSettings) -> typing.Iterator[Begun]:
    if settings.reference is not None:
        yield Begun(name='reference', place=settings.reference, what='an earlier release')
    if settings.adapter is not None:
        yield Begun(name='adapter', place=settings.adapter, what='an adapter', is_adapter=True)


def _card(settings: PredictSettings, place: str) -> AdapterCard:
    from pipeline.methods.fine_tune import released

    card = released.read_card(place)
    released.check_model(settings, card, place)
    return card
