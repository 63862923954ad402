"""The plan of a run of private prediction: its price and its size, before anything is read or paid."""

import dataclasses
import json

from models.grammars.structure import Structure
from models.privacy import accounting, numbers
from models.privacy.facts import Statement
from models.privacy.params import Accounting
from models.privacy.report import words
from pipeline import calibration
from pipeline.calibration import duration, three_digits
from pipeline.checked_input import FEWEST_CONTEXTS, MOST_CONTEXTS
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods.method import RunPlan
from pipeline.methods.predict import follows, mechanism
from pipeline.methods.predict.batches import expected_batches
from pipeline.methods.predict.decoding_estimate import DecodingEstimate
from pipeline.methods.predict.mechanism import Config
from pipeline.methods.predict.vote_estimate import VoteEstimate


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
class PredictionPlan(RunPlan):
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
            the run and to the curator only.
        rho_per_private_token: zCDP cost of one private token; None for a median, and with individual
            accounting, where each context pays its own price.
        rho_counts: zCDP cost of the noisy counts; 0 where the batches are given.
        rho_cells: zCDP cost of the noisy counts of cells; 0 without --condition-on.
        rho_total: zCDP cost of the run; None unless the statement is differential privacy.
        epsilon: At `delta`, by the optimal-α bound; None where `rho_total` is.
        epsilon_closed_form: The weaker closed form, for comparison; None where `rho_total` is.
        delta: As given, or from the declared number of records.
        expected_batches: Planned batches; None where neither they nor the number of
            records is declared.
        expected_private_tokens: r times `expected_batches`.
        expected_texts: Texts of typical length that these batches write, the cut one of each among them;
            None where neither --typical-words nor --examples is given.
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
    rho_total: float | None
    epsilon: float | None
    epsilon_closed_form: float | None
    delta: float
    expected_batches: int | None
    expected_private_tokens: int | None
    expected_texts: int | None = None
    decoding: DecodingEstimate | None = None
    budget: BudgetAnswer | None = None
    votes: VoteEstimate | None = None
    forced: ForcedShare | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The run plan as one JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def guarantee(self) -> str:
        if self.statement == 'ex-post':
            return 'ex-post: the loss is known after the run, to the curator only'
        return f'ε = {self.epsilon:.6g} at δ = {self.delta:.6g}'

    def size(self) -> str:
        if self.context_budget is None:
            return f'{self.max_private_tokens:,} private tokens per batch'
        budget = f'B = {self.context_budget:.3g} for each context'
        return f'{budget}, at most {self.max_batch_tokens:,} tokens per batch'

    def written_texts(self) -> int | None:
        return self.expected_texts

    def computing_hours(self) -> float | None:
        return None if self.decoding is None else self.decoding.hours

    def rows(self) -> list[tuple[str, str]]:
        rows = [('Guarantee', self.guarantee())]
        if self.rho_total is not None:
            closed_form = f'closed form ε = {self.epsilon_closed_form:.6g}'
            kind = 'zCDP'
            if self.order is not None:
                kind = f'truncated zCDP, orders up to ω = {self.omega:g}, α = {self.order:.6g} used'
            rows.append(('', f'ρ = {self.rho_total:.6g} in {kind}; {closed_form}'))
        if self.context_budget is not None:
            rows += [
                ('Budget of one context', f'B = {self.context_budget:.6g}, individual accounting'),
                (
                    '',
                    f'pays for {self.worst_case_tokens:,} tokens at the highest price; who gives less votes '
                    'for longer',
                ),
            ]
        else:
            rows.append(('Private tokens per batch', f'at most {self.max_private_tokens:,}'))
        shift = '' if self.shift_bound is None else f'c₂ = {self.shift_bound:g}, '
        rows += [
            ('All tokens per batch', f'at most {self.max_batch_tokens:,}'),
            ('Bounds, temperature', f'c = {self.clip_bound:g}, {shift}τ = {self.temperature:g}'),
            ('Sampled from', self._sampled_from()),
        ]
        if self.forced is not None:
            share = self.forced
            rows.append(
                (
                    'Structure',
                    f'forced tokens are free: {share.forced_bytes:,} of the {share.shortest_bytes:,} bytes '
                    'of the shortest example',
                )
            )
        if self.rho_per_private_token is not None:
            rows.append(('ρ per private token', f'{self.rho_per_private_token:.6g}'))
        rows.append(('ρ of noisy counts', f'{self.rho_counts:.6g}'))
        if self.rho_cells:
            rows.append(('ρ of counts of --condition-on', f'{self.rho_cells:.6g}'))
        if self.expected_batches is None:
            rows.append(('Batches', 'not known: declare --records or --batches-per-label'))
        else:
            rows.append(('Batches', f'about {self.expected_batches:,}'))
            rows.append(('Private tokens', f'about {self.expected_private_tokens:,}'))
        if self.expected_texts is not None:
            rows.append(
                ('Texts', f'about {self.expected_texts:,} of typical length; the last of a batch is cut')
            )
        if self.decoding is not None:
            rows += _decoding_rows(self.decoding)
        if self.budget is not None:
            rows += self.budget.rows(self.delta, self.omega)
        if self.votes is not None:
            rows += _votes_rows(self.votes, self.max_batch_tokens)
        return rows

    def _sampled_from(self) -> str:
        """Which tokens a private one may be."""
        if self.public_top_k is None:
            return 'the whole vocabulary'
        return f'the {self.public_top_k:,} most probable public tokens'


