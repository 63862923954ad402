"""Digest of the files of a model and of what it is asked for."""

import hashlib
import pathlib
from collections.abc import Sequence

from pipeline.run.digests import digest_of_files
from pipeline.settings.prompt import PROMPT_PRESETS
from pipeline.settings.structure import Structured


def of_settings(
    settings: Structured, folders: Sequence[pathlib.Path] = (), further: Sequence[str] = ()
) -> str:
    """Digest of weights, tokenizer, prompt texts, further folders, and digests that a method adds."""
    named = (settings.prompt, settings.schema, settings.json_schema)
    texts = [pathlib.Path(name) for name in named if name and name not in PROMPT_PRESETS]
    files = {settings.tokenizer_path, *texts}
    if settings.checkpoint_path.is_file():
        # Known by content: fetched again, it has another time and is the same model.
        files.add(settings.checkpoint_path)
    all_folders = (settings.checkpoint_path, *folders)
    contents = {path for folder in all_folders for path in folder.rglob('*') if path.is_file()}
    digests = [digest_of_files(files | contents, whole=files), *further]
    return digests[0] if len(digests) == 1 else hashlib.sha256(' '.join(digests).encode()).hexdigest()
