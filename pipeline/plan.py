"""The run plan: the price and the size of a run, before anything is read or paid."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from models.decoders import device, family
from models.decoders.device import Dtype
from models.privacy import accounting, candidates
from models.privacy.facts import Statement
from models.privacy.params import Accounting, MechanismParams
from pipeline.calibration import Calibration
from pipeline.config import JobConfig
from pipeline.methods import METHODS
from pipeline.vote_estimate import VoteEstimate

if TYPE_CHECKING:
    from models.grammars.structure import Structure
    from pipeline.ledger.budget import Account, OrderTooLow

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittingSetting:
    """One setting that alone would make a run fit.

    Attributes:
        name: The setting.
        value: Its largest value with which the run would fit; of `aggregate`, another one with its own
            bounds.
        omega: The largest Rényi order to give with it; None where it may stay as it is.
    """

    name: str
    value: float | str
    omega: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetAnswer:
    """Whether a run fits into what its dataset's ledger has left. All fields are public.

    Attributes:
        dataset: Name under which the ledger keeps the records' budget.
        fits: Whether the run may start.
        is_charged: Whether it was charged already; resuming it is free.
        rho_budget: What all runs on the dataset may cost.
        rho_spent: What the runs that were charged cost.
        rho_left: What is left for further runs once this one is charged; where it does not
            fit, what is left now.
        epsilon_left: epsilon of one further run that takes all of `rho_left`.
        epsilon_left_up_to_omega: The same of a run with this one's ω, at orders up to it: more, where the
            best order lies above; None of a run whose cost holds at every order.
        delta: The dataset's, for `epsilon_left` and `epsilon`.
        epsilon: The run's by itself, at `delta`; the run states its own at its own delta.
        fitting: Settings of which one would be enough where the run does not fit.
    """

    dataset: str
    fits: bool
    is_charged: bool
    rho_budget: float
    rho_spent: float
    rho_left: float
    epsilon_left: float
    epsilon_left_up_to_omega: float | None
    delta: float
    epsilon: float
    fitting: tuple[FittingSetting, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingEstimate:
    """How long one device would decode, from its rates. All fields are public.

    Loading the model, compiling and reading records come on top. What a median or the sparse vector
    computes beside the votes is left out.

    Attributes:
        device: Whose rates they are.
        dtype: Type of weights and products.
        measured_on: ISO date of this machine's calibration; None for reference rates, which are of
            another machine.
        prompts_seconds: Reading the prompts of one batch.
        seconds_per_step: One token of one batch.
        hours: All batches up to the cap on all tokens; None where their number is not declared.
        memory_bytes: What weights and the caches of a full batch take on the device at the least.
    """

    device: str
    dtype: Dtype
    measured_on: str | None
    prompts_seconds: float
    seconds_per_step: float
    hours: float | None
    memory_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForcedShare:
    """What a structure forces, and so is free, of the shortest example. All fields are public.

    Attributes:
        shortest_bytes: Bytes of the shortest example.
        forced_bytes: Those of them that leave no choice.
    """

    shortest_bytes: int
    forced_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a run would release and cost. All fields are public.

    Attributes:
        max_private_tokens: Cap r on private tokens of one batch; with individual accounting all of its
            tokens.
        max_batch_tokens: Cap on all tokens of one batch.
        clip_bound: Clip bound c, in nats; as given or the aggregate's default, like the next two.
        temperature: Temperature τ of private tokens.
        public_top_k: K, of the most probable public tokens; None for the whole vocabulary.
        accounting: 'worst-case', or 'individual', which alone has the next five.
        shift_bound: c₂, up to where all votes together lift a score in full, in nats.
        context_budget: B, what one context may spend, in ρ.
        omega: Largest Rényi order at which the cost is a bound.
        order: The order at which it becomes epsilon, the best up to `omega`.
        worst_case_tokens: Tokens that any context is paid for, whatever it gives to each.
        statement: 'differential privacy'; 'ex-post' for a median, whose loss is known after
            the run and to the curator only; 'none' where the centres were fitted on the
            records without privacy, for comparisons.
        rho_per_private_token: zCDP cost of one private token; None for a median, and with individual
            accounting, where each context pays its own price.
        rho_counts: zCDP cost of the noisy counts; 0 where the batches are given.
        rho_cells: zCDP cost of the noisy counts of cells; 0 without --condition-on.
        rho_centers: zCDP cost of the centres; 0 for public ones and without clusters.
        rho_total: zCDP cost of the run; None unless the statement is differential privacy.
        epsilon: At `delta`, by the optimal-α bound; None where `rho_total` is.
        epsilon_closed_form: The weaker closed form, for comparison; None where `rho_total` is.
        delta: As given, or from the declared number of records.
        expected_batches: Planned batches; None where neither they nor the number of
            records is declared.
        expected_private_tokens: r times `expected_batches`.
        decoding: How long decoding would take; None where no rates were asked for.
        budget: What the ledger says of it; None where no ledger was asked.
        votes: How long votes of public texts would last; None where none were given.
        forced: What of an example is forced; None without a structure.
        warnings: What to think about before the run, in sentences.
    """

    max_private_tokens: int
    max_batch_tokens: int
    clip_bound: float
    temperature: float
    public_top_k: int | None
    accounting: Accounting
    shift_bound: float | None
    context_budget: float | None
    omega: float | None
    order: float | None
    worst_case_tokens: int | None
    statement: Statement
    rho_per_private_token: float | None
    rho_counts: float
    rho_cells: float
    rho_centers: float
    rho_total: float | None
    epsilon: float | None
    epsilon_closed_form: float | None
    delta: float
    expected_batches: int | None
    expected_private_tokens: int | None
    decoding: DecodingEstimate | None = None
    budget: BudgetAnswer | None = None
    votes: VoteEstimate | None = None
    forced: ForcedShare | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The run plan as one JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2)


