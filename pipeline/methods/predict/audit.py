"""The audits of CL D.5 on one's own settings: batches of real contexts, and planted keys.

Nothing is released and no budget is charged: an audit decodes with a key of its own, and
its result stays with the curator. The leave-one-out result holds losses and a true batch
size; the reconstruction result is of made-up keys, and private only in that it tells
nothing about the records.

Source: CL = the clustering paper, appendix D.5, Tables 7 and 8.
"""

import collections
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import rich.console
from rich import box, table, text

from models import reference as reference_lib
from models.assembly import GeneratorSettings
from models.audits import batches as audit_batches
from models.audits import leave_one_out as leave_one_out_audit
from models.audits import reconstruction as reconstruction_audit
from models.audits.leave_one_out import LeaveOneOut
from models.audits.reconstruction import KeySabotage, Reconstruction
from models.audits.replay import Sabotage
from models.batch_plan import BatchPlan
from models.generate.batch import BatchGenerator
from models.privacy import accounting, counts, report
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from models.records import Batch, Record
from pipeline import curator_files
from pipeline.methods import canary_audit, workers
from pipeline.methods.predict import mechanism, worker_settings
from pipeline.methods.predict.mechanism import Config
from transforms import cluster, condition, run_files
from transforms.durable import write_file, write_key
from transforms.plan import draw_plan
from transforms.predict import load_generator

