"""An adapter, read from its folder where texts are sampled with it."""

from typing import Any

from apache_beam.io.filesystems import FileSystems

from models.finetuning import adapter as adapters
from models.sampling.settings import AdapterFile
from transforms.durable import read_file
from transforms.run_files import ADAPTER_TENSORS


def read_adapter(file: AdapterFile, model: str) -> Any:
    """The arrays of an adapter, as `Family.load_decoder` of its model takes them.

    Raises:
        FileNotFoundError: It is not there.
        ValueError: It is another one than `file` says, another model's, or damaged.
    """
    data = read_file(FileSystems.join(file.folder, ADAPTER_TENSORS))
    if file.sha256 is not None and (digest := adapters.digest(data)) != file.sha256:
        raise ValueError(
            f'Expected the adapter that was trained, got SHA-256 {digest}, not {file.sha256}. Restore '
            f'{ADAPTER_TENSORS}, or start a new run.'
        )
    return adapters.from_bytes(data, model, file.rank)
