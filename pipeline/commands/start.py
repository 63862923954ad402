"""`dp-corpus start`: from a file of records and at most six answers to the settings of a run."""

import pathlib
import re
import typing
from typing import Annotated

import rich.console
import typer

from models import bundled, extras
from pipeline import comparison, config, methods
from pipeline.commands import flags
from pipeline.methods.follows import Follows
from pipeline.pages import comparison_terminal, plan_terminal
from pipeline.run import watched
from pipeline.screen import off_screen, terminal
from pipeline.settings.input import INPUT_HELP, check_table
from pipeline.start import answers as answers_lib
from pipeline.start import here, settings_file
from pipeline.start.answers import Answers
from pipeline.start.questions import MOST_QUESTIONS, Questions, numbers, one_of
from transforms import places
from transforms.text_files import check_delimiter, check_text_flags, delimiter_of

if typing.TYPE_CHECKING:
    from transforms.read import Dialect, Header, Table

WHY = (
    'It reads the names of the columns and no record: a setting that follows from the records would cost '
    'privacy that nobody has paid for. So it asks for what you know of them in public, such as a rounded '
    f'number. At most {MOST_QUESTIONS} questions; an empty answer takes what stands in brackets.'
)

FilesArgument = Annotated[
    str,
    typer.Argument(metavar='RECORDS', help=INPUT_HELP),
]
OutputFlag = Annotated[str, typer.Option('--output', help='TOML file to write.', metavar='FILE')]
ForceFlag = Annotated[bool, typer.Option('--force', help='Write over a file that is there.')]
YesFlag = Annotated[
    bool, typer.Option('--yes', help='Ask nothing: take the defaults, and refuse what has none by its name.')
]
TextFieldFlag = Annotated[
    str | None,
    typer.Option('--text-field', help="Column of the text; numbers ('0') for a CSV without a header line."),
]
LabelFieldFlag = Annotated[str | None, typer.Option('--label-field', help='Column of the label.')]
LabelsFlag = Annotated[
    str | None,
    typer.Option('--labels', help='Declared labels, VALUE or VALUE=WORDS, comma-separated.'),
]
AttributesFlag = Annotated[
    str | None,
    typer.Option(
        '--attributes',
        help='Columns of several attributes, comma-separated; their labels are COLUMN:VALUE=WORDS.',
    ),
]
NoLabelFlag = Annotated[bool, typer.Option('--no-label', help='There is no label.')]
UnitFlag = Annotated[
    typing.Literal['example', 'user'] | None,
    typer.Option('--unit', help='Who is protected: one record, or all records of a person (--unit-field).'),
]
UnitFieldFlag = Annotated[
    str | None, typer.Option('--unit-field', help='Column that says whose record it is.')
]
DescriptionFlag = Annotated[
    str | None,
    typer.Option(
        '--corpus-description', help="What the corpus is: 'Notes of hospital visits, one after another.'"
    ),
]
EpsilonFlag = Annotated[
    float | None,
    typer.Option(
        '--epsilon', help=f'What the corpus may cost. [dim](default: {answers_lib.EPSILON:g})[/dim]'
    ),
]
ExamplesFlag = Annotated[
    int | None,
    typer.Option('--examples', help=f'Texts wanted. [dim](default: {answers_lib.EXAMPLES})[/dim]'),
]
RecordsFlag = Annotated[
    int | None,
    typer.Option('--records', help='About how many records there are; of people, with --unit-field. Public.'),
]
WordsFlag = Annotated[
    int | None, typer.Option('--typical-words', help='About how many words a typical record has. Public.')
]
MethodFlag = Annotated[
    str | None,
    typer.Option('--method', help='The method. Default: the one that `plan --compare` recommends.'),
]
ModelFlag = Annotated[
    str | None, typer.Option('--model', help='The model. Default: gemma3-270m if its weights are here.')
]


