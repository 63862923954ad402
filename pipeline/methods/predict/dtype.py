"""The type of weights and products that 'auto' stands for."""

from models.decoders import device
from models.decoders.device import Dtype
from pipeline.calibration import RequestedDtype
from pipeline.methods.predict.settings import PredictSettings


def decided_dtype(settings: PredictSettings) -> Dtype:
    """The type as given, or what the machine that launches the run is fastest in at no loss."""
    if settings.dtype != 'auto':
        return settings.dtype
    # Centres are of one type, whatever machine embeds the records.
    embeds = settings.clusters is not None and settings.resolved_embedder == 'decoder'
    if embeds or (settings.strategy.takes_reference and device.platform_here() == 'cpu'):
        return 'float32'
    return device.fastest_dtype()


def planned_dtype(settings: PredictSettings) -> RequestedDtype:
    """The same as far as no accelerator has to be asked; 'auto' where it has."""
    if settings.dtype == 'auto' and settings.strategy.takes_reference and not device.has_plugin():
        return 'float32'
    return settings.dtype
