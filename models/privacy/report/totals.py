"""Totals of a corpus, of each kind of corpus: functions of the released text alone."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusTotals:
    """Totals of the corpus, a function of the mechanism's output alone.

    Attributes:
        examples: Synthetic examples, unfinished ones included.
        private_tokens: Tokens sampled from the private aggregate.
        public_tokens: Tokens sampled from the public prompt's logits.
        truncated: Examples that ended without a stop token.
    """

    examples: int
    private_tokens: int
    public_tokens: int
    truncated: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StructuredTotals(CorpusTotals):
    """Totals of a corpus whose examples have a structure.

    Attributes:
        forced_tokens: Tokens that nobody chose: the structure allowed no other.
    """

    forced_tokens: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedTotals:
    """Totals of a corpus that was sampled from an adapter, a function of the corpus alone.

    Attributes:
        examples: Synthetic examples, unfinished ones included.
        sampled_tokens: Tokens that were sampled.
        truncated: Examples that ended without a stop token.
    """

    examples: int
    sampled_tokens: int
    truncated: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChosenTotals:
    """Totals of a corpus that was chosen by noisy votes, a function of the released texts alone.

    Attributes:
        examples: Texts of the corpus.
        voted: Those that records voted on; the others were sampled around them after the last vote.
        sampled_tokens: Tokens that were sampled for the texts of the corpus; 0 of given texts.
        truncated: Texts of the corpus that ended without a stop token.
    """

    examples: int
    voted: int
    sampled_tokens: int
    truncated: int
