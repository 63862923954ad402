"""What workers decode and cluster with, as the config says it."""

from typing import Any

from models.assembly import GeneratorSettings
from models.batch_plan import BatchPlan
from models.clustering.centers import ClusterSettings
from pipeline.methods import workers
from pipeline.methods.fine_tune import released
from pipeline.methods.predict import mechanism
from pipeline.methods.predict.batches import configured_batches
from pipeline.methods.predict.dtype import decided_dtype
from pipeline.methods.predict.mechanism import Config
from pipeline.methods.predict.reference import read_reference


def generator_settings(config: Config) -> GeneratorSettings:
    """What workers build their generator from; checks model and adapter, and reads the reference."""
    own = config.method
    return GeneratorSettings(
        run_id=config.output.resolved_run_id,
        params=mechanism.params(config),
        **workers.model_settings(own, decided_dtype(own)),
        micro_batch_size=own.resolved_micro_batch_size,
        label_words=tuple(config.input.label_words.items()),
        reference=read_reference(config, workers.text_limit(own)),
        adapter=released.released_adapter(own, own.adapter),
        **workers.prompt_settings(own, config.input),
    )


def cluster_settings(config: Config) -> ClusterSettings:
    """What workers build their clusterer from."""
    own = config.method
    model: dict[str, Any] = {}
    if own.resolved_embedder == 'decoder':
        model = {
            'model': own.model,
            'checkpoint': str(own.checkpoint_path),
            'tokenizer': str(own.tokenizer_path),
            'dtype': decided_dtype(own),
        }
    return ClusterSettings(centers=str(own.centers_path), embedder=own.resolved_embedder, **model)


def configured_plan(config: Config) -> BatchPlan | None:
    """The plan where the config gives the batches: public, and free; None where a noisy count does."""
    batches = configured_batches(config)
    if batches is None:
        return None
    return BatchPlan(
        labels=config.input.label_values, batches_per_group=batches, noisy_counts=None, contexts_rho=0.0
    )
