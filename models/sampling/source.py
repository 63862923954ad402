"""Sources of texts: public requests in, sampled texts out (METHOD 4e, step 1).

No record ever reaches a source. A request holds a declared label and texts that were released, and there is
no other way in: `Request` refuses anything but texts, and the private types of `models.records` are none.
"""

import abc
import dataclasses
from collections.abc import Sequence

from models.privacy.randomness import RunKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Request for one text: public and released values alone.

    Attributes:
        name: Unique within the run, such as '0002-000017'; the randomness of the text follows from it.
        label: The declared label that the prompt asks for; None in a run without labels.
        examples: Texts that the prompt shows, all of them public or released before; none for the public
            prompt alone.
    """

    name: str
    label: str | None
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(type(text) is str for text in self.examples):
            raise TypeError(
                'Expected examples that are texts, got another type. Show a source released texts alone: no '
                'record, context or batch may reach it.'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledText:
    """One answer.

    Attributes:
        text: The text, without what ended it.
        tokens: Tokens that were sampled, with what ended the text; of the run's own tokenizer.
    """

    text: str
    tokens: int
    truncated: bool


class TextSource(abc.ABC):
    """A sampler of texts. Loading one is what costs; asking it is a function of requests and the run key."""

    @abc.abstractmethod
    def sample(self, requests: Sequence[Request], key: RunKey) -> list[SampledText | None]:
        """One text for each request, in their order; None where there is no answer.

        A text is a function of its own request and the run key, as far as the source can promise that: the
        same text whatever requests stand beside it.

        Raises:
            ValueError: A prompt does not fit.
        """
