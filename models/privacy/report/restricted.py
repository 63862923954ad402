"""The report that only the curator may read, and the losses or the spending that it holds.

It shares no type and no field with `PrivacyReport` but the run's public name, so a true count cannot get
from one into the other (METHOD 8).

Source: CL = the paper on clusters and the median.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import numpy as np

from models.privacy import codec
from models.privacy.ex_post import BatchLoss
from models.privacy.individual import BatchSpending
from models.privacy.params import MechanismParams

BatchFacts = BatchLoss | BatchSpending
"""What the curator learns of a batch beside its size: the losses of a median, or what contexts spent."""

RESTRICTED: Final = 'Restricted to the curator. It holds true counts: never publish it.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupContexts:
    """True number of contexts of one group. Restricted to the curator.

    Attributes:
        restricted_label: The group's declared label; None where the run declares none.
        restricted_words: What the run declares to call it; None where it declares no words for it.
        restricted_cluster: The group's cluster; None without clusters.
        true_count: Contexts that its batches hold.
    """

    restricted_label: str | None
    restricted_words: str | None = None
    restricted_cluster: int | None = None
    true_count: int = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchEpsilon:
    """Data-dependent loss of one batch of a median run. Restricted to the curator.

    Attributes:
        ex_post_epsilon: max(−Σ log α, Σ log β) over the batch's tokens (METHOD 5).
        paper_epsilon: Σ max(−log α, log β), CL's larger figure, for comparison.
    """

    ex_post_epsilon: float = dataclasses.field(repr=False)
    paper_epsilon: float = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceLoss:
    """Losses of the private tokens at one place in an example. Restricted to the curator.

    The loss of a token is max(−log α, log β), without the sparse-vector test.

    Attributes:
        tokens: Private tokens at this place, over all examples of all batches.
        mean: Their mean loss; 0 without tokens, like the next two.
        lower_decile: A tenth of the losses lies below.
        upper_decile: A tenth of the losses lies above.
    """

    tokens: int = dataclasses.field(repr=False)
    mean: float = dataclasses.field(repr=False)
    lower_decile: float = dataclasses.field(repr=False)
    upper_decile: float = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExPostLosses:
    """Data-dependent losses of a median run (METHOD 5). Restricted to the curator.

    Attributes:
        run_ex_post_epsilon: Largest `ex_post_epsilon` of a batch: the run's loss.
        run_paper_epsilon: Largest `paper_epsilon` of a batch, for comparison.
        loss_by_batch: Loss of each batch, by `str(batch_id)`.
        loss_by_place: Losses by place in the example, from 0.
    """

    run_ex_post_epsilon: float = dataclasses.field(repr=False)
    run_paper_epsilon: float = dataclasses.field(repr=False)
    loss_by_batch: Mapping[str, BatchEpsilon] = dataclasses.field(repr=False)
    loss_by_place: tuple[PlaceLoss, ...] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpendingOfBatch:
    """Spending of the contexts of one batch. Restricted to the curator.

    Attributes:
        stream_tokens: Tokens of its stream, without forced ones, like all places in it below.
        mean_share_spent: Mean over its contexts of what each spent of B; 0 without contexts, like the next.
        largest_share_spent: The largest of them.
        last_voters: Contexts that voted on its last token; 0 for a stream without one.
        first_silent: Place in the stream, from 0, of the first token at which a context sat out; None
            where none ever did.
    """

    stream_tokens: int = dataclasses.field(repr=False)
    mean_share_spent: float = dataclasses.field(repr=False)
    largest_share_spent: float = dataclasses.field(repr=False)
    last_voters: int = dataclasses.field(repr=False)
    first_silent: int | None = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextSpending:
    """Spending of contexts from their budget B (METHOD 4d). Restricted to the curator.

    Attributes:
        share_spent_deciles: What contexts spent, as shares of B: the least, the nine deciles and the
            largest, over all contexts of all batches; empty without contexts.
        share_voting: For each place in the stream, from 0, the share of a batch's contexts that voted,
            averaged over the batches that have contexts and a token there; 0 where none has.
        spending_by_batch: The same of each batch, by `str(batch_id)`.
    """

    share_spent_deciles: tuple[float, ...] = dataclasses.field(repr=False)
    share_voting: tuple[float, ...] = dataclasses.field(repr=False)
    spending_by_batch: Mapping[str, SpendingOfBatch] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerTime:
    """Time of one worker process, by activity. Restricted to the curator: it grows with the records.

    Attributes:
        device: Kind of its devices; 'processor' for the machine's own.
        devices: Number of them.
        peak_bytes: Most memory that one of them held; of a processor, what the process held.
        elapsed_seconds: From its start, or that of the run in it, to the last piece of its work.
        loading_seconds: Loading models and placing them.
        compiling_seconds: Compiling programs, or reading those that an earlier process kept.
        training_seconds: Steps of training.
        embedding_seconds: Embedding texts and records.
        decoding_seconds: Reading prompts and writing texts.
        waiting_seconds: The rest: for records, for other workers, for files.
        programs: Programs that were compiled or read.
        training_tokens: Tokens that were trained on.
        decoding_tokens: Tokens of all rows that decoding read or wrote.
    """

    device: str
    devices: int
    peak_bytes: int = dataclasses.field(repr=False)
    elapsed_seconds: float = dataclasses.field(repr=False)
    loading_seconds: float = dataclasses.field(repr=False)
    compiling_seconds: float = dataclasses.field(repr=False)
    training_seconds: float = dataclasses.field(repr=False)
    embedding_seconds: float = dataclasses.field(repr=False)
    decoding_seconds: float = dataclasses.field(repr=False)
    waiting_seconds: float = dataclasses.field(repr=False)
    programs: int = dataclasses.field(repr=False)
    training_tokens: int = dataclasses.field(repr=False)
    decoding_tokens: int = dataclasses.field(repr=False)

    def to_json(self) -> str:
        """The figures as JSON text."""
        return codec.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> 'WorkerTime':
        """Reads what `to_json` wrote; a ValueError of anything else."""
        return codec.read(cls, text, 'the time of a worker', 'Remove it: it is shown to the curator alone')


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestrictedReport:
    """Restricted to the curator: true counts of one run, for the work directory alone.

    Nothing here was paid for. Its `repr` shows no number, so that no log line or
    traceback can.

    Attributes:
        schema: What kind of document this is.
        schema_version: Changes with every change that a reader has to know of.
        audience: Who may read it.
        run_id: Public name of the run.
        records_read: Rows of the input, rejected ones included.
        rejected_by_reason: Rejected rows by the name of the reason.
        contexts_per_batch: True size of each planned batch, by `str(batch_id)`.
        true_counts_by_group: True contexts by label and cluster.
        records_in_reference: Records whose text is a text of --reference; None without it.
        records_outside_structure: Records that are no example of --json-schema or --regex, and stand in
            prompts as plain text; None without either.
        records_in_no_cell: Records that are no JSON object or lack a declared value of a field of
            --condition-on, so that they are not counted for its mix; None without it.
        records_left_out: Records, rejected ones aside, that --sample-rate left out; None without it.
        losses: Data-dependent losses of a median run; None for the other aggregates.
        spending: What contexts spent; None without individual accounting.
        workers: Time of each worker process, those of earlier tries of the run among them.
        texts_written: Texts of the corpus.
        device_hour_price: What the curator pays for an hour of one device; None where that was not told.
    """

    __pydantic_config__: ClassVar[Any] = codec.STRICT

    schema: Literal['dp-corpus/restricted-report'] = 'dp-corpus/restricted-report'
    schema_version: Literal[8] = 8
    audience: Literal['Restricted to the curator. It holds true counts: never publish it.'] = RESTRICTED
    run_id: str
    records_read: int = dataclasses.field(repr=False)
    rejected_by_reason: Mapping[str, int] = dataclasses.field(repr=False)
    contexts_per_batch: Mapping[str, int] = dataclasses.field(repr=False)
    true_counts_by_group: tuple[GroupContexts, ...] = dataclasses.field(repr=False)
    records_in_reference: int | None = dataclasses.field(default=None, repr=False)
    records_outside_structure: int | None = dataclasses.field(default=None, repr=False)
    records_in_no_cell: int | None = dataclasses.field(default=None, repr=False)
    records_left_out: int | None = dataclasses.field(default=None, repr=False)
    losses: ExPostLosses | None = dataclasses.field(default=None, repr=False)
    spending: ContextSpending | None = dataclasses.field(default=None, repr=False)
    workers: tuple[WorkerTime, ...] = dataclasses.field(default=(), repr=False)
    texts_written: int = dataclasses.field(default=0, repr=False)
    device_hour_price: float | None = None

    @property
    def device_hours(self) -> float:
        """Hours of all devices together, whatever they did in them."""
        return sum(worker.devices * worker.elapsed_seconds for worker in self.workers) / 3600

    def to_json(self) -> str:
        """The report as JSON text, marked as restricted."""
        return codec.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> 'RestrictedReport':
        """Reads what `to_json` wrote; errors as `PrivacyReport.from_json`."""
        return codec.read(cls, text, 'a restricted report of this version', 'Restore it as its run wrote it')


def ex_post_losses(losses: Sequence[BatchLoss], params: MechanismParams) -> ExPostLosses:
    """The losses of a run without a price in advance, from the losses of its batches.

    Args:
        losses: One entry for each planned batch, in any order.
        params: The mechanism's settings.

    Raises:
        ValueError: The aggregate has a price in advance, or there is no batch.
    """
    if not params.is_ex_post or not losses:
        raise ValueError(
            f'Expected the losses of a run without a price in advance, got aggregate={params.aggregate!r}, '
            f'batches={len(losses)}. With a price in advance leave the losses out.'
        )
    by_batch = {
        loss.batch_id: BatchEpsilon(
            ex_post_epsilon=loss.epsilon(params), paper_epsilon=loss.paper_epsilon(params)
        )
        for loss in sorted(losses, key=lambda loss: loss.batch_id)
    }
    by_place: dict[int, list[float]] = {}
    for loss in losses:
        for place, is_private, up, down in zip(
            loss.places, loss.is_private, loss.minus_log_alpha, loss.log_beta, strict=True
        ):
            place_losses = by_place.setdefault(place, [])
            if is_private:
                place_losses.append(max(up, down))
    return ExPostLosses(
        run_ex_post_epsilon=max(batch.ex_post_epsilon for batch in by_batch.values()),
        run_paper_epsilon=max(batch.paper_epsilon for batch in by_batch.values()),
        loss_by_batch=by_batch,
        loss_by_place=tuple(
            _place_loss(by_place.get(place, [])) for place in range(max(by_place, default=-1) + 1)
        ),
    )


def _place_loss(losses: Sequence[float]) -> PlaceLoss:
    if not losses:
        return PlaceLoss(tokens=0, mean=0.0, lower_decile=0.0, upper_decile=0.0)
    # Sorted, because otherwise the order in which batches finish would show in the last digit.
    ordered = np.sort(np.asarray(losses, np.float64))
    low, high = np.quantile(ordered, (0.1, 0.9))
    return PlaceLoss(
        tokens=len(losses), mean=float(ordered.mean()), lower_decile=float(low), upper_decile=float(high)
    )


def context_spending(spending: Sequence[BatchSpending], params: MechanismParams) -> ContextSpending:
    """Spending of the contexts of a run, from that of its batches.

    Args:
        spending: One entry for each planned batch, in any order.
        params: The mechanism's settings.

    Raises:
        ValueError: Accounting is not individual, or there is no batch.
    """
    if params.context_budget is None or not spending:
        raise ValueError(
            'Expected the spending of a run with individual accounting, got '
            f'accounting={params.accounting!r}, batches={len(spending)}. Leave the spending out otherwise.'
        )
    by_batch = {}
    # Sorted, because otherwise the order in which batches finish would show in the last digit.
    ordered = sorted(spending, key=lambda batch: batch.batch_id)
    longest = max(len(batch.voters) for batch in ordered)
    sums, counts = np.zeros(longest), np.zeros(longest)
    for batch in ordered:
        shares = np.asarray(batch.spent, np.float64) / params.context_budget
        contexts, tokens = len(shares), len(batch.voters)
        by_batch[batch.batch_id] = SpendingOfBatch(
            stream_tokens=tokens,
            mean_share_spent=float(shares.mean()) if contexts else 0.0,
            largest_share_spent=float(shares.max()) if contexts else 0.0,
            last_voters=batch.voters[-1] if tokens else 0,
            first_silent=batch.first_silent,
        )
        if contexts:
            sums[:tokens] += np.asarray(batch.voters, np.float64) / contexts
            counts[:tokens] += 1
    of_contexts = [share / params.context_budget for batch in ordered for share in batch.spent]
    deciles = np.quantile(np.sort(of_contexts), np.linspace(0, 1, 11)) if of_contexts else []
    return ContextSpending(
        share_spent_deciles=tuple(map(float, deciles)),
        share_voting=tuple((sums / np.maximum(counts, 1)).tolist()),
        spending_by_batch=by_batch,
    )