def start(
    context: typer.Context,
    files: FilesArgument,
    output: OutputFlag = 'run.toml',
    force: ForceFlag = False,
    yes: YesFlag = False,
    text_field: TextFieldFlag = None,
    label_field: LabelFieldFlag = None,
    labels: LabelsFlag = None,
    attributes: AttributesFlag = None,
    no_label: NoLabelFlag = False,
    unit: UnitFlag = None,
    unit_field: UnitFieldFlag = None,
    corpus_description: DescriptionFlag = None,
    epsilon: EpsilonFlag = None,
    examples: ExamplesFlag = None,
    records: RecordsFlag = None,
    typical_words: WordsFlag = None,
    method: MethodFlag = None,
    model: ModelFlag = None,
    delimiter: flags.DelimiterFlag = None,
    encoding: flags.EncodingFlag = None,
    quoting: flags.QuotingFlag = 'double',
    query: flags.QueryFlag = None,
    partition_column: flags.PartitionFlag = None,
    sheet: flags.SheetFlag = None,
    split: flags.SplitFlag = None,
) -> None:
    """Ask at most six questions about records, and write the settings of a run.

    Example: dp-corpus start notes.csv

    It reads the names of the columns and no record, so nothing that it writes depends on what the records
    say. The file says of each setting where it comes from, and is all that a run needs: [bold]dp-corpus
    generate --config run.toml[/bold].
    """
    if pathlib.Path(output).exists() and not force:
        raise ValueError(
            f'Expected a new file, got output={output!r}, which is there. Give --force to write over it, or '
            'another --output.'
        )
    if not pathlib.Path(output).parent.is_dir():
        # Before anything is asked: answers would be lost.
        raise FileNotFoundError(
            f'Expected a file in a folder that is there, got output={output!r}. Make the folder, or '
            'give another --output.'
        )
    label_columns = _label_columns(label_field, attributes)
    _check_flags(label_columns, labels, no_label, unit, unit_field)
    files = config.without_password(files)
    of_place = {'query': query, 'partition_column': partition_column, 'sheet': sheet, 'split': split}
    check_delimiter(delimiter, quoting)
    check_text_flags([files], delimiter=delimiter, encoding=encoding, quoting=quoting)
    places.check_local_files(files)
    console = terminal.console()
    off_screen.silence_libraries()
    from transforms.read import Dialect, Header, Table

    dialect = Dialect(delimiter=delimiter_of(delimiter), encoding=encoding, quoting=quoting)
    table = Table(**of_place)
    try:
        check_table(files, **of_place)
        header, unread = _header(files, dialect, table, text_field), None
    except ValueError as error:
        if not yes:
            raise
        # All that is missing is said at once.
        header, unread = Header(columns=(), dialect=dialect), error
    questions = Questions(takes_defaults=yes)
    if not yes:
        console.print(WHY, markup=False, highlight=False)
    columns = tuple(column.name for column in header.columns)
    text = _text_field(questions, text_field, columns) if unread is None else text_field
    others = tuple(column for column in columns if column != text)
    label, declared = _label(questions, label_columns, labels, no_label, others)
    person = _unit_field(questions, unit, unit_field, tuple(each for each in others if each not in label))
    description = corpus_description or questions.ask(
        'What is the corpus, in one sentence? It begins every prompt, and nothing else helps as much.\n'
        "   For example: 'Notes of hospital visits, one after another.'",
        str.strip,
        default=answers_lib.DESCRIPTION,
        flags='--corpus-description',
    )
    spent, wanted = _pair(
        questions, (epsilon, examples), ('ε', 'texts'), ('--epsilon', '--examples'),
        (f'{answers_lib.EPSILON:g}', str(answers_lib.EXAMPLES)),
        ('How much may the corpus tell of {who} (ε: 1 is strict, 10 is loose)', 'how many texts do you want'),
        'one person' if person else 'one record',
    )  # fmt: skip
    many, words = _pair(
        questions, (records, typical_words), ('people' if person else 'records', 'words'),
        ('--records', '--typical-words'), (None, None),
        ('About how many {who} are there', 'how many words has a typical record, as is publicly known'),
        'people' if person else 'records', ('10000', '100'),
    )  # fmt: skip
    questions.check(_as_typed(context, files), columns, unread)
    answers = Answers(
        records=files, dialect=header.dialect, table=table, text_field=str(text), label_columns=label,
        labels=declared, unit_field=person, corpus_description=str(description), epsilon=float(spent),
        examples=int(wanted), declared=int(many), typical_words=int(words),
    )  # fmt: skip
    _check_columns(answers, header)
    _write(answers, method, model, output, console)


def _as_typed(context: typer.Context, files: str) -> list[str]:
    """The words of the command, without a password in the URL of the records."""
    words = ['dp-corpus', 'start', files]
    for parameter in context.command.params:
        name = str(parameter.name)
        source, value = context.get_parameter_source(name), context.params.get(name)
        if name != 'files' and source is not None and source.name == 'COMMANDLINE':
            words += [parameter.opts[0]] if value is True else [parameter.opts[0], str(value)]
    return words