def expected_batches(config: JobConfig) -> int | None:
    """Planned batches as far as public facts tell, None where they do not."""
    groups = len(config.label_values) * (config.clusters or 1)
    if config.configured_batches is not None:
        return sum(config.configured_batches) * (config.clusters or 1)
    if config.sampled_records is None:
        return None
    per_batch = config.batch_size * (config.examples_per_context if config.unit == 'example' else 1)
    return max(groups, round(config.sampled_records / per_batch))


def requested_dtype(config: JobConfig) -> Literal['auto', 'float32', 'bfloat16']:
    """The type whose rates a plan takes; auto where only the machine that launches the run can say.

    As `pipeline.run.settings.with_dtype`, as far as no accelerator has to be asked.
    """
    if config.dtype == 'auto' and config.strategy.takes_reference and not device.has_plugin():
        return 'float32'
    return config.dtype


def estimate_decoding(config: JobConfig, calibration: Calibration) -> DecodingEstimate:
    """How long decoding would take on a device of these rates.

    Every full batch is taken to fill its micro-batches, as it does: rows of padding are computed too.
    A step reads each layer's weights or multiplies them by its rows, whichever takes longer, then reads
    the whole cache.
    """
    sizes, rates, params = config.model_sizes, calibration.rates, config.params()
    item_bytes = _ITEM_BYTES[calibration.dtype]
    part = -(-config.resolved_micro_batch_size // family.ROWS_MULTIPLE) * family.ROWS_MULTIPLE
    parts = -(-params.batch_size // part)
    rows = part * parts
    # In whole blocks of their own; read once for many batches of a label.
    public_rows = -(-_public_rows(config, params) // family.ROWS_MULTIPLE) * family.ROWS_MULTIPLE
    weights = sizes.layer_parameters

    def through_layers(rows: int) -> float:
        return max(2 * weights * rows / rates.step_flops, weights * item_bytes / rates.weight_bytes)

    layers = parts * through_layers(part) + (through_layers(public_rows) if public_rows else 0.0)
    slots = config.max_prompt_tokens + config.max_example_tokens
    cache = (rows + public_rows) * slots * sizes.cache_bytes_per_token(item_bytes) / rates.cache_bytes
    embedding, columns = sizes.num_embed * sizes.embed_dim, sizes.num_embed
    public_row, output_rows = 0.0, rows + public_rows
    if params.public_top_k is not None and not params.uses_sparse_vector:
        # Public rows choose the columns of all others.
        columns = candidates.count(params.public_top_k, columns)
        public_row = embedding * item_bytes / rates.weight_bytes + sizes.num_embed / rates.ranked_logits
        output_rows = rows
    output = 2 * columns * sizes.embed_dim * output_rows / rates.output_flops
    prompts = rows * sizes.prompt_flops(config.max_prompt_tokens) / rates.prompt_flops
    step = layers + cache + public_row + output
    batches = expected_batches(config)
    # With the sparse vector the number of public tokens is not known in advance; the cap on
    # all tokens bounds it.
    seconds = prompts + params.max_batch_tokens * step
    return DecodingEstimate(
        device=calibration.device,
        dtype=calibration.dtype,
        measured_on=calibration.measured_on,
        prompts_seconds=prompts,
        seconds_per_step=step,
        hours=None if batches is None else batches * seconds / 3600,
        memory_bytes=needed_memory(config, calibration.dtype),
    )


def needed_memory(config: JobConfig, dtype: Dtype, devices: int = 1) -> int:
    """Bytes of each device that weights and the caches of a batch of s contexts take at the least.

    Args:
        config: The run.
        dtype: Type of weights and caches.
        devices: How many share the rows of a batch.
    """
    sizes, item_bytes = config.model_sizes, _ITEM_BYTES[dtype]
    slots = config.max_prompt_tokens + config.max_example_tokens
    cache = config.batch_size * slots * sizes.cache_bytes_per_token(item_bytes)
    return sizes.num_parameters * item_bytes + cache // devices


def _public_rows(config: JobConfig, params: MechanismParams) -> int:
    """Rows of the public prompt, or of the reference once there is one."""
    if not params.needs_public_logits:
        return 0
    has_reference = config.reference is not None or config.resolved_reference_rounds == 2
    return config.reference_size if has_reference else 1


def statement_of(config: JobConfig) -> Statement:
    """What kind of statement a run of this config can make."""
    if config.centers_source == 'k-means':
        return 'none'
    has_price = METHODS[config.method].has_price_in_advance(config)
    return 'differential privacy' if has_price else 'ex-post'


def run_cost(config: JobConfig) -> accounting.RunCost:
    """What a run costs, stage by stage: for the cap r, whatever the run makes of it.

    Raises:
        ValueError: The method has no price in advance.
    """
    shared = {
        'centers': accounting.ZCDpEvent(rho=config.centers_rho),
        'noisy_counts': accounting.ZCDpEvent(rho=config.noisy_count_rho),
    }
    if config.condition_on:
        shared['cell_counts'] = accounting.ZCDpEvent(rho=config.cell_count_rho)
    return accounting.RunCost(stages={**shared, **METHODS[config.method].cost(config)})


def paid_centers(config: JobConfig, account: 'Account') -> str | None:
    """The charge that paid for the run's centres before; None where none did, or they are free.

    Raises:
        ValueError: The account has it, and the centres are not those that it paid for.
    """
    if not config.centers_rho:
        return None
    from pipeline.ledger import centers_charge

    return centers_charge.paid_by(account, config.centers_path)


def cost_to_charge(config: JobConfig, account: 'Account') -> accounting.RunCost:
    """What the ledger charges a run: its cost, without centres that an earlier charge paid for.

    The run's own statement has the centres in it all the same: its text depends on them.

    Raises:
        ValueError: As `run_cost` and `paid_centers`.
    """
    cost = run_cost(config)
    if paid_centers(config, account) is None:
        return cost
    return dataclasses.replace(cost, stages={**cost.stages, 'centers': accounting.ZCDpEvent(rho=0.0)})


def ask_ledger(config: JobConfig) -> BudgetAnswer:
    """Asks the config's ledger whether the run may start; nothing is written.

    A config without an output and a run id is taken for a run of a new name.

    Raises:
        ValueError: The config names no ledger; the ledger does not hold the dataset, holds
            it for another unit, or holds another run of this name; or the reference, or the adapter, is an
            earlier release that claims a charge which the ledger does not hold.
        ConnectionError: The ledger is not there.
    """
    if config.dataset is None or config.ledger is None:
        raise ValueError(
            f'Expected dataset and ledger, got dataset={config.dataset!r}, ledger={config.ledger!r}. '
            'Give --dataset NAME --ledger FILE.'
        )
    # Not at the top: a plan without a ledger answers at once.
    from pipeline.ledger.budget import BudgetExceeded, OrderTooLow
    from pipeline.ledger.ledger import Ledger

    ledger = Ledger.open(config.ledger)
    if config.reference is not None or config.adapter is not None:
        from pipeline.run import charge

        charge.check_earlier(ledger, config)
    run_id = None if config.run_id is None and config.output is None else config.resolved_run_id
    account = ledger.account(config.dataset)
    cost, fits = cost_to_charge(config, account), True
    try:
        ledger.check(config.dataset, run_id=run_id, unit=config.unit, cost=cost)
    except BudgetExceeded:
        fits = False
    except OrderTooLow as error:
        raise with_order(error, config, account) from None
    is_charged = run_id is not None and account.run(run_id) is not None
    left = max(0.0, account.rho_left - (0.0 if is_charged or not fits else account.price(cost)))
    return BudgetAnswer(
        dataset=config.dataset,
        fits=fits,
        is_charged=is_charged,
        rho_budget=account.dataset.rho_budget,
        rho_spent=account.rho_spent,
        rho_left=left,
        epsilon_left=accounting.epsilon_from_rho(left, account.dataset.delta),
        epsilon_left_up_to_omega=(
            None
            if math.isinf(cost.curve.largest_order)
            else accounting.epsilon_from_rho(
                left, account.dataset.delta, largest_order=cost.curve.largest_order
            )
        ),
        delta=account.dataset.delta,
        epsilon=cost.curve.epsilon(account.dataset.delta),
        fitting=() if fits else fitting(config, account),
    )


def with_order(error: 'OrderTooLow', config: JobConfig, account: 'Account') -> 'OrderTooLow':
    """The refusal of a run whose orders do not reach its dataset's, with all that would have to change.

    At more orders an epsilon buys more, which need not fit.
    """
    from pipeline.ledger.budget import reaching

    omega = reaching(account.dataset.order)
    if _has_room(config, account, {'omega': omega}):
        return error
    largest = _largest_with(config, account, _given_by(config), omega)
    found = () if largest is None else (largest,)
    return error.with_remedy(fitting_words(found, config.resolved_delta))


def _given_by(config: JobConfig) -> str:
    """The setting that a run's budget is given by."""
    names = ('epsilon', 'context_budget', 'max_private_tokens')
    return next(name for name in names if getattr(config, name) is not None)


def fitting(config: JobConfig, account: 'Account') -> tuple[FittingSetting, ...]:
    """Settings of which each alone would make a run fit that does not.

    The one that the run's budget is given by, and where that is a number of tokens, the clip bound and
    the aggregate too: what an epsilon buys follows from these, and what it costs does not.
    """
    given = _given_by(config)
    found = [_largest(config, account, given)]
    if given == 'max_private_tokens':
        found.append(_largest(config, account, 'clip_bound'))
        if not config.strategy.takes_reference:
            own = dict.fromkeys(('clip_bound', 'temperature', 'public_top_k'))
            changed = {'aggregate': 'difference', 'accounting': 'worst-case', **own}
            if _has_room(config, account, changed):
                found.append(FittingSetting(name='aggregate', value='difference'))
    return tuple(setting for setting in found if setting is not None)


def fitting_words(settings: Sequence[FittingSetting], delta: float) -> str:
    """What would fit, for people, without a full stop."""
    if not settings:
        return 'No smaller run of these settings would fit'
    flags = {setting.name: f'--{setting.name.replace("_", "-")}' for setting in settings}
    shown = ' or '.join(
        f'{flags[setting.name]} {setting.value}'
        if isinstance(setting.value, str)
        else f'at most {flags[setting.name]} {setting.value:.10g}'
        + ('' if setting.omega is None else f' with --omega {setting.omega:.10g}')
        for setting in settings
    )
    return f'To fit, give {shown}' + (f', at δ = {delta:.6g}' if settings[0].name == 'epsilon' else '')


# Digits of a value that would fit, and how far below the one that does not it is looked for.
_DIGITS, _LEAST_SHARE = 3, 1e-6


def _largest(config: JobConfig, account: 'Account', name: str) -> FittingSetting | None:
    """The largest value of a setting, below its present one, with which a run would fit."""
    found = _largest_with(config, account, name, None)
    if found is None and config.is_individual:
        # Orders that were given, or suit the run's own delta, need not reach the ledger's.
        from pipeline.ledger.budget import reaching

        found = _largest_with(config, account, name, reaching(account.dataset.order))
    return found


def _largest_with(
    config: JobConfig, account: 'Account', name: str, omega: float | None
) -> FittingSetting | None:
    others = {} if omega is None else {'omega': omega}
    high = config.resolved_clip_bound if name == 'clip_bound' else float(getattr(config, name))
    low, is_whole = high * _LEAST_SHARE, name == 'max_private_tokens'
    while high / low > 1 + 10.0**-_DIGITS:
        middle = math.sqrt(low * high)
        # Too little to buy a token is not too much.
        if _has_room(config, account, {name: math.ceil(middle) if is_whole else middle, **others}) is False:
            high = middle
        else:
            low = middle
    unit = 10.0 ** (math.floor(math.log10(low)) - _DIGITS + 1)
    value = math.floor(high) if is_whole else float(f'{math.floor(low / unit) * unit:.{_DIGITS - 1}e}')
    if not _has_room(config, account, {name: value, **others}):
        return None
    return FittingSetting(name=name, value=value, omega=omega)


def _has_room(config: JobConfig, account: 'Account', changed: dict[str, Any]) -> bool | None:
    """Whether a run with other settings would fit; None where there is no such run."""
    try:
        return account.has_room(cost_to_charge(dataclasses.replace(config, **changed), account))
    except ValueError:
        return None


def plan_run(config: JobConfig) -> RunPlan:
    """The run plan of a config, which alone decides it; how long decoding takes is another question."""
    params = config.params()
    has_price_per_token = not (params.is_ex_post or params.is_individual)
    per_token = accounting.rho_per_private_token(params) if has_price_per_token else None
    statement = statement_of(config)
    rho_total = epsilon = closed_form = order = None
    if statement == 'differential privacy':
        curve, delta = run_cost(config).curve, config.resolved_delta
        # Private prediction and its counts are in zCDP, truncated or not.
        rho_total, largest_order = curve.rho, curve.largest_order
        epsilon = curve.epsilon(delta)
        closed_form = accounting.epsilon_closed_form(rho_total, delta, largest_order=largest_order)
        if params.is_individual:
            order = accounting.optimal_order(rho_total, delta, largest_order=largest_order)
    budget = params.context_budget
    batches = expected_batches(config)
    return RunPlan(
        max_private_tokens=params.private_token_cap,
        max_batch_tokens=params.max_batch_tokens,
        clip_bound=params.clip_bound,
        temperature=params.temperature,
        public_top_k=params.public_top_k,
        accounting=params.accounting,
        shift_bound=params.shift_bound,
        context_budget=budget,
        omega=params.omega,
        order=order,
        worst_case_tokens=None if budget is None else accounting.worst_case_tokens(params, budget),
        statement=statement,
        rho_per_private_token=per_token,
        rho_counts=config.noisy_count_rho,
        rho_cells=config.cell_count_rho,
        rho_centers=config.centers_rho,
        rho_total=rho_total,
        epsilon=epsilon,
        epsilon_closed_form=closed_form,
        delta=config.resolved_delta,
        expected_batches=batches,
        expected_private_tokens=None if batches is None else batches * params.private_token_cap,
        forced=None if config.structure is None else _forced_share(config.structure),
        warnings=_warnings(config),
    )


def _forced_share(structure: 'Structure') -> ForcedShare:
    found = structure.automaton
    shortest, start = min(((found.shortest_ending(start), start) for start in structure.starts), key=_length)
    return ForcedShare(shortest_bytes=len(shortest), forced_bytes=found.forced_bytes_of(shortest, start))


def _length(found: tuple[bytes, int]) -> int:
    return len(found[0])


def _warnings(config: JobConfig) -> tuple[str, ...]:
    """What whoever plans should hear before a run: of public numbers alone."""
    return (*_delta_warnings(config), *_size_warnings(config), *_adapter_warnings(config))


def _adapter_warnings(config: JobConfig) -> tuple[str, ...]:
    """What the adapter cost, where no ledger adds it to what this run costs."""
    if config.adapter is None:
        return ()
    from models.privacy.report import format_exact, format_up
    from pipeline import fine_tuning

    card = fine_tuning.read_card(config.adapter)
    fine_tuning.check_model(config, card)
    if card.dataset is not None and card.dataset == config.dataset:
        return ()
    charged = 'to no ledger' if card.dataset is None else f'to {card.dataset!r}'
    return (
        f'The adapter was trained by the run {card.run_id!r}, charged {charged}, at ε = '
        f'{format_up(card.epsilon)} and δ = {format_exact(card.delta)}. Unless its records are others than '
        'these, that comes on top of what this run costs, and nothing here adds it up.',
    )


# Contexts of a batch over s, outside of which a plan warns.
FEWEST_CONTEXTS, MOST_CONTEXTS = 0.5, 2.0


def _size_warnings(config: JobConfig) -> tuple[str, ...]:
    """Where the declared records would fill the batches that were asked for with far more or fewer than s."""
    if config.sampled_records is None or config.batches_per_label is None:
        return ()
    labels = len(config.label_values)
    full = config.batch_size * (config.examples_per_context if config.unit == 'example' else 1)
    held = config.sampled_records / (config.batches_per_label * labels)
    if FEWEST_CONTEXTS <= held / full <= MOST_CONTEXTS:
        return ()
    fitting = max(1, round(config.sampled_records / (full * labels)))
    among = f' of {labels} labels' if labels > 1 else ''
    declared = f'{config.records:,} declared records'
    if config.sample_rate < 1:
        declared = f'--sample-rate {config.sample_rate:g} of {declared}'
    instead = (
        f'Give --batches-per-label {fitting}'
        if fitting != config.batches_per_label
        else f'Give --batch-size {max(1, round(config.batch_size * held / full))}, at its price'
    )
    return (
        f'{declared}{among} put about {held:,.0f} into each batch, where '
        f'--batch-size {config.batch_size} means {full:,}: a token costs what it costs at '
        f'{config.batch_size}, and a batch takes the time and memory of what it holds. {instead}.',
    )


def _delta_warnings(config: JobConfig) -> tuple[str, ...]:
    """What the report will say of delta."""
    from models.privacy.report import words

    delta, units = config.resolved_delta, config.records
    if units is None or statement_of(config) != 'differential privacy' or delta * units < 1:
        return ()
    many = 'users' if config.unit == 'user' else 'records'
    return (words.delta_relation(delta, units, 'declared', many),)