def plan_run(config: Config) -> PredictionPlan:
    """The run plan of a config, which alone decides it; how long decoding takes is another question."""
    params = mechanism.params(config)
    has_price_per_token = not (params.is_ex_post or params.is_individual)
    per_token = accounting.rho_per_private_token(params) if has_price_per_token else None
    statement = mechanism.statement(config)
    rho_total = epsilon = closed_form = order = None
    if statement == 'differential privacy':
        curve, delta = accounting.RunCost(stages=mechanism.cost(config)).curve, config.resolved_delta
        # Private prediction and its counts are in zCDP, truncated or not.
        rho_total, largest_order = curve.rho, curve.largest_order
        epsilon = curve.epsilon(delta)
        closed_form = accounting.epsilon_closed_form(rho_total, delta, largest_order=largest_order)
        if params.is_individual:
            order = accounting.optimal_order(rho_total, delta, largest_order=largest_order)
    budget = params.context_budget
    batches = expected_batches(config)
    return PredictionPlan(
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
        rho_counts=config.method.noisy_count_rho,
        rho_cells=config.method.cell_count_rho,
        rho_total=rho_total,
        epsilon=epsilon,
        epsilon_closed_form=closed_form,
        delta=config.resolved_delta,
        expected_batches=batches,
        expected_private_tokens=None if batches is None else batches * params.private_token_cap,
        expected_texts=_expected_texts(config, batches, params.max_batch_tokens),
        forced=None if config.method.structure is None else _forced_share(config.method.structure),
        warnings=_warnings(config),
    )


def _expected_texts(config: Config, batches: int | None, batch_tokens: int) -> int | None:
    """Texts that batches write, where lengths or texts were declared; None where they were not."""
    own = config.method
    if batches is None or (own.typical_words is None and own.examples is None):
        return None
    return follows.expected_texts(own, batches, batch_tokens)


def _forced_share(structure: Structure) -> ForcedShare:
    found = structure.automaton
    shortest, start = min(((found.shortest_ending(start), start) for start in structure.starts), key=_length)
    return ForcedShare(shortest_bytes=len(shortest), forced_bytes=found.forced_bytes_of(shortest, start))


def _length(found: tuple[bytes, int]) -> int:
    return len(found[0])


def _warnings(config: Config) -> tuple[str, ...]:
    """What to think about before a run, from public numbers alone."""
    return (*_delta_warnings(config), *_size_warnings(config), *_adapter_warnings(config))


def _adapter_warnings(config: Config) -> tuple[str, ...]:
    """What the adapter cost, where no ledger adds it to what this run costs."""
    if config.method.adapter is None:
        return ()
    from pipeline.methods.fine_tune import released

    card = released.read_card(config.method.adapter)
    released.check_model(config.method, card, config.method.adapter)
    if card.dataset is not None and card.dataset == config.budget.dataset:
        return ()
    charged = 'to no ledger' if card.dataset is None else f'to {card.dataset!r}'
    return (
        f'The adapter was trained by the run {card.run_id!r}, charged {charged}, at ε = '
        f'{numbers.format_up(card.epsilon)} and δ = {numbers.format_exact(card.delta)}. Unless its records '
        'are others than these, that comes on top of what this run costs, and nothing here adds it up.',
    )