def _label_columns(label_field: str | None, attributes: str | None) -> tuple[str, ...]:
    """The columns that flags name: of a label, or of attributes."""
    if label_field is not None and attributes is not None:
        raise ValueError(
            f'Expected label_field or attributes, got label_field={label_field!r}, '
            f'attributes={attributes!r}. Name all columns in --attributes.'
        )
    if attributes is None:
        return () if label_field is None else (label_field,)
    found = tuple(name.strip() for name in attributes.split(','))
    if len(found) < 2 or '' in found:
        raise ValueError(
            f'Expected two columns or more, got attributes={attributes!r}. Give --label-field for one.'
        )
    return found


def _check_flags(
    columns: tuple[str, ...], labels: str | None, no_label: bool, unit: str | None, unit_field: str | None
) -> None:
    """Refuses flags that say two things."""
    if no_label and (columns or labels is not None):
        raise ValueError(
            f'Expected no label with no_label=True, got columns={list(columns)!r}, labels={labels!r}. '
            'Leave --no-label out, or these.'
        )
    if unit == 'example' and unit_field is not None:
        raise ValueError(
            f"Expected no unit_field with unit='example', got unit_field={unit_field!r}. Give --unit user to "
            'protect all records of a person together.'
        )
    if labels is not None:
        answers_lib.declared_labels(labels)


def _header(files: str, dialect: 'Dialect', table: 'Table', text_field: str | None) -> 'Header':
    """The columns; none where the text's is a number, since such a file has no header line."""
    from transforms.read import Header, read_header

    if text_field is not None and text_field.isdigit():
        return Header(columns=(), dialect=dialect)
    with off_screen.unquoted():
        return read_header(files, dialect, table)


# --- Questions -----------------------------------------------------------------------


def _text_field(questions: Questions, given: str | None, columns: tuple[str, ...]) -> str | None:
    found = given or answers_lib.likely_text(columns)
    if found is not None:
        return found
    return questions.ask(
        f'Which column is the text? {", ".join(columns)}',
        one_of(columns),
        default=None,
        flags='--text-field',
        example=('--text-field', 'COLUMN'),
    )


