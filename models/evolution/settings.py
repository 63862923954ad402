"""The public settings from which workers build the rounds of an evolution."""

import dataclasses
import math

from models.clustering.centers import ClusterSettings
from models.evolution.generation import Candidate
from models.privacy.earlier_release import TextOrigin
from models.privacy.text_votes import TextVoteParams
from models.records import BatchId
from models.sampling.loading import SourceSettings
from models.sampling.non_texts import PublicWords


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvolutionSettings:
    """All of it public, picklable.

    Attributes:
        labels: The declared labels, or a single None.
        embedder: What says how alike texts are. A text's vector is a function of the text alone.
        source: Where texts come from; None for a run that samples none.
        candidates_per_label: Texts of each label's prompt that are sampled for the first round.
        children_per_label: Texts of each label that are sampled for a later round, around what the votes
            before it favour. Its list holds them beside the whole list before it.
        unvoted_per_label: Texts of each label that are sampled after the last round, which nobody votes on.
        fresh_share: Share of a later round's texts that come from the public prompt alone, in [0, 1].
        texts_together: Texts of one batch: of one label, sampled by one worker.
        public_words: The words of the prompts, by which sampled texts that are none are told
            (`models.sampling.non_texts`); None where every text counts.
        start: The list of the first round where it is given; empty where it is sampled.
        start_origin: Where that list comes from. For the report.
    """

    run_id: str
    params: TextVoteParams
    labels: tuple[str | None, ...]
    embedder: ClusterSettings
    source: SourceSettings | None
    examples: int
    candidates_per_label: int = 0
    children_per_label: int = 0
    unvoted_per_label: int = 0
    fresh_share: float = 0.0
    shots: int = 3
    texts_together: int = 64
    least_tokens: int = 0
    public_words: PublicWords | None = None
    start: tuple[Candidate, ...] = ()
    start_origin: TextOrigin = TextOrigin()

    def samples_in(self, number: int) -> int:
        """Texts of each label that are sampled for a round.

        Args:
            number: Of the round, from 1; `params.rounds + 1` for the texts after the last vote.
        """
        if number > self.params.rounds:
            return self.unvoted_per_label
        if number > 1:
            return self.children_per_label
        return 0 if self.start else self.candidates_per_label

    def stage_of(self, number: int) -> str:
        """The display name of a round, or of the step after the last one."""
        rounds = self.params.rounds
        return f'Round {number:,} of {rounds:,}' if number <= rounds else 'After the last vote'

    def batches_of(self, number: int) -> tuple[tuple[BatchId, int], ...]:
        """(batch, number of texts) of each batch of a round, by label and then by index."""
        texts, together = self.samples_in(number), self.texts_together
        before = self._batches_before(number)
        return tuple(
            (BatchId(group=group, index=before + place), min(together, texts - place * together))
            for group in range(len(self.labels))
            for place in range(math.ceil(texts / together))
        )

    @property
    def batches_per_label(self) -> int:
        """Planned batches of each label, at least 1; a given list counts as one."""
        return max(1, self._batches_before(self.params.rounds + 2))

    def _batches_before(self, number: int) -> int:
        sampled = (math.ceil(self.samples_in(earlier) / self.texts_together) for earlier in range(1, number))
        return bool(self.start) + sum(sampled)
