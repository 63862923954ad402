"""`dp-corpus split` and `dp-corpus centers`: records set apart and centres fitted, before any run."""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from models.clustering.centers import ClusterSettings
from models.privacy.randomness import RunKey
from pipeline.asked.config import of_panels, read_settings, without_password
from pipeline.commands import flags
from pipeline.evaluation import of_run
from pipeline.prepare import centers as centers_lib
from pipeline.prepare import config_file
from pipeline.release import apart
from pipeline.screen import off_screen, terminal
from pipeline.settings.input import Input
from transforms import places
from transforms.run_files import SPLIT_RECORDS, SPLIT_TEST

_OF_TEXTS = ('text_field', 'delimiter', 'encoding', 'quoting')
_OF_SPLIT = (*_OF_TEXTS, 'unit_field', 'query', 'sheet', 'split')


def _flags_of(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    known = of_panels(Input)
    return flags.with_flags(known[name] for name in names)


def _declared(place: str, settings: Mapping[str, Any]) -> Input:
    """The input of a command that is no run, by the flags that were given."""
    declared = Input(input=place, **{name: value for name, value in settings.items() if value is not None})
    declared.check_text_flags([place])
    return declared


@_flags_of(*_OF_SPLIT)
def split(
    output: Annotated[
        str | None,
        typer.Option(
            '--output',
            help='New folder, for the curator alone. Default: named after the records.',
            metavar='DIR',
        ),
    ] = None,
    input_: flags.RecordsFlag = None,
    config: Annotated[
        str | None,
        typer.Option(
            '--config',
            help='Settings of a run, which say where the records are and how they are written. The file is '
            'changed: it then names the part for the run.',
            metavar='FILE',
        ),
    ] = None,
    test_share: Annotated[float, typer.Option('--test-share', help='Share of the units to set apart.')] = 0.1,
    key: Annotated[
        str | None,
        typer.Option(
            '--key', help='split.key of an earlier split: its units stay on the side where they were.'
        ),
    ] = None,
    as_json: flags.JsonFlag = False,
    quiet: flags.QuietFlag = False,
    **settings: Any,
) -> None:
    """Set real texts apart for `dp-corpus evaluate --test`, before any run reads them.

    Example: dp-corpus split --input records.csv --output sets

    A keyed hash sends each unit as a whole to one side: rows of one --unit-field, or else of equal text. Run
    `generate` on DIR/records, and give DIR/test to `evaluate`; with --config both know where these are. Rows
    come out whole, as JSON lines, whatever the input is. The numbers of rows are for the curator alone.
    """
    values = read_settings(config, {'input': input_, **settings})
    if values.get('input') is None:
        raise ValueError('Expected records, got input=None. Give --input FILES, or a --config that has it.')
    place = without_password(values['input'])
    if config is not None and of_run.test_part(place) is not None:
        raise ValueError(
            f'Expected records that are whole, got config={config!r} with input={place!r}, a part of an '
            'earlier split. The other part is set aside already: run `generate`.'
        )
    folder = pathlib.Path(output or f'{places.stem_of(place)}-split')
    apart.check_folder(folder)
    records = f'{folder}/{SPLIT_RECORDS}/*.jsonl'
    changed = None if config is None else config_file.of_part(config, records)
    declared = _declared(place, {name: values.get(name) for name in _OF_SPLIT})
    off_screen.silence_libraries()
    with off_screen.without_chatter(), off_screen.unquoted():
        from pipeline.prepare import split as split_lib
        from pipeline.run.record_rules import record_rules

        made = split_lib.split(
            str(declared.input),
            folder,
            fields=record_rules(declared, 'example' if declared.unit_field is None else 'user').fields,
            test_share=test_share,
            key=RunKey.new() if key is None else RunKey.read(pathlib.Path(key)),
        )
    if config is not None and changed is not None:
        pathlib.Path(config).write_text(changed, encoding='utf-8')
    if as_json:
        counts = {'records': made.records, 'test': made.test, 'without_unit': made.without_unit}
        print(json.dumps(counts | {'output': str(folder)}))
    elif not quiet:
        print('For the curator alone:')
        print(f'  {folder / SPLIT_RECORDS}: {made.records:,} rows, for generate')
        print(f'  {folder / SPLIT_TEST}: {made.test:,} rows, for evaluate --test')
        if made.without_unit:
            print(f'  left out: {made.without_unit:,} rows without a value in the column, or damaged')
        if config is not None:
            print(f'{config} now has input = "{records}", and is for runs on that part.')


@_flags_of(*_OF_TEXTS)
def centers(
    input_: flags.InputFlag,
    output: Annotated[str, typer.Option('--output', help='New folder for the centres.')],
    count: Annotated[int, typer.Option('--count', help='Number of centres.')] = 500,
    embedder: flags.EmbedderFlag = 'tfidf',
    seed: flags.SeedFlag = 0,
    model: flags.ModelFlag = 'bundled',
    checkpoint: flags.CheckpointFlag = None,
    tokenizer: flags.TokenizerFlag = None,
    dtype: flags.DtypeFlag = 'float32',
    as_json: flags.JsonFlag = False,
    **settings: Any,
) -> None:
    """Fit the centres of a public corpus, for `generate --clusters`.

    Example: dp-corpus centers --input public.jsonl --output my-centers

    dp-corpus comes with centres of encyclopedia texts. Centres of a public corpus that is
    more like your records group them better. Choose that corpus without looking at the records.
    """
    declared = _declared(input_, settings)
    off_screen.silence_libraries()
    with off_screen.without_chatter(), off_screen.unquoted():
        clustering = ClusterSettings.of_embedder(
            embedder, model=model, checkpoint=checkpoint, tokenizer=tokenizer, dtype=dtype
        )
        centers_lib.check_folder(pathlib.Path(output))
        from pipeline.run.record_rules import record_rules

        texts = centers_lib.read_texts(input_, record_rules(declared, 'example').fields)
        made = centers_lib.make_centers(
            texts, pathlib.Path(output), settings=clustering, count=count, seed=seed
        )
    facts: dict[str, Any] = {
        'output': output,
        'count': made.count,
        'embedder': made.embedder,
        'fingerprint': made.fingerprint,
        'corpus_fingerprint': made.corpus_fingerprint,
        'corpus_texts': made.corpus_texts,
    }
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    console = terminal.console()
    console.print(
        f'{made.count:,} centres of {made.corpus_texts:,} public texts by {made.embedder}: {output}',
        soft_wrap=True,
    )
