"""Compiled programs, kept for the next process: the persistent compilation cache of JAX.

A program's key there is of its operations, its options and the versions of JAX and of the compiler, and the
program that is read back is the one that was written. So nothing changes but the time. The folder is the
curator's, as records are (METHOD 8): a program's shape has the number of micro-batches of a batch in it.
Whoever may write there decides what this user runs. So a folder that others may write to is not used.
"""

import hashlib
import importlib.util
import logging
import os
import pathlib
import platform
from typing import Final

from models import cache
from models.decoders import device

# In place of a folder: what is compiled is not kept.
NONE: Final = 'none'
# JAX's own variable: where it is set, it is what the user wants.
VARIABLE: Final = 'JAX_COMPILATION_CACHE_DIR'
_SETTINGS: Final = {
    'jax_persistent_cache_min_compile_time_secs': 0.0,
    'jax_persistent_cache_min_entry_size_bytes': -1,
    # Results of tuning on a GPU, too.
    'jax_persistent_cache_enable_xla_caches': 'all',
}
# Programs of some hundred models and shapes; the oldest make room.
_MOST_BYTES: Final = 4 * 2**30
_LOGGER = logging.getLogger(__name__)


def folder_here() -> str:
    """The folder of this user, on this kind of machine: processors differ in what code they can run."""
    features = ' '.join(sorted(device.processor_flags())) or platform.processor()
    kind = hashlib.sha256(f'{platform.machine()} {features}'.encode()).hexdigest()[:16]
    return str(cache.cache_folder() / 'compiled' / kind)


def keep_programs(folder: str | None) -> None:
    """Lets this process read what was compiled before, and keep what it compiles.

    A folder that cannot be used costs the time of compiling: a line says so, and the run goes on.

    Args:
        folder: A folder, which may be one of an object store; None changes nothing.
    """
    if folder is None or VARIABLE in os.environ or importlib.util.find_spec('jax') is None:
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if jax.config.jax_compilation_cache_dir == folder or not _is_usable(folder):
        return
    for name, value in ({'jax_compilation_cache_dir': folder} | _SETTINGS).items():
        jax.config.update(name, value)
    # A program that was compiled before may have decided that there is none.
    compilation_cache.reset_cache()


def _is_usable(folder: str) -> bool:
    if '://' in folder:
        return True  # JAX says so if it cannot be reached
    path = pathlib.Path(folder)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = path.stat()
        kept = sorted((entry.stat().st_mtime, entry.stat().st_size, entry) for entry in path.iterdir())
        is_ours = state.st_uid == os.geteuid() and not state.st_mode & 0o022
        if not is_ours or not os.access(path, os.W_OK):
            _LOGGER.warning(
                'Compiled programs are not kept in %s: it is not a folder that this user alone may write '
                'to. Give another with --compilation-cache.',
                folder,
            )
            return False
        held = sum(size for _, size, _ in kept)
        for _, size, entry in kept:
            if held > _MOST_BYTES and entry.is_file():
                entry.unlink(missing_ok=True)
                held -= size
    except OSError as error:
        _LOGGER.warning(
            'Compiled programs are not kept in %s: %s. Give another folder with --compilation-cache.',
            folder,
            error.strerror,
        )
        return False
    return True
