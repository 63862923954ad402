"""The plan of a run of private prediction: its price and its size, before anything is read or paid."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from models.decoders.device import Dtype
from models.grammars.structure import Structure
from models.privacy import accounting, counts
from models.privacy.facts import Statement
from models.privacy.params import Accounting
from models.prompts import PromptWriter
from pipeline.check.input_check import FEWEST_CONTEXTS, MOST_CONTEXTS, InputCheck
from pipeline.ledger.answer import BudgetAnswer, FittingSetting, HasRoom, largest_fitting
from pipeline.ledger.budget import reaching
from pipeline.methods.estimate import Estimate
from pipeline.methods.input_view import InputView, MeasureTexts
from pipeline.methods.method import (
    ITEM_BYTES,
    LAST_RANK,
    RunPlan,
    Score,
    Standing,
    delta_warning,
)
from pipeline.methods.predict import follows
from pipeline.methods.predict.run import Config, PredictionRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForcedShare:
    """The share of the shortest example that a structure forces, and so is free. All fields are public.

    Attributes:
        shortest_bytes: Bytes of the shortest example.
        forced_bytes: Those of them that leave no choice.
    """

    shortest_bytes: int
    forced_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionPlan(RunPlan):
    """The plan of a run of votes on tokens: what it would release and cost. All fields are public.

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
        expected_batches: Planned batches; None where neither they nor the number of
            records is declared.
        expected_private_tokens: r times `expected_batches`.
        expected_texts: Texts of typical length that these batches write, the cut one of each among them;
            None where neither --typical-words nor --examples is given.
        forced: The forced part of an example; None without a structure.
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
    expected_batches: int | None
    expected_private_tokens: int | None
    expected_texts: int | None = None
    forced: ForcedShare | None = None

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
        top_k = self.public_top_k
        tokens = 'the whole vocabulary' if top_k is None else f'the {top_k:,} most probable public tokens'
        shift = '' if self.shift_bound is None else f'c₂ = {self.shift_bound:g}, '
        rows += [
            ('All tokens per batch', f'at most {self.max_batch_tokens:,}'),
            ('Bounds, temperature', f'c = {self.clip_bound:g}, {shift}τ = {self.temperature:g}'),
            ('Sampled from', tokens),
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
        return [*rows, *self.rows_of_others(self.omega)]


def plan_run(
    run: PredictionRun, estimate: Estimate | None = None, budget: BudgetAnswer | None = None
) -> PredictionPlan:
    """The plan of a run, with what it takes of this machine and what a ledger says, where these are given."""
    settings, params, batches = run.method, run.params, run.expected_batches
    has_price_per_token = not (params.is_ex_post or params.is_individual)
    per_token = accounting.rho_per_private_token(params) if has_price_per_token else None
    rho_total = epsilon = closed_form = order = None
    if run.statement == 'differential privacy':
        # Private prediction and its counts are in zCDP, truncated or not.
        curve, delta = run.cost.curve, run.delta
        rho_total, largest_order = curve.rho, curve.largest_order
        epsilon = curve.epsilon(delta)
        closed_form = accounting.epsilon_closed_form(rho_total, delta, largest_order=largest_order)
        if params.is_individual:
            order = accounting.optimal_order(rho_total, delta, largest_order=largest_order)
    context_budget = params.context_budget
    texts = None
    if batches is not None and not (settings.typical_words is None and settings.examples is None):
        texts = follows.expected_texts(settings, batches, params.max_batch_tokens)
    return PredictionPlan(
        method=settings.name,
        max_private_tokens=params.private_token_cap,
        max_batch_tokens=params.max_batch_tokens,
        clip_bound=params.clip_bound,
        temperature=params.temperature,
        public_top_k=params.public_top_k,
        accounting=params.accounting,
        shift_bound=params.shift_bound,
        context_budget=context_budget,
        omega=params.omega,
        order=order,
        worst_case_tokens=None
        if context_budget is None
        else accounting.worst_case_tokens(params, context_budget),
        statement=run.statement,
        rho_per_private_token=per_token,
        rho_counts=settings.noisy_count_rho,
        rho_cells=settings.cell_count_rho,
        rho_total=rho_total,
        epsilon=epsilon,
        epsilon_closed_form=closed_form,
        delta=run.delta,
        expected_batches=batches,
        expected_private_tokens=None if batches is None else batches * params.private_token_cap,
        expected_texts=texts,
        estimate=estimate,
        forced=None if settings.structure is None else _forced_share(settings.structure),
        budget=budget,
        warnings=(*delta_warning(run), *_size_warnings(run)),
    )


def _forced_share(structure: Structure) -> ForcedShare:
    automaton = structure.automaton
    endings = ((automaton.shortest_ending(start), start) for start in structure.starts)
    shortest, start = min(endings, key=lambda pair: len(pair[0]))
    return ForcedShare(shortest_bytes=len(shortest), forced_bytes=automaton.forced_bytes_of(shortest, start))


def _size_warnings(run: PredictionRun) -> tuple[str, ...]:
    """A warning where the declared records would fill the given batches with far more or fewer than s."""
    if run.input.sampled_records is None or run.method.batches_per_label is None:
        return ()
    labels = len(run.input.label_values)
    full = run.method.batch_size * (run.budget.examples_per_context if run.budget.unit == 'example' else 1)
    held = run.input.sampled_records / (run.method.batches_per_label * labels)
    if FEWEST_CONTEXTS <= held / full <= MOST_CONTEXTS:
        return ()
    fitting = max(1, round(run.input.sampled_records / (full * labels)))
    among = f' of {labels} labels' if labels > 1 else ''
    declared = f'{run.input.records:,} declared records'
    if run.input.sample_rate < 1:
        declared = f'--sample-rate {run.input.sample_rate:g} of {declared}'
    instead = (
        f'Give --batches-per-label {fitting}'
        if fitting != run.method.batches_per_label
        else f'Give --batch-size {max(1, round(run.method.batch_size * held / full))}, at its price'
    )
    return (
        f'{declared}{among} put about {held:,.0f} into each batch, where '
        f'--batch-size {run.method.batch_size} means {full:,}: a token costs what it costs at '
        f'{run.method.batch_size}, and a batch takes the time and memory of what it holds. {instead}.',
    )


# Rows of docs/measured.md, with Gemma 3 270M and individual accounting.
SCORES = (
    Score(what='news', records=768, labels=4, epsilon=1, texts=57, worth=0.72, of_records=0.80),
    Score(what='questions', records=768, labels=6, epsilon=1, texts=123, worth=0.45, of_records=0.65),
    Score(what='medical notes', records=768, labels=20, epsilon=1, texts=60, worth=0.57, of_records=0.72),
    Score(what='questions', records=1920, labels=6, epsilon=3, texts=272, worth=0.47, of_records=0.77),
    Score(what='reviews', records=384, labels=2, epsilon=1, texts=32, worth=0.61, of_records=0.61),
)
# With 384 units votes on an adapter's texts were worth more; of fewer no method was run.
_MOST_UNITS = 384


def standing(units: float, epsilon: float | None, labels: int) -> Standing:
    """First with fewer units than any method was run on; with more, others were worth more."""
    if units < _MOST_UNITS:
        because = (
            'So few records were not measured. Texts of votes on tokens of 384 taught as much as real ones, '
            'and a step of training would be mostly noise.'
        )
        return Standing(rank=1, because=because)
    because = 'With 400 records or more, texts of training and votes were worth more.'
    return Standing(rank=LAST_RANK, because=because)


def needed_memory(run: PredictionRun, dtype: Dtype, devices: int = 1) -> int:
    """Bytes of each device that weights and the caches of a batch of s contexts take at the least.

    Weights are sharded over the devices where they must be: see `models.decoders.device.shards_weights`.
    """
    settings, sizes, item_bytes = run.method, run.method.model_sizes, ITEM_BYTES[dtype]
    slots = settings.max_prompt_tokens + settings.max_example_tokens
    cache = settings.batch_size * slots * sizes.cache_bytes_per_token(item_bytes)
    return (sizes.num_parameters * item_bytes + cache) // devices


def fitting(
    run: PredictionRun, has_room: HasRoom, order: float, *, reaches: bool = True
) -> tuple[FittingSetting, ...] | None:
    """Settings of which each alone would make a run fit that does not; None where a higher ω is enough.

    The one that the run's budget is given by, and where that is a number of tokens, the clip bound and
    the aggregate too: what an epsilon buys follows from these, and what it costs does not.
    """
    name = 'epsilon'
    if run.budget.epsilon is None:
        name = 'max_private_tokens' if run.method.context_budget is None else 'context_budget'
    if not reaches:
        omega = reaching(order)
        if has_room({'omega': omega}):
            return None
        largest = _largest_with(run, has_room, name, omega)
        return () if largest is None else (largest,)
    fitting_settings = [_largest(run, has_room, name, order)]
    if name == 'max_private_tokens':
        fitting_settings.append(_largest(run, has_room, 'clip_bound', order))
        if not run.method.strategy.takes_reference:
            unset = dict.fromkeys(('clip_bound', 'temperature', 'public_top_k'))
            if has_room({'aggregate': 'difference', 'accounting': 'worst-case', **unset}):
                fitting_settings.append(FittingSetting(name='aggregate', value='difference'))
    return tuple(setting for setting in fitting_settings if setting is not None)


def _largest(run: PredictionRun, has_room: HasRoom, name: str, order: float) -> FittingSetting | None:
    """The largest value of a setting, below its present one, with which a run would fit."""
    largest = _largest_with(run, has_room, name, None)
    if largest is None and run.method.is_individual:
        # Orders that were given, or suit the run's own delta, need not reach the ledger's.
        largest = _largest_with(run, has_room, name, reaching(order))
    return largest


def _largest_with(
    run: PredictionRun, has_room: HasRoom, name: str, omega: float | None
) -> FittingSetting | None:
    present = run.params.clip_bound if name == 'clip_bound' else float(run.config.settings()[name])
    value = largest_fitting(
        name,
        present,
        has_room,
        is_whole=name == 'max_private_tokens',
        others={} if omega is None else {'omega': omega},
    )
    return None if value is None else FittingSetting(name=name, value=value, omega=omega)


@dataclasses.dataclass(frozen=True)
class VotesView(InputView):
    """Contexts in batches."""

    config: Config
    room = 'fit into a prompt'
    length_setting = 'max_prompt_tokens'

    @property
    def expected_batch_size(self) -> int:
        return self.config.method.batch_size

    @property
    def columns(self) -> tuple[str, ...]:
        return ('records', 'contexts', 'batches', f'contexts a batch (s = {self.expected_batch_size})')

    def of_label(self, records: int, units: int | None) -> tuple[int, int]:
        settings = self.config.method
        counted = round(self.config.input.sample_rate * (records if units is None else units))
        k = self.config.budget.examples_per_context if units is None else 1
        batches = settings.batches_per_label
        if batches is None:
            # With a noisy count, as many as the true one would give.
            batches = counts.batches_for(counted, settings.batch_size, k)
        return (counted if k == 1 else _filled_slots(counted, settings.batch_size * batches)), batches

    def measure(self) -> MeasureTexts:
        from pipeline.methods import workers

        writer = workers.prompt_writer(self.config.method, self.config.input)
        return functools.partial(self._lengths, writer)

    def _lengths(self, writer: PromptWriter, texts: Sequence[str]) -> tuple[int, list[int]]:
        k = self.config.budget.examples_per_context
        room = min(writer.room(label, k) for label in self.config.input.label_values)
        return room, sorted(writer.lengths(texts))

    def cells(self, contexts: int | None, batches: int | None) -> tuple[str, ...]:
        if contexts is None or not batches:
            return ('', '', '')
        return (f'{contexts:,}', f'{batches:,}', f'{contexts / batches:,.1f}')

    def findings(self, check: InputCheck) -> Iterator[str]:
        for label in check.labels:
            if label.contexts is None or not label.batches or not check.records:
                continue
            held = label.contexts / label.batches
            ratio = held / check.batch_size
            name = 'A batch' if label.label is None else f'A batch of {label.label!r}'
            if ratio > MOST_CONTEXTS:
                yield (
                    f'{name} would hold {held:,.0f} contexts, where --batch-size says '
                    f'{check.batch_size}: each token costs what it costs at {check.batch_size}, at more '
                    'work. More --batches-per-label, or none of it, which counts with noise, give as many '
                    'batches as there are records for.'
                )
            elif ratio < FEWEST_CONTEXTS:
                yield (
                    f'{name} would hold {held:,.1f} contexts, where --batch-size says '
                    f'{check.batch_size}: it stays near the public prompt. Fewer batches, a smaller '
                    '--batch-size at its price, or fewer labels.'
                )

    def off_by_number(self, check: InputCheck) -> str:
        return 'texts and hours'


def _filled_slots(records: int, slots: int) -> int:
    """Expected number of slots that hold a record, each record in a slot by its hash."""
    return round(slots * (1 - (1 - 1 / slots) ** records))