LEAVE_ONE_OUT_SCHEMA = 'dp-corpus/leave-one-out-audit'
RECONSTRUCTION_SCHEMA = 'dp-corpus/reconstruction-audit'
SCHEMA_VERSION = 1
# Private tokens of a batch under audit: the replay takes a fifth of a second for each.
MOST_PRIVATE_TOKENS = 60
# Tokens of a batch of each label that the reference of the second round is of.
MOST_FIRST_TOKENS = 256
OUTSIDERS = 8
KEYS = 10_000
MADE_UP = 'The keys are made up: this result holds nothing of the records.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaveOneOutAudit:
    """One audited batch of each label (CL Table 8). Restricted to the curator.

    Attributes:
        aggregate: The aggregate under audit.
        sabotage: What was broken on purpose; 'none' for the mechanism as it is.
        bound_kind: What the bounds are, in words.
        delta: What `epsilon` is stated at.
        epsilon: What zCDP gives for the cap on private tokens, or with individual accounting for what
            one context of the run may spend; None for a median. It may lie
            below a bound, and even below a log ratio, which then occurs with a probability of
            at most delta or so.
        batches: The audited batches.

    Sample::

        {
          "schema": "dp-corpus/leave-one-out-audit",
          "schema_version": 1,
          "audience": "Restricted to the curator. It holds true counts: never publish it.",
          "ok": true,
          "aggregate": "median",
          "sabotage": "none",
          "bound_kind": "the loss that a run reports for this batch",
          "delta": 1e-06,
          "epsilon": null,
          "batches": [
            {"batch_id": "0000-000000", "label": "1", "reference_texts": 0, "bound": 1.41,
             "empirical_epsilon": 0.47, "ratio": 0.333, "ok": true, "contexts": 2,
             "private_tokens": 60, "public_tokens": 0, "forced_tokens": 0,
             "removed": [0.2, -0.47], "added": [0.1], "replaced": [], "payments": []}
          ]
        }
    """

    aggregate: str
    sabotage: Sabotage
    bound_kind: str
    delta: float
    epsilon: float | None
    batches: tuple[LeaveOneOut, ...] = dataclasses.field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether no batch passed its bound."""
        return all(batch.ok for batch in self.batches)

    def to_json(self) -> str:
        """The audit as JSON text, marked as restricted."""
        batches = [
            dataclasses.asdict(batch)
            | {'payments': [dataclasses.asdict(paid) | {'ok': paid.ok} for paid in batch.payments]}
            | {'empirical_epsilon': batch.empirical_epsilon, 'ratio': ratio_of(batch), 'ok': batch.ok}
            for batch in self.batches
        ]
        return _to_json(self, LEAVE_ONE_OUT_SCHEMA, report.RESTRICTED, {'batches': batches})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReconstructionAudit:
    """Keys of the source and of the holdout in the synthetic text (CL Table 7). Of made-up keys.

    Attributes:
        aggregate: The aggregate under audit.
        sabotage: What was broken on purpose; 'none' for the mechanism as it is.
        seed: Of the keys, their halves and the run.
        delta: What `epsilon` is stated at.
        epsilon: zCDP's for a mean or difference; for a median the largest loss of a batch.
        result: The counts.
    """

    aggregate: str
    sabotage: KeySabotage
    seed: int
    delta: float
    epsilon: float | None
    result: Reconstruction

    @property
    def ok(self) -> bool:
        """Whether source keys are not suspiciously more than holdout keys."""
        return self.result.ok

    def to_json(self) -> str:
        """The audit as JSON text."""
        result, found = self.result, self.result
        counted = dataclasses.asdict(result) | {
            'source_rate_95': list(found.interval(found.distinct_source_hits)),
            'holdout_rate_95': list(found.interval(found.distinct_holdout_hits)),
            'p_value': found.p_value,
            'conclusive': found.conclusive,
            'alarm_below': reconstruction_audit.ALARM,
        }
        return _to_json(self, RECONSTRUCTION_SCHEMA, MADE_UP, {'result': counted})


def _to_json(value: Any, schema: str, audience: str, parts: dict[str, Any]) -> str:
    header = {'schema': schema, 'schema_version': SCHEMA_VERSION, 'audience': audience, 'ok': value.ok}
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return json.dumps(header | fields | parts, indent=2, allow_nan=False) + '\n'


def _refuse_structure(config: Config) -> None:
    own = config.method
    if own.structure is not None:
        raise ValueError(
            'Expected no structure where the examples are made-up keys, got '
            f'json_schema={own.json_schema!r}, regex={own.regex!r}. Audit the run '
            'without it: the votes and the noise are the same.'
        )


# ---------------------------------------------------------------- leave one context out


def leave_one_out(
    config: Config,
    *,
    outsiders: int = OUTSIDERS,
    sabotage: Sabotage = 'none',
    progress: Callable[[str], None] = lambda _: None,
) -> LeaveOneOutAudit:
    """Audits the first batch of each label and round, formed from the real records as a run forms it.

    With --reference its texts are the reference. In two rounds the first batch of either round is audited,
    where a label has both: that of the first against the public prompt, that of the second against texts
    that the others release here, under the audit's own key, as they would in a run: its bound holds for
    any reference. `MOST_FIRST_TOKENS` of one batch of each label make them.

    Args:
        config: The run's settings. At most `MOST_PRIVATE_TOKENS` private tokens of each batch are
            decoded: more take longer and show the same.
        outsiders: Contexts of other batches to put in, one by one, for the other direction.
        sabotage: What to break, to see the audit fail: see `models.audits.leave_one_out`.
        progress: Told, in words without private facts, what goes on.

    Raises:
        ValueError: No input, a missing column, or a prompt that does not fit.
        FileNotFoundError: No input file.
    """
    if config.input.input is None:
        raise ValueError('Expected records to audit, got input=None. Give --input FILES.')
    settings = worker_settings.generator_settings(config)
    params = settings.params
    settings = dataclasses.replace(settings, params=shortened(params))
    settings.check_prompts(config.input.label_values)
    key = RunKey.new()
    progress('Forming the batches')
    plan, batches = form_batches(config, key)
    progress('Loading the model')
    generator = load_generator(settings)
    results = []
    for batch, reference in _with_references(config, settings, generator, plan, batches, key, progress):
        of_label = [other for other in batches if other.label == batch.label]
        others = [
            context for other in (*of_label, *batches) if other is not batch for context in other.contexts
        ]
        progress(f'Decoding batch {batch.batch_id} and replaying it without each context')
        results.append(
            leave_one_out_audit.leave_one_out(
                generator,
                batch,
                key,
                outsiders=others[:outsiders],
                sabotage=sabotage,
                reference=reference,
            )
        )
    return LeaveOneOutAudit(
        aggregate=params.aggregate,
        sabotage=sabotage,
        bound_kind=bound_kind(params),
        delta=config.resolved_delta,
        epsilon=generation_epsilon(params, config.resolved_delta),
        batches=tuple(results),
    )


def _with_references(
    config: Config,
    settings: GeneratorSettings,
    generator: BatchGenerator,
    plan: BatchPlan,
    batches: Sequence[Batch],
    key: RunKey,
    progress: Callable[[str], None],
) -> Iterator[tuple[Batch, tuple[str, ...]]]:
    """The batches to audit, each with its reference: of every label the first of each round."""
    if config.method.resolved_reference_rounds == 1:
        for label in plan.labels:
            given = () if settings.reference is None else settings.reference.of_label(label)
            yield next(batch for batch in batches if batch.label == label), given
        return
    first = reference_lib.first_round(plan)
    for label in plan.labels:
        yield next(batch for batch in batches if batch.label == label and batch.batch_id in first), ()
    of_second = [batch for batch in batches if batch.batch_id not in first]
    if not of_second:
        return
    # Longer than what is audited, which may end no example.
    writing = dataclasses.replace(generator, params=shortened(mechanism.params(config), MOST_FIRST_TOKENS))
    texts: dict[int, tuple[str, ...]] = {}
    for label in plan.labels:
        batch = next(batch for batch in batches if batch.label == label and batch.batch_id in first)
        progress(f'Decoding batch {batch.batch_id} of the first round for the reference')
        complete = filter(reference_lib.is_complete, writing.generate(batch, key).examples)
        texts[batch.batch_id.group] = tuple(example.text for example in complete)
    released = reference_lib.ReleasedReference.of(texts, plan, config.method.reference_size)
    for label in plan.labels:
        for batch in [batch for batch in of_second if batch.label == label][:1]:
            yield batch, released.texts_by_group[batch.batch_id.group]


def shortened(params: MechanismParams, most: int = 0) -> MechanismParams:
    """The same mechanism for at most so many private tokens of a batch, or `MOST_PRIVATE_TOKENS`.

    With individual accounting B is cut as the tokens are, so that contexts fall silent as they do in
    the run.
    """
    cap = min(params.private_token_cap, most or MOST_PRIVATE_TOKENS)
    if params.is_individual:
        assert params.context_budget is not None
        share = cap / params.max_batch_tokens
        return dataclasses.replace(params, max_batch_tokens=cap, context_budget=share * params.context_budget)
    return dataclasses.replace(
        params,
        max_private_tokens=cap,
        max_batch_tokens=min(params.max_batch_tokens, cap if params.threshold is None else 8 * cap),
    )


def bound_kind(params: MechanismParams) -> str:
    """What a bound of `LeaveOneOut` is, in words."""
    if params.is_individual:
        return (
            'the pure bound of the output, 2c/(sτ) for each token that the context voted on and paid for; '
            'how far it moved what was sampled from is held against what it paid'
        )
    tests = ', and 2/(sσ) for each sparse-vector run' if params.uses_sparse_vector else ''
    if params.is_ex_post:
        return f'the loss that a run reports for this batch{tests}'
    return f'the pure bound of the output, 2Δ/τ for each private token{tests}'


def generation_epsilon(params: MechanismParams, delta: float) -> float | None:
    """What zCDP gives for the cap on private tokens, or for what one context may spend; None for a median."""
    if params.is_ex_post:
        return None
    largest_order = math.inf if params.omega is None else params.omega
    return accounting.epsilon_from_rho(accounting.generation_rho(params), delta, largest_order=largest_order)


def form_batches(
    config: Config, key: RunKey, given: Sequence[Record] | None = None
) -> tuple[BatchPlan, list[Batch]]:
    """The plan and all batches of the records, in memory, with noise and hashes of the audit's own.

    The same functions as in a run decide where a record goes; only Beam is left out.

    Args:
        config: The run's settings.
        key: A key of the audit's own.
        given: The records in place of those of the input; None for those.
    """
    records = canary_audit.records_of(config) if given is None else list(given)
    labels, params = config.input.label_values, mechanism.params(config)
    clustering, centers, conditions, rho = None, None, None, config.method.count_rho
    with tempfile.TemporaryDirectory() as folder:
        write_key(folder, key)
        # The key is of this audit alone: there is no other run to be told from.
        write_file(os.path.join(folder, run_files.RUN), b'{}')
        if config.method.condition_on:
            assert config.method.structure is not None  # `Structured.check`
            in_cells = condition.in_cells(records, config.method.structure)
            cells = config.method.structure.cells
            conditions = condition.draw_conditions(
                _true_counts(audit_batches.placements(in_cells, labels, params, key), labels, len(cells)),
                folder,
                fields=config.method.condition_on,
                cells=cells,
                labels=labels,
                rho=config.method.resolved_condition_rho,
            )
        if config.method.clusters is not None:
            centers_rho, rho = counts.split_rho(config.method.resolved_clustering_rho)
            clusterer = worker_settings.cluster_settings(config).build()
            centers = clusterer.centers.count
            records = cluster.embed_records(
                records, clusterer.embedder.embed, clusterer.centers, workers.text_limit(config.method)
            )
            clustering = cluster.draw_clustering(
                _true_counts(audit_batches.placements(records, labels, params, key), labels, centers),
                folder,
                labels=labels,
                centers=centers,
                kept=config.method.clusters,
                rho=centers_rho,
            )
            records = cluster.recluster(records, clusterer.centers, labels, clustering)
        placed = audit_batches.placements(records, labels, params, key)
        configured = worker_settings.configured_plan(config)
        if configured is not None:
            plan = dataclasses.replace(configured, conditions=conditions)
        else:
            records_per_count = params.examples_per_context if params.unit == 'example' else 1
            plan = draw_plan(
                _true_counts(placed, labels, centers),
                folder,
                labels=labels,
                rho=rho,
                contexts_per_batch=params.batch_size * records_per_count,
                clustering=clustering,
                conditions=conditions,
            )
    return plan, audit_batches.batches_of(placed, plan, params, key)


def _true_counts(
    placed: Sequence[audit_batches.Placement], labels: Sequence[str | None], centers: int | None
) -> list[int]:
    """Counts of each label, or of every centre of each label; private."""
    found = collections.Counter((label, cluster) for _, label, cluster, _ in placed)
    clusters = [None] if centers is None else range(centers)
    return [found[label, cluster] for label in labels for cluster in clusters]


# ---------------------------------------------------------------- keys to be reconstructed


def reconstruction(
    config: Config,
    *,
    keys: int = KEYS,
    seed: int = 0,
    sabotage: KeySabotage = 'none',
    progress: Callable[[str], None] = lambda _: None,
) -> ReconstructionAudit:
    """Runs the method on made-up keys and counts which of them come out (CL D.5.1).

    Args:
        config: The run's settings, of which the input and the labels play no part. Examples are
            keys, and the private tokens of a batch at most `MOST_PRIVATE_TOKENS`.
        keys: Unique keys, half of them source. CL take 50,000: a run of 390 batches at s = 64.
        seed: Of the keys, their halves and the run: the same seed gives the same result.
        sabotage: What to break, to see the audit fail.
        progress: Told what goes on.

    Raises:
        ValueError: `keys` is out of range, or the prompt does not fit.
    """
    sets = reconstruction_audit.draw_keys(keys, seed)
    _refuse_structure(config)
    run_key = RunKey(hashlib.sha256(f'reconstruction audit, seed {seed}'.encode()).digest())
    settings = worker_settings.generator_settings(config)
    params = settings.params
    settings = dataclasses.replace(
        settings,
        template=dataclasses.replace(settings.template, response_prefix=reconstruction_audit.KEY_PREFIX),
        label_words=(),
        params=dataclasses.replace(shortened(params), max_example_tokens=reconstruction_audit.KEY_DIGITS),
    )
    settings.check_prompts((None,))
    batches = reconstruction_audit.key_batches(sets, params, run_key)
    # The keys are made up, so the longest prompt tells nothing, and a short one is fast.
    writer = settings.writer()
    prompts = [prompt for batch in batches for prompt in writer.private_prompts(None, batch.contexts)]
    longest = max(len(prompt) for prompt in (writer.public_prompt(None), *prompts))
    progress('Loading the model')
    generator = load_generator(dataclasses.replace(settings, max_prompt_tokens=longest))
    texts: list[str] = []
    losses: list[float] = []
    for number, batch in enumerate(batches):
        if number % 10 == 0:
            progress(f'Decoding batch {number} of {len(batches)}')
        found, loss = reconstruction_audit.reconstruct(generator, batch, run_key, sabotage=sabotage)
        texts += found
        losses += [] if loss is None else [loss]
    epsilon = max(losses) if losses else generation_epsilon(settings.params, config.resolved_delta)
    return ReconstructionAudit(
        aggregate=params.aggregate,
        sabotage=sabotage,
        seed=seed,
        delta=config.resolved_delta,
        epsilon=epsilon,
        result=reconstruction_audit.count_keys(texts, sets),
    )


# ---------------------------------------------------------------- what people see


def ratio_of(batch: LeaveOneOut) -> float:
    """Empirical epsilon as a share of the bound; 0 where both are 0."""
    return batch.empirical_epsilon / batch.bound if batch.bound > 0 else 0.0


def most_paid(batch: LeaveOneOut) -> float:
    """Largest share of what a context may pay that one paid."""
    return max((payment.paid / payment.most for payment in batch.payments), default=0.0)


def most_given(batch: LeaveOneOut) -> float:
    """Largest divergence as a share of what was paid for it, rounding allowed for; above 1 is a violation."""
    shares = (
        payment.divergence / (payment.paid + payment.rounding)
        for payment in batch.payments
        if payment.divergence > 0
    )
    return max(shares, default=0.0)


def render_leave_one_out(result: LeaveOneOutAudit, console: rich.console.Console) -> None:
    """Prints CL Table 8 of the audit, for the curator's eyes."""
    console.print(report.RESTRICTED, style='bold red')
    rows = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    rows.add_column('Label of batch')
    pays = any(batch.payments for batch in result.batches)
    forces = any(batch.forced_tokens for batch in result.batches)
    for name in (
        'Reference texts',
        'Contexts',
        'Private tokens',
        *(['Forced tokens'] if forces else []),
        'Upper bound ε',
        'Removed',
        'Added',
        'Empirical ε',
        'of bound',
        *(['Paid of B', 'Given of paid'] if pays else []),
    ):
        rows.add_column(name, justify='right')
    rows.add_column('Verdict')
    for batch in result.batches:
        verdict = text.Text('within', 'green') if batch.ok else text.Text('VIOLATION', 'bold red')
        rows.add_row(
            text.Text('none' if batch.label is None else batch.label),
            f'{batch.reference_texts:,}' if batch.reference_texts else 'none',
            f'{batch.contexts:,}',
            f'{batch.private_tokens:,}',
            *([f'{batch.forced_tokens:,}'] if forces else []),
            f'{batch.bound:.3f}',
            f'{largest(batch.removed):.3f}',
            f'{largest((*batch.added, *batch.replaced)):.3f}',
            f'{batch.empirical_epsilon:.3f}',
            f'{ratio_of(batch):.0%}',
            *([f'{most_paid(batch):.0%}', f'{most_given(batch):.0%}'] if pays else []),
            verdict,
        )
    console.print(rows)
    console.print(f'Upper bound: {result.bound_kind}.', soft_wrap=True)
    if result.epsilon is not None:
        console.print(
            f'zCDP gives ε = {report.format_up(result.epsilon)} at δ = {report.format_exact(result.delta)} '
            f'for {"what one context may spend" if pays else "the cap on private tokens"}.',
            soft_wrap=True,
        )
    _print_sabotage(result.sabotage, console)


