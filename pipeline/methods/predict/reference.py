"""The curator's reference texts: of files, or of an earlier release; read where a run is launched."""

import functools
import typing
from collections.abc import Iterator, Sequence

from models.records import Record
from models.reference import Reference, is_complete, pick_by_label
from pipeline.methods import beside_input, earlier
from pipeline.methods.predict.run import Config
from pipeline.release import released_corpus
from transforms.read import InputFile, list_input


def read_reference(config: Config, text_limit: int | None = None) -> Reference | None:
    """The reference that --reference names; None without it. Texts are cut to `text_limit` characters.

    Rows that are no records of the run's rules (blank, longer than max_record_bytes, of a label that is
    not declared) are left out, as they would be of the input, and so are truncated, blank and short
    examples of an earlier release.
    """
    if config.method.reference is None:
        return None
    is_release = released_corpus.is_release(config.method.reference)
    listed = _corpus_files(config) if is_release else _text_files(config.method.reference)
    beside_input.refuse_input(config.input, listed, 'reference')
    # Once for all that a launch asks of it; a file that was written to is read anew.
    return _read(config, is_release, tuple(listed), text_limit)


def _corpus_files(config: Config) -> list[InputFile]:
    assert config.method.reference is not None
    folder = config.method.reference
    if config.method.reference_label_field is not None:
        raise ValueError(
            'Expected reference_label_field with files of texts only, got '
            f'reference_label_field={config.method.reference_label_field!r}, reference={folder!r}, a '
            "folder. A release's labels stand in its own column: leave --reference-label-field out."
        )
    return released_corpus.list_shards(folder, 'reference')


def _text_files(pattern: str) -> list[InputFile]:
    try:
        return list_input(pattern)
    except FileNotFoundError as error:
        raise FileNotFoundError(f'Expected files of public texts for --reference. {error}') from error


@functools.lru_cache(maxsize=4)
def _read(
    config: Config, is_release: bool, listed: tuple[InputFile, ...], text_limit: int | None
) -> Reference:
    """The reference in files as they are listed: a key with other sizes or times is another one."""
    assert config.method.reference is not None
    labels = config.input.label_values
    origin = earlier.origin_of_texts(config.method.reference, 'reference')
    if is_release:
        examples = [
            example for file in listed for example in released_corpus.read_examples(file.path, 'reference')
        ]
        known = {example.label for example in examples}
        # A release without labels serves all labels, and one with labels a run without any.
        serve_all = known <= {None} or labels == (None,)
        rows: Iterator[tuple[str | None, str]] = (
            (example.label, example.text) for example in examples if is_complete(example)
        )
    else:
        label_field = config.method.reference_label_field
        read = beside_input.rows_of_texts(
            config.method.reference, listed, config.input, 'reference', label_field
        )
        rows = ((row.label, row.text) for _, row in read if isinstance(row, Record))
        serve_all = label_field is None
    texts = pick_by_label(rows, labels, config.method.reference_size, serve_all=serve_all)
    _check_enough(config, texts)
    return Reference.of(texts, origin=origin, text_limit=text_limit)


def _check_enough(config: Config, texts: typing.Mapping[str | None, Sequence[str]]) -> None:
    size = config.method.reference_size
    # Public texts: their number may be told.
    few = {label: len(its_texts) for label, its_texts in texts.items() if len(its_texts) < size}
    if few:
        counted = ', '.join(
            f'{count} of label {label!r}' if label else str(count) for label, count in few.items()
        )
        raise ValueError(
            f'Expected reference_size={size} different texts for each declared label, got {counted} in '
            f'reference={config.method.reference!r}. Add texts, lower --reference-size, or leave out '
            '--reference-label-field where the texts may serve all labels.'
        )
