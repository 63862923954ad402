"""The one table of sources: which settings lead to which."""

from typing import Any

from models import extras
from models.sampling.endpoint import EndpointSettings, EndpointSource
from models.sampling.settings import SamplerSettings
from models.sampling.source import TextSource

SourceSettings = SamplerSettings | EndpointSettings


def load_source(settings: SourceSettings, adapter: Any | None = None) -> TextSource:
    """The source of some settings, loaded.

    Args:
        settings: Of the source.
        adapter: The arrays of the adapter that they name; None where they name none.

    Raises:
        FileNotFoundError: A file of the model is not there.
        MissingExtraError: A library is not installed.
        ValueError: A prompt does not fit, or the endpoint's token is missing.
    """
    if isinstance(settings, EndpointSettings):
        return EndpointSource(settings)
    extras.need(extras.GEMMA, use=f'model={settings.model!r}')
    from models.sampling.decoder_source import DecoderSource

    return DecoderSource(settings, adapter)
