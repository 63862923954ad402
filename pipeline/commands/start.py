"""`dp-corpus start`: from a file of records and at most six answers to the settings of a run."""

import dataclasses
import pathlib
from typing import Annotated, Any

import typer

from models import bundled, extras
from pipeline.asked import config
from pipeline.commands import flags
from pipeline.pages import comparison_terminal, plan_terminal
from pipeline.plan import comparison
from pipeline.run import watched
from pipeline.screen import off_screen, terminal
from pipeline.settings.input import INPUT_HELP, Input
from pipeline.start import answers as answers_lib
from pipeline.start import interview, settings_file
from pipeline.start.questions import MOST_QUESTIONS, Questions
from transforms import places

WHY = (
    'It reads the names of the columns and no record: a setting that follows from the records would cost '
    'privacy that nobody has paid for. So it asks for what you know of them in public, such as a rounded '
    f'number. At most {MOST_QUESTIONS} questions; an empty answer takes what stands in brackets.'
)

# Settings that a flag may give in place of an answer. What nobody gives is asked, or follows.
_ANSWERED = (
    'text_field', 'label_field', 'labels', 'attributes', 'unit', 'unit_field', 'corpus_description',
    'epsilon', 'examples', 'records', 'typical_words', 'method', 'model', 'delimiter', 'encoding', 'quoting',
    'query', 'partition_column', 'sheet', 'split',
)  # fmt: skip
_OF_FORMAT = ('delimiter', 'encoding', 'quoting', 'query', 'partition_column', 'sheet', 'split')


@flags.with_flags(dataclasses.replace(config.all_settings()[name], default=None) for name in _ANSWERED)
def start(
    context: typer.Context,
    files: Annotated[str, typer.Argument(metavar='RECORDS', help=INPUT_HELP)],
    output: Annotated[str, typer.Option('--output', help='TOML file to write.', metavar='FILE')] = 'run.toml',
    force: Annotated[bool, typer.Option('--force', help='Write over a file that is there.')] = False,
    yes: Annotated[
        bool,
        typer.Option('--yes', help='Ask nothing: take the defaults, and refuse what has none by its name.'),
    ] = False,
    no_label: Annotated[bool, typer.Option('--no-label', help='There is no label.')] = False,
    **settings: Any,
) -> None:
    """Ask at most six questions about records, and write the settings of a run.

    Example: dp-corpus start notes.csv

    It reads the names of the columns and no record, so nothing that it writes depends on what the records
    say. The file says of each setting where it comes from, and is all that a run needs: [bold]dp-corpus
    generate --config run.toml[/bold]. Defaults are 3 for epsilon, 200 texts, the model gemma3-270m if its
    weights are here, and the method that `plan --compare` recommends.
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
    labels, unit, unit_field = settings['labels'], settings['unit'], settings['unit_field']
    label_columns = _label_columns(settings['label_field'], settings['attributes'])
    _check_flags(label_columns, labels, no_label, unit, unit_field)
    files = config.without_password(files)
    of_format = {name: settings[name] for name in _OF_FORMAT if settings[name] is not None}
    of_text = {name: of_format[name] for name in ('delimiter', 'encoding', 'quoting') if name in of_format}
    Input(**of_text).check_text_flags([files])
    places.check_local_files(files)
    console = terminal.console()
    off_screen.silence_libraries()
    from pipeline.run.record_rules import record_rules
    from transforms.read import Dialect, Header, check_input

    text_field = settings['text_field']
    try:
        fields = record_rules(Input(input=files, **of_format), 'example').fields
        header, unread = interview.header(files, fields.dialect, fields.table, text_field), None
    except ValueError as error:
        if not yes:
            raise
        # All that is missing is said at once.
        header, unread = Header(columns=(), dialect=Dialect()), error
    questions = Questions(takes_defaults=yes)
    if not yes:
        console.print(WHY, markup=False, highlight=False)
    columns = header.columns
    text = interview.text_field(questions, text_field, columns) if unread is None else text_field
    others = tuple(column for column in columns if column != text)
    label, declared = interview.label(questions, label_columns, labels, no_label, others)
    unlabelled = tuple(each for each in others if each not in label)
    person = interview.unit_field(questions, unit, unit_field, unlabelled)
    description = settings['corpus_description'] or questions.ask(
        'What is the corpus, in one sentence? It begins every prompt, and nothing else helps as much.\n'
        "   For example: 'Notes of hospital visits, one after another.'",
        str.strip,
        default=answers_lib.DESCRIPTION,
        flags='--corpus-description',
    )
    spent, wanted = interview.pair(
        questions, (settings['epsilon'], settings['examples']), ('ε', 'texts'), ('--epsilon', '--examples'),
        (f'{answers_lib.EPSILON:g}', str(answers_lib.EXAMPLES)),
        ('How much may the corpus tell of {who} (ε: 1 is strict, 10 is loose)', 'how many texts do you want'),
        'one person' if person else 'one record',
    )  # fmt: skip
    many, words = interview.pair(
        questions, (settings['records'], settings['typical_words']),
        ('people' if person else 'records', 'words'),
        ('--records', '--typical-words'), (None, None),
        ('About how many {who} are there', 'how many words has a typical record, as is publicly known'),
        'people' if person else 'records', ('10000', '100'),
    )  # fmt: skip
    questions.check(_as_typed(context, files), columns, unread)
    answered = {
        'input': files,
        **answers_lib.of_place(header.dialect, fields.table),
        'text_field': str(text),
        **answers_lib.of_label(label, declared),
        **({} if person is None else {'unit': 'user', 'unit_field': person}),
        'records': int(many),
        'typical_words': int(words),
        'corpus_description': str(description),
        'epsilon': float(spent),
        'examples': int(wanted),
    }
    of_input = {name: answered[name] for name in config.of_panels(Input) if name in answered}
    with off_screen.unquoted():
        # Refuses columns that a file lacks.
        check_input(files, record_rules(Input(**of_input), 'user' if person else 'example').fields)
    started = settings_file.write(answered, settings['method'], settings['model'], output)
    comparison_terminal.print_comparison(started.compared, console)
    console.print()
    run_plan = comparison.planned(started.config)
    plan_terminal.render(run_plan.table(), run_plan.warnings, console)
    console.print()
    method_settings = started.config.method
    if method_settings.model == bundled.MODEL:
        console.print(watched.BUNDLED_TEXT, soft_wrap=True)
    commands = [extras.install_command(*method_settings.extras(is_local=started.config.runner.is_local))]
    commands += [
        f'dp-corpus split --config {output}     # sets one record in ten aside, to judge the corpus by',
        f'dp-corpus generate --config {output}',
        f'dp-corpus evaluate {started.config.output.output}',
    ]
    shown = '\n'.join(f'    {command}' for command in commands if command)
    console.print(
        f'{output} is written: look at it, then run\n\n{shown}\n',
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


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
    """The columns of a label, or of attributes, that flags name."""
    if label_field is not None and attributes is not None:
        raise ValueError(
            f'Expected label_field or attributes, got label_field={label_field!r}, '
            f'attributes={attributes!r}. Name all columns in --attributes.'
        )
    if attributes is None:
        return () if label_field is None else (label_field,)
    columns = tuple(name.strip() for name in attributes.split(','))
    if len(columns) < 2 or '' in columns:
        raise ValueError(
            f'Expected two columns or more, got attributes={attributes!r}. Give --label-field for one.'
        )
    return columns


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
