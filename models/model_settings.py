"""The public settings from which workers load a model and write its prompts, whatever they do with it."""

import dataclasses

from models.attributes import Attribute
from models.decoders import family
from models.grammars.structure import Structure
from models.prompt_templates import PromptTemplate
from models.prompts import PromptWriter


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """All of it public, picklable.

    Attributes:
        model: The model's name, which leads to its family.
        tokenizer: The tokenizer's file.
        dtype: 'float32' or 'bfloat16', of the weights, the cache and products: one for all workers, so that
            what is computed again elsewhere has the same type.
        max_prompt_tokens: P: longest prompt; longer texts in it are cut.
        label_words: Words for each label in prompts, as pairs.
        label_name: The label's name in prompts.
        attributes: The attributes whose values every label combines; empty where a label is one value.
        text_name: A text's name in prompts.
        schema: Text for `{schema}`.
        structure: The structure that every text has; None for any text.
        compilation_cache: Folder in which workers keep what they compile; None for none.
    """

    model: str
    checkpoint: str
    tokenizer: str
    dtype: str
    max_prompt_tokens: int
    template: PromptTemplate
    label_words: tuple[tuple[str, str], ...] = ()
    label_name: str = 'Label'
    attributes: tuple[Attribute, ...] = ()
    text_name: str = 'Text'
    corpus_description: str = 'A collection of texts, one after another.'
    schema: str | None = None
    structure: Structure | None = None
    compilation_cache: str | None = None

    def prompt_writer(self, *, min_example_tokens: int = 0, mask: str | None = None) -> PromptWriter:
        """Writes prompts; needs the tokenizer, not the model.

        Args:
            min_example_tokens: See `PromptWriter`.
            mask: See `PromptWriter`.
        """
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
            min_example_tokens=min_example_tokens,
            mask=mask,
        )
