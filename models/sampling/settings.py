"""The public settings from which workers build a sampler of the run's own decoder."""

import dataclasses

from models.attributes import Attribute
from models.decoders import family
from models.grammars.structure import Structure
from models.prompt_templates import PromptTemplate
from models.prompts import PromptWriter


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplerSettings:
    """All of it public, picklable.

    Attributes:
        model: The model's name, which leads to its family.
        checkpoint: Folder or file of the weights.
        tokenizer: The tokenizer's file.
        dtype: 'float32' or 'bfloat16', of the weights and the cache.
        template: The forms of the prompts: the public one for requests without examples, the private one
            around examples.
        max_prompt_tokens: P: every prompt is padded to so many tokens, and longer examples are cut. A step
            reads them all, so give no more than the prompts need.
        max_example_tokens: T: a text is cut after so many.
        min_example_tokens: No token that would end a text comes before so many others; 0 for none. A
            structure that allows nothing else ends all the same.
        temperature: Of sampling, above 0.
        top_p: Nucleus: the share of probability that is sampled from.
        top_k: The number of most probable tokens that the nucleus is taken of; None for all.
        rows: Texts that are sampled together; rounded up to a multiple that rows need to be independent.
        label_words: What prompts call each label, as pairs.
        label_name: What they call the label.
        attributes: The attributes whose values every label combines; empty where a label is one value.
        text_name: What they call a text.
        corpus_description: The line that they may begin with.
        schema: Text for `{schema}`.
        structure: What every text has to be; None for any text.
    """

    model: str
    checkpoint: str
    tokenizer: str
    dtype: str
    template: PromptTemplate
    max_prompt_tokens: int
    max_example_tokens: int
    min_example_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 0.95
    top_k: int | None = None
    rows: int = 64
    label_words: tuple[tuple[str, str], ...] = ()
    label_name: str = 'Label'
    attributes: tuple[Attribute, ...] = ()
    text_name: str = 'Text'
    corpus_description: str = 'A collection of texts, one after another.'
    schema: str | None = None
    structure: Structure | None = None

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
        return PromptWriter(
            template=self.template,
            tokenizer=family.family_of(self.model).load_tokenizer(self.model, self.tokenizer),
            max_prompt_tokens=self.max_prompt_tokens,
            label_words=dict(self.label_words),
            label_name=self.label_name,
            attributes=self.attributes,
            text_name=self.text_name,
            corpus_description=self.corpus_description,
            schema=self.schema,
            structure=self.structure,
        )