def _size_warnings(config: Config) -> tuple[str, ...]:
    """Where the declared records would fill the batches that were asked for with far more or fewer than s."""
    if config.input.sampled_records is None or config.method.batches_per_label is None:
        return ()
    labels = len(config.input.label_values)
    full = config.method.batch_size * (
        config.budget.examples_per_context if config.budget.unit == 'example' else 1
    )
    held = config.input.sampled_records / (config.method.batches_per_label * labels)
    if FEWEST_CONTEXTS <= held / full <= MOST_CONTEXTS:
        return ()
    fitting = max(1, round(config.input.sampled_records / (full * labels)))
    among = f' of {labels} labels' if labels > 1 else ''
    declared = f'{config.input.records:,} declared records'
    if config.input.sample_rate < 1:
        declared = f'--sample-rate {config.input.sample_rate:g} of {declared}'
    instead = (
        f'Give --batches-per-label {fitting}'
        if fitting != config.method.batches_per_label
        else f'Give --batch-size {max(1, round(config.method.batch_size * held / full))}, at its price'
    )
    return (
        f'{declared}{among} put about {held:,.0f} into each batch, where '
        f'--batch-size {config.method.batch_size} means {full:,}: a token costs what it costs at '
        f'{config.method.batch_size}, and a batch takes the time and memory of what it holds. {instead}.',
    )


def _delta_warnings(config: Config) -> tuple[str, ...]:
    """What the report will say of delta."""
    delta, units = config.resolved_delta, config.input.records
    if units is None or mechanism.statement(config) != 'differential privacy' or delta * units < 1:
        return ()
    many = 'users' if config.budget.unit == 'user' else 'records'
    return (words.macro('delta_relation', delta, units, 'declared', many),)


# --- Rows of the plan's table -----------------------------------------------------


def _decoding_rows(estimate: DecodingEstimate) -> list[tuple[str, str]]:
    """The estimate, and what it rests on, as rows of the plan's table."""
    step = 1000 * estimate.seconds_per_step
    rows = [
        (
            'One batch',
            f'{three_digits(estimate.prompts_seconds)} s for its prompts, {three_digits(step)} ms a token in '
            f'{estimate.dtype}',
        )
    ]
    if estimate.hours is not None:
        rows.append(('Decoding', f'up to {duration(estimate.hours)}'))
    rows.append(
        ('Memory', f'{estimate.memory_bytes / 2**30:.1f} GiB for weights and one batch, at the least')
    )
    return [*rows, ('Estimated', calibration.source(estimate.device, estimate.measured_on))]


def _votes_rows(votes: VoteEstimate, batch_tokens: int) -> list[tuple[str, str]]:
    """How long votes last, as rows of the plan's table."""
    of_label = '' if votes.label is None else f' as a batch of {votes.label!r}'
    rows = [
        (
            'Votes, estimated',
            f'{votes.contexts:,} contexts of public texts{of_label}, {votes.tokens:,} tokens',
        ),
        (
            '',
            'of one stream: more texts would make more of them'
            if votes.streams == 1
            else f'of each of {votes.streams} streams, other texts in each',
        ),
        ('', 'decoded; costs nothing, and tells nothing of the records'),
    ]
    for found in votes.against:
        against = f'{found.reference_texts} reference texts' if found.reference_texts else 'the public prompt'
        silent = f'the {batch_tokens:,} tokens'
        if found.first_silent is not None:
            silent = f'{found.first_silent:,} tokens'
        shares = ', '.join(f'{share:.0%}' for share in found.voting)
        rows += [
            (f'Against {against}', f'ρ = {found.mean_price:.3g} a token and context; all vote for {silent}'),
            ('', f'{shares} still vote at 1/4, 1/2, 3/4 and the end'),
            ('', f'{found.budget_left:.0%} of B left at the end, in the mean'),
        ]
    if len(votes.against) > 1:
        rows.append(('The reference', _verdict(votes)))
    return rows


def _verdict(votes: VoteEstimate) -> str:
    """What a reference does to the price, in a few words."""
    with_reference, without = (found.mean_price for found in votes.against)
    if not votes.is_clear:
        return 'no clear difference: these tokens do not tell whether it is better than none'
    if with_reference > without:
        times = (
            f'{with_reference / without:.3g} times as much' if without else 'something, and nothing without'
        )
        return (
            f'WORSE THAN NONE: a token costs {times}. Take texts of the genre of the records, or leave '
            '--reference out'
        )
    if not with_reference:
        return 'makes tokens free'
    return f'makes a token {without / with_reference:.3g} times cheaper'
