"""A family of transformers: everything that follows from its models' numbers and weights."""

import abc
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.decoders import device, family
from models.decoders.transformer.architecture import Architecture

if TYPE_CHECKING:
    from models.decoders.decoder import Shapes
    from models.decoders.transformer.checkpoint import Place
    from models.decoders.transformer.decoder import TransformerDecoder
    from models.decoders.transformer.weights import Weights


class TransformerFamily(family.Family):
    """A `Family` whose models are transformers; one that has files and a tokenizer is a family.

    The command line's help imports this, so JAX is imported where it is used.
    """

    @property
    @abc.abstractmethod
    def models(self) -> Mapping[str, Architecture]:
        """See `Family.models`."""

    @abc.abstractmethod
    def load_weights(self, model: str, checkpoint: str | os.PathLike[str], place: 'Place') -> 'Weights':
        """Reads the weights of a model.

        Raises:
            FileNotFoundError: There is no such checkpoint.
            ValueError: The checkpoint is another model's.
        """

    def _on_devices(self, model: str, checkpoint: str | os.PathLike[str], place: 'Place') -> 'Weights':
        """The weights, placed; a MemoryError where a device has no room for them."""
        import jax

        device.warn_of_processor(jax.local_devices()[0].platform)
        try:
            return self.load_weights(model, checkpoint, place)
        except jax.errors.JaxRuntimeError as error:
            if 'RESOURCE_EXHAUSTED' not in str(error):
                raise
            raise MemoryError(
                f'Expected the weights of model={model!r} to fit on the device, got less free memory there. '
                'Another process may hold it: give each a device of its own, or set '
                'XLA_PYTHON_CLIENT_MEM_FRACTION=0.45 for two on one; or take a smaller model.'
            ) from error

    def load_decoder(
        self,
        model: str,
        checkpoint: str | os.PathLike[str],
        *,
        shapes: 'Shapes',
        dtype: str,
        adapter: Any | None = None,
    ) -> 'TransformerDecoder':
        import jax
        import jax.numpy as jnp

        from models.decoders.transformer import sharded
        from models.decoders.transformer.checkpoint import Place
        from models.decoders.transformer.decoder import TransformerDecoder, on_all_devices

        architecture, devices = self.models[model], jax.local_devices()
        size = architecture.num_parameters * jnp.dtype(dtype).itemsize
        is_sharded = device.shards_weights(size, len(devices), devices[0].memory_stats())
        specs: Any = sharded.specs(architecture, len(devices)) if is_sharded else jax.sharding.PartitionSpec()
        weights = self._on_devices(model, checkpoint, Place(dtype, on_all_devices(specs)))
        return TransformerDecoder(
            architecture, weights, shapes=shapes, adapter=adapter, is_sharded=is_sharded
        )

    def adapter_shapes(self, model: str, rank: int | None) -> Any:
        from models.decoders.transformer.weights import adapter_shapes

        return adapter_shapes(self.models[model], rank)

    def load_tunable(
        self, model: str, checkpoint: str | os.PathLike[str], *, dtype: str, remat: bool = False
    ) -> family.Tunable:
        from models.decoders.transformer import tuning
        from models.decoders.transformer.checkpoint import Place

        architecture = self.models[model]
        return family.Tunable(
            weights=self._on_devices(model, checkpoint, Place(dtype)),
            products=functools.partial(tuning.products, architecture),
            log_probabilities=functools.partial(tuning.log_probabilities, architecture, remat=remat),
        )

    def load_pooling(self, model: str, checkpoint: str | os.PathLike[str], *, dtype: str) -> family.Pooling:
        import jax

        from models.decoders.transformer.checkpoint import Place
        from models.decoders.transformer.decoder import pooled_states

        return family.Pooling(
            weights=self._on_devices(model, checkpoint, Place(dtype)),
            pool=jax.jit(functools.partial(pooled_states, self.models[model])),
        )
