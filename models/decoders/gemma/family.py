"""Gemma as a family: the open models of its three generations, and the bundled model, a small Gemma 3.

The command line's help imports this, so what reads files is imported where it is used.
"""

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from models import bundled, fetched
from models.decoders import family
from models.decoders.gemma import architectures

if TYPE_CHECKING:
    from models.decoders.decoder import Shapes
    from models.decoders.gemma.decoder import GemmaDecoder
    from models.decoders.gemma.tokenizer import GemmaTokenizer

# Of every generation here; the fetched file has the text beside it.
_TERMS = 'Gemma Terms of Use, ai.google.dev/gemma/terms'


@final
class GemmaFamily(family.Family):
    """See `Family`."""

    name = 'gemma'

    @property
    def models(self) -> Mapping[str, architectures.Architecture]:
        """See `Family.models`."""
        return architectures.ARCHITECTURES

    def origin(self, model: str) -> family.Origin:
        """See `Family.origin`."""
        if model == bundled.MODEL:
            return family.Origin(name='bundled model', maker='dp-corpus', terms='Apache License 2.0')
        version, size = model.removeprefix('gemma').split('-')
        return family.Origin(name=f'Gemma {version} {size.upper()}', maker='Google', terms=_TERMS)

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
        """See `Family.check_files`."""
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
                f'Expected a SentencePiece or GGUF file, got tokenizer={files.tokenizer!r}. '
                'Give the tokenizer.model that belongs to the checkpoint.'
            )
        if '://' not in files.checkpoint:
            checkpoints.check_files(self.models[model], files.checkpoint)

    def load_decoder(
        self,
        model: str,
        checkpoint: str | os.PathLike[str],
        *,
        shapes: 'Shapes',
        dtype: str,
        adapter: Any | None = None,
    ) -> 'GemmaDecoder':
        """See `Family.load_decoder`."""
        from models.decoders.gemma import checkpoints, decoder

        architecture = self.models[model]
        parameters = checkpoints.load_parameters(architecture, checkpoint, dtype=dtype)
        return decoder.GemmaDecoder(architecture, parameters, shapes=shapes, dtype=dtype, adapter=adapter)

    def adapter_shapes(self, model: str, rank: int | None) -> Any:
        """See `Family.adapter_shapes`."""
        from models.decoders.gemma.weights import adapter_shapes

        return adapter_shapes(self.models[model], rank)

    def load_tunable(
        self, model: str, checkpoint: str | os.PathLike[str], *, dtype: str, remat: bool = False
    ) -> family.Tunable:
        """See `Family.load_tunable`."""
        import jax.numpy as jnp

        from models.decoders.gemma import checkpoints, tuning
        from models.decoders.gemma.weights import arrange

        architecture = self.models[model]
        parameters = checkpoints.load_parameters(architecture, checkpoint, dtype=dtype)
        return family.Tunable(
            weights=arrange(architecture, parameters, lambda weight: jnp.asarray(weight, dtype)),
            products=functools.partial(tuning.products, architecture),
            log_probabilities=functools.partial(tuning.log_probabilities, architecture, remat=remat),
        )

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
