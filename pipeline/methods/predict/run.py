"""A run of private prediction, solved: its mechanism, what every stage costs, and how many batches it has."""

import dataclasses
import typing

from models.batch_plan import BatchPlan
from models.finetuning.adapter import AdapterCard
from models.privacy import accounting
from models.privacy.params import MechanismParams
from pipeline.methods.predict.settings import PredictSettings
from pipeline.methods.solved import Begun, Run, RunFolders
from pipeline.settings.job_config import JobConfig
from transforms.run_files import CLUSTERING

if typing.TYPE_CHECKING:
    from transforms.columns import Columns

type Config = JobConfig[PredictSettings]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionRun(Run[PredictSettings]):
    """A run of private prediction.

    Attributes:
        params: The mechanism, with r, or B and ω, solved for where epsilon was given.
        expected_batches: Planned batches as far as public facts tell; None where they do not.
        adapter: The card of the adapter that it decodes with; None without.
    """

    params: MechanismParams
    expected_batches: int | None
    adapter: AdapterCard | None

    @property
    def own_columns(self) -> 'Columns':
        from transforms import predict

        return predict.COLUMNS if self.method.structure is None else predict.STRUCTURED_COLUMNS


def solve(config: Config) -> PredictionRun:
    """The run of a config.

    Raises:
        ValueError: A setting out of range, a budget that buys no private token, or an adapter of another
            model.
        FileNotFoundError: There is no such adapter.
    """
    own = config.method
    params = own.mechanism(config.budget, config.delta)
    batches = expected_batches(config)
    return PredictionRun(
        config=config,
        statement='ex-post' if params.is_ex_post else 'differential privacy',
        stages=None if params.is_ex_post else _stages(own, params),
        batch_plan=_batch_plan(config),
        most_tokens=(batches or 0) * params.max_batch_tokens,
        folders=RunFolders() if own.clusters is None else RunFolders(kept=(CLUSTERING,)),
        begun=tuple(_begun(own)),
        params=params,
        expected_batches=batches,
        adapter=None if own.adapter is None else _card(own, own.adapter),
    )


def _stages(own: PredictSettings, params: MechanismParams) -> dict[str, accounting.DpEvent]:
    events: dict[str, accounting.DpEvent] = {
        'noisy_counts': accounting.ZCDpEvent(rho=own.noisy_count_rho),
    }
    if own.condition_on:
        events['cell_counts'] = accounting.ZCDpEvent(rho=own.cell_count_rho)
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
    own, labels = config.method, len(config.input.label_values)
    groups = labels * (own.clusters or 1)
    if own.batches_per_label is not None:
        return own.batches_per_label * groups
    if config.input.sampled_records is None:
        return None
    texts = config.budget.examples_per_context if config.budget.unit == 'example' else 1
    return max(groups, round(config.input.sampled_records / (own.batch_size * texts)))


def _begun(own: PredictSettings) -> typing.Iterator[Begun]:
    if own.reference is not None:
        yield Begun(name='reference', place=own.reference, what='an earlier release')
    if own.adapter is not None:
        yield Begun(name='adapter', place=own.adapter, what='an adapter', is_adapter=True)


def _card(own: PredictSettings, place: str) -> AdapterCard:
    from pipeline.methods.fine_tune import released

    card = released.read_card(place)
    released.check_model(own, card, place)
    return card