def render_reconstruction(result: ReconstructionAudit, console: rich.console.Console) -> None:
    """Prints CL Table 7 of the audit."""
    found = result.result
    rows = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    rows.add_column('Synthetic keys')
    for name in ('Count', 'In source', 'In holdout'):
        rows.add_column(name, justify='right')
    rows.add_row(
        'All',
        f'{found.synthetic:,}',
        _share(found.source_hits, found.synthetic),
        _share(found.holdout_hits, found.synthetic),
    )
    rows.add_row(
        'Distinct',
        f'{found.distinct:,}',
        _share(found.distinct_source_hits, found.distinct),
        _share(found.distinct_holdout_hits, found.distinct),
    )
    rows.add_row(
        '95 % interval',
        '',
        *(
            f'{low:.1%} to {high:.1%}'
            for low, high in map(found.interval, (found.distinct_source_hits, found.distinct_holdout_hits))
        ),
    )
    console.print(rows)
    chance = found.keys / 2 / 100_000
    verdict = '[green]no sign of memory[/green]'
    if not result.ok:
        verdict = '[bold red]SOURCE KEYS COME OUT[/bold red]'
    elif not found.conclusive:
        verdict = '[yellow]too few keys to tell[/yellow]'
    console.print(
        f'{result.aggregate}, {found.keys:,} keys: {verdict}, p = {found.p_value:.3g} '
        f'(alarm below {reconstruction_audit.ALARM:g}). By chance {chance:.1%} would be in either half.',
        soft_wrap=True,
    )
    _print_sabotage(result.sabotage, console)


def _share(hits: int, count: int) -> str:
    return f'{hits:,} ({hits / count:.1%})' if count else f'{hits:,}'


def _print_sabotage(sabotage: Sabotage, console: rich.console.Console) -> None:
    if sabotage != 'none':
        console.print(
            f'The mechanism was broken on purpose (--sabotage {sabotage}): this audit should fail.',
            style='yellow',
        )


def largest(ratios: Sequence[float]) -> float:
    """Largest log ratio without its sign; 0 of none."""
    return max(map(abs, ratios), default=0.0)


def render(result: LeaveOneOutAudit | ReconstructionAudit, console: rich.console.Console) -> None:
    """Prints either audit as a table."""
    if isinstance(result, LeaveOneOutAudit):
        render_leave_one_out(result, console)
    else:
        render_reconstruction(result, console)


def write_audit(result: LeaveOneOutAudit | ReconstructionAudit, path: pathlib.Path) -> None:
    """Writes the audit as JSON for the curator, whose file `curator_files.check` accepts."""
    curator_files.write(path, result.to_json(), curator_files.JSON)
