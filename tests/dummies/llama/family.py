"""A family beside Gemma: numbers, names and a tokenizer; all that computes is the room of transformers."""

import os
import pathlib
from collections.abc import Mapping

from models.decoders import family
from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.family import TransformerFamily
from models.decoders.transformer.weights import Weights
from tests.dummies.llama.formats import ARCHITECTURES, HUB
from tests.dummies.llama.tokenizer import LlamaTokenizer


class LlamaFamily(TransformerFamily):
    """See `Family`."""

    name = 'llama'

    @property
    def models(self) -> Mapping[str, Architecture]:
        return ARCHITECTURES

    def origin(self, model: str) -> family.Origin:
        return family.Origin(name=model, maker='this test', terms='none')

    def known_files(self, model: str) -> None:
        return None

    def tokenizer_within(self, checkpoint: str) -> str:
        return checkpoint

    def check_files(self, model: str, files: family.ModelFiles) -> None:
        HUB.check(self.models[model], pathlib.Path(files.checkpoint))

    def load_weights(self, model: str, checkpoint: str | os.PathLike[str], place: Place) -> Weights:
        return HUB.load(self.models[model], pathlib.Path(checkpoint), place)

    def load_tokenizer(self, model: str, path: str | os.PathLike[str]) -> LlamaTokenizer:
        return LlamaTokenizer(str(path))
