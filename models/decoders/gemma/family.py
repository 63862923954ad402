"""Gemma as a family: the open models of its three generations, and the bundled model, a small Gemma 3."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from models import bundled
from models.decoders import family
from models.decoders.gemma import architectures

if TYPE_CHECKING:
    from models.decoders.decoder import Shapes
    from models.decoders.gemma.decoder import GemmaDecoder
    from models.decoders.gemma.tokenizer import GemmaTokenizer


@final
class GemmaFamily(family.Family):
    """See `Family`."""

    name = 'gemma'

    @property
    def models(self) -> Mapping[str, architectures.Architecture]:
        """See `Family.models`."""
        return architectures.ARCHITECTURES

    def shipped_files(self, model: str) -> family.ModelFiles | None:
        """See `Family.shipped_files`; only the bundled model ships."""
        if model != bundled.MODEL:
            return None
        return family.ModelFiles(checkpoint=str(bundled.CHECKPOINT), tokenizer=str(bundled.TOKENIZER))

    def check_files(self, model: str, files: family.ModelFiles) -> None:
        """See `Family.check_files`; of Orbax, whose metadata needs the library, only that it is there."""
        from models.decoders.gemma import checkpoints

        if '://' not in files.tokenizer and not os.path.isfile(files.tokenizer):
            raise FileNotFoundError(
                f'Expected a SentencePiece file, got tokenizer={files.tokenizer!r}. '
                'Give the tokenizer.model that belongs to the checkpoint.'
            )
        if '://' not in files.checkpoint:
            checkpoints.check_files(self.models[model], files.checkpoint)

    def load_decoder(
        self, model: str, checkpoint: str | os.PathLike[str], *, shapes: 'Shapes', dtype: str
    ) -> 'GemmaDecoder':
        """See `Family.load_decoder`."""
        from models.decoders.gemma import checkpoints, decoder

        architecture = self.models[model]
        parameters = checkpoints.load_parameters(architecture, checkpoint, dtype=dtype)
        return decoder.GemmaDecoder(architecture, parameters, shapes=shapes, dtype=dtype)

    def load_tokenizer(self, model: str, path: str | os.PathLike[str]) -> 'GemmaTokenizer':
        """See `Family.load_tokenizer`."""
        from models.decoders.gemma.tokenizer import GemmaTokenizer

        return GemmaTokenizer(path, self.models[model].generation)

    def load_pooling(self, model: str, checkpoint: str | os.PathLike[str], *, dtype: str) -> family.Pooling:
        """See `Family.load_pooling`."""
        from models.decoders.gemma import checkpoints, decoder

        architecture = self.models[model]
        return family.Pooling(
            weights=checkpoints.load_parameters(architecture, checkpoint, dtype=dtype),
            pool=decoder.make_pooled_states(architecture, dtype=dtype),
        )
