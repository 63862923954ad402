"""`dp-corpus evaluate`: what corpora are worth, and whether they keep quiet."""

import contextlib
import pathlib
import typing
from collections.abc import Iterator
from typing import Annotated, Literal

import rich.console
import typer

from pipeline import curator_files
from pipeline.commands import exit_codes, flags, screen
from pipeline.config import delimiter_of

if typing.TYPE_CHECKING:
    from pipeline.evaluation.evaluation import OnProgress

_IN_CONTEXT = 'In-context use'
PAGE, DOCUMENT = 'evaluation.html', 'evaluation.json'


def evaluate(
    corpus: Annotated[
        str,
        typer.Argument(help='Folder of a finished run, or a CSV, JSONL or Parquet file.', metavar='CORPUS'),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            '--output', help=f'New folder for {DOCUMENT} and {PAGE}; none: nothing is written.', metavar='DIR'
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option('--also', help='A further corpus beside it; may be repeated.', metavar='NAME=PATH'),
    ] = None,
    name: Annotated[str, typer.Option('--name', help='What tables call CORPUS.')] = 'corpus',
    records: Annotated[
        str | None,
        typer.Option(
            '--records', help='The sensitive records that the corpus was made from.', metavar='FILES'
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            '--test',
            help='Real texts that no run has read, as `dp-corpus split` sets apart.',
            metavar='FILES',
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            '--public', help='Corpus of the public prompt alone, for a row of epsilon 0.', metavar='CORPUS'
        ),
    ] = None,
    delimiter: flags.DelimiterFlag = None,
    encoding: flags.EncodingFlag = None,
    text_field: flags.TextFieldFlag = 'text',
    label_field: Annotated[
        str | None,
        typer.Option(
            '--label-field',
            help='Column of the label in files, where they have one; where it is one of the attributes of a '
            "run, that attribute's values in the corpus are its labels.",
        ),
    ] = None,
    attributes: Annotated[
        str | None,
        typer.Option(
            '--attributes',
            help='In place of --label-field columns whose values together are the label, comma-separated, '
            'as a run with several attributes has them.',
        ),
    ] = None,
    unit_field: Annotated[
        str | None,
        typer.Option(
            '--unit-field',
            help='Column of the unit of privacy in --records and --test: the holdout test reads one text of '
            'each unit.',
        ),
    ] = None,
    embedder: flags.EmbedderFlag = 'tfidf',
    only: Annotated[
        str | None,
        typer.Option('--only', help='Measures, comma-separated. Default: all.', metavar='NAME,...'),
    ] = None,
    json_schema: Annotated[
        str | None,
        typer.Option('--json-schema', help='JSON Schema that the texts should keep.', metavar='FILE'),
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option(
            '--facts',
            help='facts.json of `python -m pipeline.evaluation.facts`, whose invented records the run read.',
            metavar='FILE',
        ),
    ] = None,
    in_context_model: Annotated[
        str | None,
        typer.Option(
            '--in-context-model',
            help='Model that is shown texts of the corpus and labels test texts, such as gemma3-270m.',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            '--checkpoint',
            help='Its GGUF file, safetensors folder or Orbax directory.',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            '--tokenizer',
            help='Its SentencePiece file; a GGUF file has its own.',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    dtype: Annotated[
        Literal['auto', 'float32', 'bfloat16'] | None,
        typer.Option(
            '--dtype', help='Type of its weights and products. Default: auto.', rich_help_panel=_IN_CONTEXT
        ),
    ] = None,
    in_context_labels: Annotated[
        str | None,
        typer.Option(
            '--in-context-labels',
            help='Labels, comma-separated; VALUE=WORDS says what prompts call one. Default: those of --test.',
            metavar='VALUE=WORDS,...',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    in_context_examples: Annotated[
        int | None,
        typer.Option(
            '--in-context-examples',
            help='Texts of each label that a prompt shows. Default: 1.',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    in_context_orders: Annotated[
        int | None,
        typer.Option(
            '--in-context-orders',
            help='Orders of the examples that are averaged; all where they are no more. Default: 8.',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    in_context_texts: Annotated[
        int | None,
        typer.Option(
            '--in-context-texts',
            help='Test texts that it labels; of more, so many are drawn. Default: 100.',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    seed: Annotated[int, typer.Option('--seed', help='Of every draw that a measure makes.')] = 0,
    as_json: flags.JsonFlag = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Measure what a corpus is worth, what it is like, and whether it repeats a record.

    Of a corpus of ours or of another tool. What reads records or held-out
    records spends no budget, so its result is for the curator alone. It shows
    use and mistakes, and proves no privacy: that is the privacy report's.
    """
    folder = None if output is None else pathlib.Path(output)
    if folder is not None:
        curator_files.check_folder(folder)
    separator = delimiter_of(delimiter)
    others = [_named(text) for text in also or ()]
    console = rich.console.Console(stderr=True)
    screen.silence_libraries()
    with screen.without_chatter(), screen.unquoted():
        from pipeline.evaluation import asked

        in_context = asked.in_context_settings(
            in_context_model,
            checkpoint=checkpoint,
            tokenizer=tokenizer,
            dtype=dtype,
            labels=in_context_labels,
            examples_per_label=in_context_examples,
            most_orders=in_context_orders,
            most_test_texts=in_context_texts,
        )
        measures = asked.measures_of(only, json_schema=json_schema, facts=facts, in_context=in_context)
        request = asked.Request(
            corpora=((name, corpus), *others),
            records=records,
            test=test,
            public=public,
            text_field=text_field,
            label_field=label_field,
            attributes=tuple(attributes.split(',')) if attributes else (),
            unit_field=unit_field,
            embedder=embedder,
            seed=seed,
            delimiter=separator,
            encoding=encoding,
        )
        sources = request.read()
    with _progress(console, quiet=quiet or as_json) as on_progress, screen.unquoted():
        evaluation = request.evaluate(sources, measures, on_progress)
        from pipeline.pages import evaluation_page

        if folder is not None:
            page = evaluation_page.render_html(evaluation)
            _write(folder, {DOCUMENT: evaluation.to_json(), PAGE: page}, shared=not evaluation.reads_records)
    if as_json:
        print(evaluation.to_json(), end='')
    elif not quiet:
        shown = rich.console.Console()
        evaluation_page.render_terminal(evaluation, shown)
        if folder is not None:
            shown.print(f'Pictures, texts and settings: {folder / PAGE}', soft_wrap=True)
    if evaluation.failed:
        raise typer.Exit(exit_codes.FAILED)


def _named(text: str) -> tuple[str, str]:
    name, equals, path = text.partition('=')
    if not (name and equals and path):
        raise ValueError(f'Expected NAME=PATH, got --also {text!r}. Give the corpus a name for its column.')
    return name, path


def _write(folder: pathlib.Path, files: dict[str, str], *, shared: bool) -> None:
    folder.mkdir(mode=0o755 if shared else 0o700)
    for name, text in files.items():
        if shared:
            (folder / name).write_text(text, encoding='utf-8')
        else:
            curator_files.write(folder / name, text, curator_files.PAGE_OR_JSON)


@contextlib.contextmanager
def _progress(console: rich.console.Console, *, quiet: bool) -> Iterator['OnProgress | None']:
    """Shows which measure runs on which corpus; silent off a terminal."""
    if quiet or not console.is_terminal:
        yield None
        return
    import rich.progress

    with rich.progress.Progress(
        rich.progress.TextColumn('{task.description}', markup=False),
        rich.progress.BarColumn(),
        rich.progress.TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as display:
        task = display.add_task('Reading', total=None)

        def show(corpus: str, measure: str, done: int, total: int) -> None:
            display.update(task, description=f'{corpus}: {measure}', completed=done, total=total)

        yield show
