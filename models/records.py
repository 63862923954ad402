"""Values that flow through a run. Private and released values are different types.

`Record`, `Context` and `Batch` hold sensitive text and never leave the curator:
their `repr` shows no content, so that no log line or traceback can. Only
`SyntheticExample` may be written to the corpus.
"""

import dataclasses

from models.conditions import Turns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One row of the sensitive input.

    Attributes:
        text: The sensitive text, valid UTF-8, not blank.
        label: One of the declared labels; None where the run declares none.
        unit: The unit id (of the user, say); None under the `example` unit.
        record_id: The row's own id, which spreads duplicated texts; None where rows have none.
        embedding: The text's embedding, little-endian float32, from the embedding step to
            the choice of the record's cluster; None before and after.
        cluster: Index of the nearest of all centres, and later of the nearest centre that
            the label keeps (METHOD 3); None in a run without clusters.
    """

    text: str = dataclasses.field(repr=False)
    label: str | None = dataclasses.field(default=None, repr=False)
    unit: str | None = dataclasses.field(default=None, repr=False)
    record_id: str | None = dataclasses.field(default=None, repr=False)
    embedding: bytes | None = dataclasses.field(default=None, repr=False)
    cluster: int | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The sensitive part of one private prompt; one context is one unit of privacy.

    Attributes:
        context_hash: Keyed hash that orders the contexts of a batch: 16 bytes.
        texts: The texts of the context's records, at most k, in the order of the records'
            keyed hashes.
    """

    context_hash: bytes = dataclasses.field(repr=False)
    texts: tuple[str, ...] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class BatchId:
    """The public name of a planned batch.

    Attributes:
        group: Index of the batch's group in the batch plan.
        index: Index of the batch within its group.
    """

    group: int
    index: int

    def __str__(self) -> str:
        return f'{self.group:04d}-{self.index:06d}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """The contexts that vote on one token stream, sorted by their keyed hash.

    Attributes:
        batch_id: The batch's name.
        label: The declared label of the batch's group, or None.
        contexts: The contexts; none for a planned batch that no record hashed to.
        turns: Cells of values that its examples get, public; None where they get none.
    """

    batch_id: BatchId
    label: str | None
    contexts: tuple[Context, ...] = dataclasses.field(repr=False)
    turns: Turns | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticExample:
    """One released example. Every field is an output of the mechanism.

    Attributes:
        text: The decoded text.
        label: The declared label of the batch's group, or None.
        batch_id: The name of the batch, as text.
        index_in_batch: The example's place in the batch's token stream, from 0.
        private_tokens: Number of tokens that were sampled from the private aggregate.
        public_tokens: Number of tokens that were sampled from the public prompt's logits.
        truncated: True if the example ended without a stop token: at its length cap, or
            because the batch had used up its tokens.
    """

    text: str
    label: str | None
    batch_id: str
    index_in_batch: int
    private_tokens: int
    public_tokens: int
    truncated: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class StructuredExample(SyntheticExample):
    """One released example of a run whose examples have a structure.

    Attributes:
        forced_tokens: Number of its tokens that were forced: the structure allowed no other.
    """

    forced_tokens: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedExample:
    """One released example of a fine-tuned model. Every field is post-processing of the adapter.

    Attributes:
        text: The sampled text.
        label: The declared label whose instruction it answers, or None.
        batch_id: The name of the planned batch that it was sampled in, as text.
        index_in_batch: The example's place in the batch, from 0.
        tokens: Number of sampled tokens, including those that end the text.
        truncated: True if the example ended at its length cap.
    """

    text: str
    label: str | None
    batch_id: str
    index_in_batch: int
    tokens: int
    truncated: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvolvedExample:
    """One released example of votes on whole texts. Every field is post-processing of the noisy votes.

    Attributes:
        text: The text, as it was sampled or given.
        label: The declared label whose records favour it most, or None.
        batch_id: The name of the planned batch that it was sampled in, as text.
        index_in_batch: Its place in the batch, from 0.
        tokens: Number of sampled tokens, including those that end the text; 0 for a text that was given.
        truncated: True if the example ended at its length cap.
        round: The round that it came up in, from 1; None of a text that nobody voted on.
        noisy_votes: Noisy votes of its label's records in the last round; None where nobody voted.
        parents: The texts that its prompt showed, as `BATCH_ID-INDEX`, comma-separated; '' for none.
    """

    text: str
    label: str | None
    batch_id: str
    index_in_batch: int
    tokens: int
    truncated: bool
    round: int | None
    noisy_votes: float | None
    parents: str
