"""Which embedder the flags of a command name: of `centers`, `clusters` and `evaluate`."""

from models.clustering import centers
from models.clustering.centers import ClusterSettings
from models.decoders import family


def settings_of(
    name: str,
    *,
    folder: str | None = None,
    model: str = 'bundled',
    checkpoint: str | None = None,
    tokenizer: str | None = None,
    dtype: str = 'float32',
) -> ClusterSettings:
    """Settings of an embedder, and of the folder of centres that it may lie in.

    Args:
        name: 'tfidf', 'minilm', 'decoder', or a folder of MiniLM weights.
        folder: Folder of centres; None for those of the package.
        model: Model size, for 'decoder'.
        checkpoint: Its weights; the bundled model has its own.
        tokenizer: Its SentencePiece file; the bundled model has its own.
        dtype: Type of its weights and computation.

    Raises:
        ValueError: A model with another embedder than 'decoder', or a model whose files are missing.
    """
    centers_folder = folder or str(centers.SHIPPED)
    if name == 'decoder':
        files = family.files_of(model, checkpoint, tokenizer)
        return ClusterSettings(
            centers=centers_folder,
            embedder=name,
            model=model,
            checkpoint=files.checkpoint,
            tokenizer=files.tokenizer,
            dtype=dtype,
        )
    if (model, checkpoint, tokenizer, dtype) != ('bundled', None, None, 'float32'):
        raise ValueError(
            f"Expected a model with embedder='decoder' only, got embedder={name!r}, model={model!r}, "
            f'checkpoint={checkpoint!r}, tokenizer={tokenizer!r}, dtype={dtype!r}. Leave them out.'
        )
    return ClusterSettings(centers=centers_folder, embedder=name)
