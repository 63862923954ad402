"""The public settings from which workers build a sampler of the run's own decoder."""

import dataclasses

from models.model_settings import ModelSettings
from models.prompts import PromptWriter


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdapterFile:
    """The adapter that is added to the model. Public, picklable.

    Attributes:
        folder: The folder with its file.
        rank: Rank of its factors; None for a difference of all weights.
        sha256: Digest of its file, in hexadecimal; None of one that the run itself trains first.
    """

    folder: str
    rank: int | None
    sha256: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplerSettings(ModelSettings):
    """All of it public, picklable.

    Attributes:
        max_example_tokens: T: a text is cut after so many.
        min_example_tokens: No token that would end a text comes before so many others; 0 for none. A
            structure that allows nothing else ends all the same.
        temperature: Of sampling, above 0.
        top_p: Nucleus: the share of probability that is sampled from.
        top_k: The number of most probable tokens that the nucleus is taken of; None for all.
        rows: Texts that are sampled together; rounded up to a multiple that rows need to be independent.
        adapter: The adapter that texts are sampled with; None for the model alone.
    """

    max_example_tokens: int
    min_example_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 0.95
    top_k: int | None = None
    rows: int = 64
    adapter: AdapterFile | None = None

    def __post_init__(self) -> None:
        for name in ('max_prompt_tokens', 'max_example_tokens', 'rows'):
            if getattr(self, name) < 1:
                raise ValueError(f'Expected {name} >= 1, got {name}={getattr(self, name)}. Raise it.')
        if not 0 <= self.min_example_tokens < self.max_example_tokens:
            raise ValueError(
                f'Expected 0 <= min_example_tokens < max_example_tokens={self.max_example_tokens}, got '
                f'min_example_tokens={self.min_example_tokens}. Lower it.'
            )
        if not self.temperature > 0:
            raise ValueError(f'Expected temperature > 0, got temperature={self.temperature}. Raise it.')
        if not 0 < self.top_p <= 1:
            raise ValueError(f'Expected top_p in (0, 1], got top_p={self.top_p}. Take 1 for all tokens.')
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f'Expected top_k >= 1, got top_k={self.top_k}. Take None for all tokens.')

    def writer(self) -> PromptWriter:
        """The prompts; needs the tokenizer, not the model."""
        return self.prompt_writer()
