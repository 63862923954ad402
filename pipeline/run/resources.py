"""Check that this machine has the least that a run needs: memory, free disk, folders that can be written.

All of it follows from public settings, so it is said before a budget is charged and tells nothing of the
records. A batch that turns out larger than expected still needs more.
"""

import os
import pathlib
import shutil

from models.decoders import device_memory
from pipeline import methods
from pipeline.methods.solved import Run
from pipeline.settings.model import Model
from transforms.durable import is_local

# A token of text, in the finished batch and in the corpus.
_BYTES_PER_TOKEN = 16
# Key, plan, reports, and what runs without a known number of batches write.
_LEAST_DISK = 64 * 2**20


def check(run: Run) -> None:
    """Refuses a run that this machine cannot carry out, whatever the records are.

    What lies on other machines, and the memory of a remote runner's workers, is not looked at.

    Raises:
        PermissionError: A folder of the run cannot be written.
        FileExistsError: A file stands where a folder should be.
        ValueError: There is less memory, or less free disk, than it needs at the least.
    """
    check_folders(run)
    if run.runner.is_local:
        _check_memory(run)


def check_folders(run: Run) -> None:
    """Refuses folders that cannot be written, or that have too little room; errors as of `check`."""
    for name, folder in (('output', run.output), ('work_dir', run.work_dir)):
        if is_local(folder):
            _check_folder(name, folder, needed_disk(run))


def needed_disk(run: Run) -> int:
    """Bytes that the corpus and the finished batches take, as far as public numbers tell."""
    return _LEAST_DISK + run.most_tokens * _BYTES_PER_TOKEN


def _check_memory(run: Run) -> None:
    available = device_memory.memory_here()
    settings = run.method
    if available is None or not isinstance(settings, Model):
        return  # the decoder looks again, before its first token
    method = methods.of(run)
    needed = method.needed_memory(run, settings.decided_dtype, available.devices)
    if needed > available.bytes:
        raise ValueError(
            f'Expected at least {_size(needed)} of memory for the weights of model={settings.model!r} in '
            f'{settings.dtype} and one batch, got {_size(available.bytes)} that is free. Close other '
            f'programs, lower --{method.memory_setting.replace("_", "-")}, --max-prompt-tokens or '
            '--max-example-tokens, or take a smaller --model or '
            '--dtype bfloat16.'
        )


def _check_folder(name: str, folder: str, needed: int) -> None:
    flag = f'--{name.replace("_", "-")}'
    place = pathlib.Path(folder)
    begun = place.is_dir()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise FileExistsError(
            f'Expected a folder, or a place for one, got {name}={folder!r}, where {str(place)!r} is a file. '
            f'Choose another {flag}.'
        )
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(
            f'Expected a folder that can be written, got {name}={folder!r}, where {str(place)!r} cannot. '
            f'Choose another {flag}, or ask for the right to write there.'
        )
    # A run that goes on has part of it on the disk already.
    needed = _LEAST_DISK if begun else needed
    if (free := shutil.disk_usage(place).free) < needed:
        raise ValueError(
            f'Expected about {_size(needed)} of free disk for the run, got {_size(free)} free at '
            f'{name}={folder!r}. Make room, or choose another {flag}.'
        )


def _size(number: float) -> str:
    return f'{number / 2**30:.1f} GiB' if number >= 2**30 else f'{number / 2**20:,.0f} MiB'
