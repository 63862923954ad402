"""`dp-corpus evaluate`: what corpora are worth, and whether they repeat records."""

import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import Annotated

import rich.console
import rich.progress
import typer

from pipeline.calibration import RequestedDtype
from pipeline.commands import exit_codes, flags
from pipeline.evaluation.evaluation import Evaluation, OnProgress
from pipeline.pages import evaluation_page
from pipeline.release import apart
from pipeline.screen import off_screen, terminal
from pipeline.settings.input import Encoding, Quoting, check_delimiter, check_text_flags, delimiter_of

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
            '--output',
            help=f'New folder for {DOCUMENT} and {PAGE}. Default: nothing is written.',
            metavar='DIR',
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option('--also', help='Another corpus to compare with; may be repeated.', metavar='NAME=PATH'),
    ] = None,
    name: Annotated[str, typer.Option('--name', help='Name of CORPUS in tables.')] = 'corpus',
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
            help='Real texts that no run has read, such as the test part of `dp-corpus split`.',
            metavar='FILES',
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            '--public',
            help='Corpus sampled from the public prompt alone (epsilon 0), for comparison.',
            metavar='CORPUS',
        ),
    ] = None,
    delimiter: flags.DelimiterFlag = None,
    encoding: flags.EncodingFlag = None,
    quoting: flags.QuotingFlag = 'double',
    text_field: flags.TextFieldFlag = 'text',
    label_field: Annotated[
        str | None,
        typer.Option(
            '--label-field',
            help='Column of the label in files. If it is an attribute of the run that wrote CORPUS, the '
            'values of that attribute are the labels of the corpus.',
        ),
    ] = None,
    attributes: Annotated[
        str | None,
        typer.Option(
            '--attributes',
            help='Columns whose values together are the label, comma-separated, as in a run with several '
            'attributes. Instead of --label-field.',
        ),
    ] = None,
    unit_field: Annotated[
        str | None,
        typer.Option(
            '--unit-field',
            help='Column of the unit of privacy in --records and --test. The holdout test then reads one '
            'text of each unit.',
        ),
    ] = None,
    embedder: flags.EmbedderFlag = 'tfidf',
    embedder_model: Annotated[
        str,
        typer.Option(
            '--embedder-model',
            help='Model, such as gemma3-270m, whose hidden states --embedder decoder takes. For texts that '
            'records voted for, take an embedder that did not vote.',
        ),
    ] = 'bundled',
    only: Annotated[
        str | None,
        typer.Option('--only', help='Measures, comma-separated. Default: all.', metavar='NAME,...'),
    ] = None,
    json_schema: Annotated[
        str | None,
        typer.Option('--json-schema', help='JSON Schema that each text should fit.', metavar='FILE'),
    ] = None,
    in_context_model: Annotated[
        str | None,
        typer.Option(
            '--in-context-model',
            help='Model, such as gemma3-270m, that sees a few texts of the corpus and then labels test '
            'texts.',
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
        RequestedDtype | None,
        typer.Option(
            '--dtype', help='Type of its weights and products. Default: auto.', rich_help_panel=_IN_CONTEXT
        ),
    ] = None,
    in_context_labels: Annotated[
        str | None,
        typer.Option(
            '--in-context-labels',
            help='Labels, comma-separated. VALUE=WORDS gives the words for a label in prompts. Default: '
            'those of --test.',
            metavar='VALUE=WORDS,...',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    in_context_examples: Annotated[
        int | None,
        typer.Option(
            '--in-context-examples',
            help='Texts of each label in a prompt. Default: 1.',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    in_context_orders: Annotated[
        int | None,
        typer.Option(
            '--in-context-orders',
            help='Average over so many orders of the examples, or over all if there are fewer. Default: 8.',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    in_context_texts: Annotated[
        int | None,
        typer.Option(
            '--in-context-texts',
            help='Test texts to label, drawn at random if there are more. Default: 100.',
            rich_help_panel=_IN_CONTEXT,
        ),
    ] = None,
    seed: Annotated[int, typer.Option('--seed', help='Seed of every random draw.')] = 0,
    as_json: flags.JsonFlag = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Measure what a corpus is worth, what it is like, and whether it repeats a record.

    Example: dp-corpus evaluate corpus --test 'sets/test/*' --output evaluation

    The corpus may come from dp-corpus or from any other tool. With --records or --test
    the result is for the curator alone, because no budget pays for what it tells about
    the records. An evaluation finds mistakes; it cannot prove privacy. The guarantee
    is in the privacy report.
    """
    evaluation = evaluated(
        corpus,
        terminal.console(stderr=True, quiet=quiet or as_json),
        output=output,
        also=also,
        name=name,
        records=records,
        test=test,
        public=public,
        delimiter=delimiter,
        encoding=encoding,
        quoting=quoting,
        text_field=text_field,
        label_field=label_field,
        attributes=attributes,
        unit_field=unit_field,
        embedder=embedder,
        embedder_model=embedder_model,
        only=only,
        json_schema=json_schema,
        in_context_model=in_context_model,
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        dtype=dtype,
        in_context_labels=in_context_labels,
        in_context_examples=in_context_examples,
        in_context_orders=in_context_orders,
        in_context_texts=in_context_texts,
        seed=seed,
    )
    if as_json:
        print(evaluation.to_json(), end='')
    elif not quiet:
        shown = terminal.console()
        evaluation_page.render_terminal(evaluation, shown)
        if output is not None:
            shown.print(f'Pictures, texts and settings: {pathlib.Path(output) / PAGE}', soft_wrap=True)
    if evaluation.failed:
        raise typer.Exit(exit_codes.FAILED)


def evaluated(
    corpus: str,
    console: rich.console.Console,
    *,
    output: str | None,
    also: Sequence[str] | None,
    name: str,
    records: str | None,
    test: str | None,
    public: str | None,
    delimiter: str | None,
    encoding: Encoding | None,
    quoting: Quoting,
    text_field: str,
    label_field: str | None,
    attributes: str | None,
    unit_field: str | None,
    embedder: str,
    embedder_model: str,
    only: str | None,
    json_schema: str | None,
    in_context_model: str | None,
    checkpoint: str | None,
    tokenizer: str | None,
    dtype: RequestedDtype | None,
    in_context_labels: str | None,
    in_context_examples: int | None,
    in_context_orders: int | None,
    in_context_texts: int | None,
    seed: int,
) -> Evaluation:
    """What the flags of the command ask for; writes the page and the document where `output` names a folder.

    Progress goes to the console; every other argument is the flag of its name.

    Raises:
        ValueError: Flags that do not go together, or texts that cannot be read.
        FileNotFoundError: A file is not there.
        FileExistsError: The output is there already.
        RuntimeError: An error that nobody foresaw; its text is not shown, since it may quote records.
    """
    folder = None if output is None else pathlib.Path(output)
    if folder is not None:
        apart.check_folder(folder)
    check_delimiter(delimiter, quoting)
    others = [_named(text) for text in also or ()]
    read = [corpus, *(place for _, place in others), *filter(None, (records, test, public))]
    check_text_flags(read, delimiter=delimiter, encoding=encoding, quoting=quoting)
    off_screen.silence_libraries()
    with off_screen.without_chatter(), off_screen.unquoted():
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
        measures = asked.measures_of(only, json_schema=json_schema, in_context=in_context)
        request = asked.Request(
            corpora=((name, corpus), *others),
            records=records,
            test=test,
            public=public,
            text_field=text_field,
            label_field=label_field,
            attributes=asked.listed(attributes or ''),
            unit_field=unit_field,
            embedder=embedder,
            embedder_model=embedder_model,
            seed=seed,
            delimiter=delimiter_of(delimiter),
            encoding=encoding,
            quoting=quoting,
        )
        sources = request.read()
    with _progress(console) as on_progress, off_screen.unquoted():
        evaluation = request.evaluate(sources, measures, on_progress)
        if folder is not None:
            page = evaluation_page.render_html(evaluation)
            _write(folder, {DOCUMENT: evaluation.to_json(), PAGE: page}, shared=not evaluation.reads_records)
    return evaluation


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
            apart.write(folder / name, text, apart.PAGE_OR_JSON)


@contextlib.contextmanager
def _progress(console: rich.console.Console) -> Iterator[OnProgress | None]:
    """Shows which measure runs on which corpus; silent but in a terminal or a notebook."""
    if not off_screen.shows_progress(console):
        yield None
        return
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
