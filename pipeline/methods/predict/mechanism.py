"""The mechanism of a run, as its settings give it: what epsilon is solved for, and what every stage costs."""

from collections.abc import Mapping

from models.privacy import accounting
from models.privacy.facts import Statement
from models.privacy.params import MechanismParams
from pipeline.methods.predict.settings import PredictSettings
from pipeline.settings.job_config import JobConfig

type Config = JobConfig[PredictSettings]


def params(config: Config) -> MechanismParams:
    """The mechanism, with r, or B and ω, solved for where epsilon was given.

    Raises:
        ValueError: A setting out of range, or a budget that buys no private token.
    """
    return config.method.mechanism(config.budget, config.resolved_delta)


def statement(config: Config) -> Statement:
    """What kind of statement a run of this config can make."""
    return 'ex-post' if params(config).is_ex_post else 'differential privacy'


def cost(config: Config) -> Mapping[str, accounting.DpEvent]:
    """Event of each stage, by the name that a ledger has for it.

    Raises:
        ValueError: The aggregate has no price in advance.
    """
    own = config.method
    events: dict[str, accounting.DpEvent] = {
        'noisy_counts': accounting.ZCDpEvent(rho=own.noisy_count_rho),
    }
    if own.condition_on:
        events['cell_counts'] = accounting.ZCDpEvent(rho=own.cell_count_rho)
    return {**events, 'generation': accounting.generation_event(params(config))}
