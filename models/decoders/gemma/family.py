"""Gemma as a family: the open models of its generations, and the bundled model, a small Gemma 3.

The command line's help imports this, so what reads files is imported where it is used.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from models import bundled, fetched
from models.decoders import family
from models.decoders.gemma.architectures import ARCHITECTURES, GemmaArchitecture
from models.decoders.transformer.family import TransformerFamily

if TYPE_CHECKING:
    from models.decoders.gemma.tokenizer import GemmaTokenizer
    from models.decoders.transformer.checkpoint import Place
    from models.decoders.transformer.weights import Weights

_APACHE = 'Apache License 2.0'
# Generations before the fourth have these terms; their text lies beside the fetched file.
_TERMS = 'Gemma Terms of Use, ai.google.dev/gemma/terms'


@final
class GemmaFamily(TransformerFamily):
    """See `Family`."""

    name = 'gemma'

    @property
    def models(self) -> Mapping[str, GemmaArchitecture]:
        return ARCHITECTURES

    def origin(self, model: str) -> family.Origin:
        if model == bundled.MODEL:
            return family.Origin(name='bundled model', maker='dp-corpus', terms=_APACHE)
        version, size = model.removeprefix('gemma').split('-', 1)
        terms = _APACHE if self.models[model].generation == '4' else _TERMS
        return family.Origin(name=f'Gemma {version} {size.upper()}', maker='Google', terms=terms)

    def known_files(self, model: str) -> family.ModelFiles | None:
        """See `Family.known_files`: the bundled model ships, and one can be fetched."""
        if model == bundled.MODEL:
            return family.ModelFiles(checkpoint=str(bundled.CHECKPOINT), tokenizer=str(bundled.TOKENIZER))
        if model == fetched.MODEL:
            path = str(fetched.fetched_file())
            return family.ModelFiles(checkpoint=path, tokenizer=path)
        return None

    def tokenizer_within(self, checkpoint: str) -> str | None:
        """See `Family.tokenizer_within`: a GGUF file holds its own."""
        return checkpoint if checkpoint.endswith('.gguf') else None

    def answers_turns(self, checkpoint: str) -> bool | None:
        """See `Family.answers_turns`: of GGUF and of safetensors."""
        from models.decoders.gemma import checkpoints

        return None if '://' in checkpoint else checkpoints.has_chat_template(checkpoint)

    def check_files(self, model: str, files: family.ModelFiles) -> None:
        from models.decoders.gemma import checkpoints

        known = self.known_files(model)
        for name, path in (('checkpoint', files.checkpoint), ('tokenizer', files.tokenizer)):
            if model == fetched.MODEL and known and path == known.checkpoint and not os.path.isfile(path):
                raise FileNotFoundError(
                    f'Expected the weights of model={model!r} among what this machine has fetched, got none '
                    f'at {name}={path!r}. {fetched.REMEDY}, or give --{name}.'
                )
        if '://' not in files.tokenizer and not os.path.isfile(files.tokenizer):
            raise FileNotFoundError(
                f'Expected a SentencePiece, JSON or GGUF file, got tokenizer={files.tokenizer!r}. '
                'Give the tokenizer.model or tokenizer.json that belongs to the checkpoint.'
            )
        if '://' not in files.checkpoint:
            checkpoints.check_files(self.models[model], files.checkpoint)

    def load_weights(self, model: str, checkpoint: str | os.PathLike[str], place: 'Place') -> 'Weights':
        from models.decoders.gemma import checkpoints

        return checkpoints.load_weights(self.models[model], checkpoint, place)

    def load_tokenizer(self, model: str, path: str | os.PathLike[str]) -> 'GemmaTokenizer':
        from models.decoders.gemma.tokenizer import GemmaTokenizer

        return GemmaTokenizer(path, self.models[model].generation)
