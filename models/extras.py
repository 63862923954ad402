"""Extras of this package: libraries that an installation may lack, and the one way to say so.

`pip install dp-corpus` leaves out what only some runs need: TensorFlow and JAX alone take gigabytes. What
needs an extra asks for it here before anything is read or paid. No library is imported to find out.
"""

import importlib.util
from collections.abc import Mapping
from typing import Final

DATASETS: Final = 'datasets'
ENDPOINT: Final = 'endpoint'
EVALUATE: Final = 'evaluate'
GCP: Final = 'gcp'
GEMMA: Final = 'gemma'
MINILM: Final = 'minilm'
NOTEBOOK: Final = 'notebook'
# The libraries that each extra of setup.py brings, by the names under which they are imported.
LIBRARIES: Final[Mapping[str, tuple[str, ...]]] = {
    DATASETS: ('datasets',),
    ENDPOINT: ('openai',),
    EVALUATE: ('jsonschema', 'mauve'),
    GCP: ('google.cloud.storage',),
    # But for those that a machine with a GPU may lack: the gemma library reads weights of its own format
    # alone, and where TensorFlow Text is not there SentencePiece reads texts (decoders/gemma/tokenizer.py).
    GEMMA: ('gguf', 'jax', 'jax_privacy', 'optax', 'orbax.checkpoint', 'sentencepiece'),
    MINILM: ('jax', 'tokenizers'),
    NOTEBOOK: ('datasets', 'ipykernel', 'ipywidgets', 'pandas'),
}  # fmt: skip


class MissingExtraError(ModuleNotFoundError):
    """An extra is not installed; the text names what is missing and the command that installs it."""


def missing(*extras: str, only: str | None = None) -> tuple[str, ...]:
    """The libraries of these extras that are not installed, in the order of the alphabet.

    Args:
        extras: Keys of `LIBRARIES`.
        only: The one library of them that counts; None for all.
    """
    wanted = {library for extra in extras for library in LIBRARIES[extra]}
    return tuple(sorted(one for one in wanted if only in (None, one) and not _is_installed(one)))


def need(*extras: str, use: str, only: str | None = None) -> None:
    """Refuses what these extras are needed for where one of them is not installed.

    Args:
        extras: Keys of `LIBRARIES`; none needs nothing.
        use: The part of the product that needs them, as its user named it: "embedder='minilm'".
        only: The one library of them that it needs; None for all.

    Raises:
        MissingExtraError: A library is not installed.
    """
    libraries = missing(*extras, only=only)
    if libraries:
        raise MissingExtraError(
            f'Expected an installation with what {use} needs, got one without libraries={list(libraries)}. '
            f'Run {install_command(*extras)}.'
        )


def install_command(*extras: str) -> str | None:
    """The command that installs what is missing of these extras; None where nothing is."""
    lacking = [extra for extra in dict.fromkeys(extras) if missing(extra)]
    return f"pip install 'dp-corpus[{','.join(lacking)}]'" if lacking else None


def _is_installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # of a package around it
        return False
