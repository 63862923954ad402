"""Settings of the decoder that is shown texts of a corpus."""

import dataclasses
from typing import Literal

from models import spelling
from models.decoders import family


@dataclasses.dataclass(frozen=True, kw_only=True)
class InContextSettings:
    """The decoder that is asked, and its prompts.

    Attributes:
        model: Its name, which leads to its family.
        checkpoint: Its weights; None where they are known to be.
        tokenizer: Its tokenizer's file; None where it is known to be.
        dtype: Type of weights and products; 'auto' for what this machine is fastest in.
        labels: Labels that may be answered, VALUE=WORDS or VALUE, in the order in which prompts name them;
            none for those of the test texts.
        examples_per_label: k, texts of each label that a prompt shows.
        draws: Draws of the examples.
        most_orders: Orders of the examples of a draw: all, or so many drawn ones where there are more.
        most_test_texts: Real texts that are asked about; of more, so many are drawn.
        most_text_tokens: Length that texts are cut to.
    """

    model: str
    checkpoint: str | None = None
    tokenizer: str | None = None
    dtype: Literal['auto', 'float32', 'bfloat16'] = 'auto'
    labels: tuple[str, ...] = ()
    examples_per_label: int = 1
    draws: int = 3
    most_orders: int = 8
    most_test_texts: int = 100
    most_text_tokens: int = 64

    def __post_init__(self) -> None:
        family.files_of(self.model, self.checkpoint, self.tokenizer)
        for name in ('examples_per_label', 'draws', 'most_orders', 'most_test_texts', 'most_text_tokens'):
            if getattr(self, name) < 1:
                raise ValueError(f'Expected {name} >= 1, got {name}={getattr(self, name)}. Raise it.')
        if len(self.label_words) < len(self.labels) or not all(self.label_words.values()):
            raise ValueError(
                f'Expected distinct labels, each VALUE=WORDS or VALUE, got labels={list(self.labels)!r}. '
                'Declare each label once.'
            )

    @property
    def files(self) -> family.ModelFiles:
        """The files of the model."""
        return family.files_of(self.model, self.checkpoint, self.tokenizer)

    @property
    def label_words(self) -> dict[str, str]:
        """The words in prompts of each declared label."""
        pairs = (label.partition('=') for label in self.labels)
        return {
            spelling.spelled(value) or '': (words if equals else value).strip()
            for value, equals, words in pairs
        }
