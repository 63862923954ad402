"""The type of weights and products that 'auto' stands for."""

from models.decoders import device
from models.decoders.device import Dtype
from pipeline.methods.predict.settings import PredictSettings


def decided_dtype(settings: PredictSettings, platform: str | None = None) -> Dtype:
    """The type as given, or what the machine that launches the run is fastest in at no loss.

    Args:
        settings: Of the run.
        platform: JAX's name of the platform; None asks the accelerator.
    """
    if settings.dtype != 'auto':
        return settings.dtype
    # Centres are of one type, whatever machine embeds the records.
    embeds = settings.clusters is not None and settings.resolved_embedder == 'decoder'
    if embeds or (settings.strategy.takes_reference and (platform or device.platform_here()) == 'cpu'):
        return 'float32'
    return device.fastest_dtype(platform)