def _label(
    questions: Questions,
    columns: tuple[str, ...],
    labels: str | None,
    no_label: bool,
    others: tuple[str, ...],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The label's columns and the declared labels; a question only where it has an answer."""
    if no_label or (not columns and labels is None and not others):
        return (), ()
    if columns and labels is not None:
        return columns, answers_lib.declared_labels(labels)
    if columns:
        example = 'A1=Surgery, B2=Paediatrics'
        if len(columns) > 1:
            example = ', '.join(f'{column}:A1=Surgery' for column in columns)
        found = questions.ask(
            f'Which labels has {" and ".join(columns)}? You declare them: labels read from records would '
            f'tell of these.\n   For example: {example}',
            answers_lib.declared_labels,
            default=None,
            flags='--labels',
            example=('--labels', example.replace(', ', ',')),
        )
        return columns, found or ()
    if labels is not None:
        chosen = questions.ask(
            f'Which column has these labels? {", ".join(others)}',
            one_of(others),
            default=None,
            flags='--label-field',
            example=('--label-field', 'COLUMN'),
        )
        return () if chosen is None else (chosen,), answers_lib.declared_labels(labels)

    def parse(typed: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if ':' not in typed and one_of(others, or_none=True)(typed.strip()) is None:
            return (), ()
        return answers_lib.labels_of_columns(typed, one_of(others))

    answer = questions.ask(
        f'Is one of these columns a label? {", ".join(others)}\n   If so, give it with its labels, such as '
        'ward: A1=Surgery, B2=Paediatrics\n   Several columns have a semicolon between: ward: A1, B2; '
        'outcome: good, bad',
        parse,
        default='none',
        flags='--label-field or --attributes, and --labels, or --no-label',
    )
    return answer or ((), ())


def _unit_field(
    questions: Questions, unit: str | None, given: str | None, others: tuple[str, ...]
) -> str | None:
    """Column of the person; None where each record is protected by itself."""
    if given is not None or unit == 'example' or (unit is None and not others):
        return given
    return questions.ask(
        f'Does one of these columns say whose record it is? {", ".join(others)}\n'
        '   All records of a person are then protected together',
        one_of(others, or_none=unit is None),
        default=None if unit == 'user' else 'none',
        flags='--unit-field',
        example=('--unit-field', 'COLUMN'),
    )


def _pair(
    questions: Questions,
    given: tuple[float | None, float | None],
    names: tuple[str, str],
    of_flags: tuple[str, str],
    defaults: tuple[str | None, str | None],
    asked: tuple[str, str],
    who: str,
    examples: tuple[str, str] = ('', ''),
) -> tuple[float, float]:
    """Two numbers by one question, or by what was given of them."""
    open_places = [place for place, value in enumerate(given) if value is None]
    if not open_places:
        return typing.cast('tuple[float, float]', given)
    chosen = [defaults[place] for place in open_places]
    default = None if None in chosen else ' '.join(str(each) for each in chosen)
    words = ', and '.join(asked[place] for place in open_places).format(who=who)
    form = ' (two numbers with a space between)' if len(open_places) == 2 else ''
    found = questions.ask(
        f'{words[:1].upper()}{words[1:]}?\n  {form or " (a number)"}',
        numbers(*(names[place] for place in open_places)),
        default=default,
        flags=' and '.join(of_flags[place] for place in open_places),
        example=[word for place in open_places for word in (of_flags[place], examples[place])],
    )
    answers = iter(found or (0.0, 0.0))  # `Questions.check` refuses what is missing
    first, second = (next(answers) if value is None else value for value in given)
    return first, second


# --- What follows --------------------------------------------------------------------


def _check_columns(answers: Answers, header: 'Header') -> None:
    """Refuses columns that a file lacks, and labels that no record of such a column can have."""
    from transforms.read import RecordFields, check_input

    # Positional names are all numbers.
    fields = RecordFields(
        text=answers.text_field,
        label=answers.label_field,
        attributes=answers.attributes,
        unit=answers.unit_field,
        dialect=answers.dialect,
        table=answers.table,
    )
    with off_screen.unquoted():
        check_input(answers.records, fields)
    fractions = {column.name for column in header.columns if column.is_fraction}
    if answers.label_field in fractions:
        answers_lib.check_numbers_of(answers.labels, str(answers.label_field))
    for column in answers.attributes:
        if column in fractions:
            own = [
                label.removeprefix(f'{column}:') for label in answers.labels if label.startswith(f'{column}:')
            ]
            answers_lib.check_numbers_of(own, column)


def _write(
    answers: Answers, method: str | None, model: str | None, path: str, console: rich.console.Console
) -> None:
    """Writes the file, and shows what a run of it would do."""
    said = answers.settings()
    followed = {'model': here.model()} if model is None else {}
    if model is not None:
        said['model'] = model
    followed |= answers.names()
    values = {**said, **{name: each.value for name, each in followed.items()}}
    found = comparison.compare(values)
    chosen = method or found.recommended
    if chosen is None:
        why = ' '.join(f'{each.method}: {each.why_not}' for each in found.methods)
        raise ValueError(f'Expected a method that fits, got none. {why}')
    if method is not None:
        said[config.METHOD] = method
    else:
        followed = {config.METHOD: Follows(value=chosen, because=found.because), **followed}
    if chosen in methods.METHODS:  # else `following` refuses it
        followed |= methods.METHODS[chosen].on_this_machine()
    values |= {config.METHOD: chosen, **{name: each.value for name, each in followed.items()}}
    followed |= config.following(**values)
    folder = _folder_of(answers.records)
    last = {
        'output': Follows(
            value=folder,
            because=f'The corpus and its report: publish these. {folder}.curator holds the run key and true '
            'counts: never publish it.',
        )
    }
    everything = {**said, **{name: each.value for name, each in (followed | last).items()}}
    job_config = config.job_config(**everything)
    text = settings_file.commented(
        (
            'Settings of one run, written by `dp-corpus start`. Run it with',
            f'    dp-corpus generate --config {path}',
            'Every key is a flag of `generate`, whose --help explains it; a flag wins over this file. Remove',
            'a line that follows from others, and it follows anew. No record decided any line here.',
        ),
        said,
        followed,
        last,
        answers.notes(),
    )
    pathlib.Path(path).write_text(text, encoding='utf-8')
    comparison_terminal.print_comparison(found, console)
    console.print()
    run_plan = comparison.planned(job_config)
    plan_terminal.render(run_plan.rows(), run_plan.warnings, console)
    console.print()
    if values['model'] == bundled.MODEL:
        console.print(watched.BUNDLED_TEXT, soft_wrap=True)
    commands = [extras.install_command(*methods.of(job_config).extras(job_config))]
    commands.append(f'dp-corpus generate --config {path}')
    shown = '\n'.join(f'    {command}' for command in commands if command)
    console.print(
        f'{path} is written: look at it, then run\n\n{shown}\n',
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


def _folder_of(records: str) -> str:
    """A name for the corpus, from the name of its first file, database or data set."""
    first = places.split_patterns(records)[0]
    address = first.partition('?')[0] if places.is_database(first) else first
    name = address.rstrip('/').split('/')[-1].split('.')[0]
    stem = re.sub(r'[^A-Za-z0-9_-]+', '-', name).strip('-_')
    return f'{stem or "corpus"}-synthetic'
