"""The answers to `dp-corpus start`: by what flags say, by the names of columns, or by a question."""

import typing

from pipeline.screen import off_screen
from pipeline.start import answers as answers_lib
from pipeline.start.questions import Questions, numbers, one_of

if typing.TYPE_CHECKING:
    from transforms.read import Dialect, Header, Table


def header(files: str, dialect: 'Dialect', table: 'Table', text_field: str | None) -> 'Header':
    """The columns; none where the text's is a number, since such a file has no header line."""
    from transforms.read import Header, read_header

    if text_field is not None and text_field.isdigit():
        return Header(columns=(), dialect=dialect)
    with off_screen.unquoted():
        return read_header(files, dialect, table)


def text_field(questions: Questions, flag: str | None, columns: tuple[str, ...]) -> str | None:
    """Column of the text."""
    column = flag or answers_lib.likely_text(columns)
    if column is not None:
        return column
    return questions.ask(
        f'Which column is the text? {", ".join(columns)}',
        one_of(columns),
        default=None,
        flags='--text-field',
        example=('--text-field', 'COLUMN'),
    )


def label(
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
        declared = questions.ask(
            f'Which labels has {" and ".join(columns)}? You declare them: labels read from records would '
            f'tell of these.\n   For example: {example}',
            answers_lib.declared_labels,
            default=None,
            flags='--labels',
            example=('--labels', example.replace(', ', ',')),
        )
        return columns, declared or ()
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


def unit_field(
    questions: Questions, unit: str | None, flag: str | None, others: tuple[str, ...]
) -> str | None:
    """Column of the person; None where each record is protected by itself."""
    if flag is not None or unit == 'example' or (unit is None and not others):
        return flag
    return questions.ask(
        f'Does one of these columns say whose record it is? {", ".join(others)}\n'
        '   All records of a person are then protected together',
        one_of(others, or_none=unit is None),
        default=None if unit == 'user' else 'none',
        flags='--unit-field',
        example=('--unit-field', 'COLUMN'),
    )


def pair(
    questions: Questions,
    values: tuple[float | None, float | None],
    names: tuple[str, str],
    flags: tuple[str, str],
    defaults: tuple[str | None, str | None],
    asked: tuple[str, str],
    who: str,
    examples: tuple[str, str] = ('', ''),
) -> tuple[float, float]:
    """Two numbers: by their flags, and by one question for those that no flag gives.

    Args:
        questions: Asks.
        values: Values of the flags; None where a flag was not given.
        names: Names of the numbers, for errors.
        flags: The flags.
        defaults: Answers that an empty one means; None for none.
        asked: Questions, with `{who}`.
        who: Who or what the numbers are about.
        examples: Values of the flags as an error shows them.
    """
    open_places = [place for place, value in enumerate(values) if value is None]
    if not open_places:
        return typing.cast('tuple[float, float]', values)
    chosen = [defaults[place] for place in open_places]
    default = None if None in chosen else ' '.join(str(each) for each in chosen)
    words = ', and '.join(asked[place] for place in open_places).format(who=who)
    form = ' (two numbers with a space between)' if len(open_places) == 2 else ''
    typed = questions.ask(
        f'{words[:1].upper()}{words[1:]}?\n  {form or " (a number)"}',
        numbers(*(names[place] for place in open_places)),
        default=default,
        flags=' and '.join(flags[place] for place in open_places),
        example=[word for place in open_places for word in (flags[place], examples[place])],
    )
    answers = iter(typed or (0.0, 0.0))  # `Questions.check` refuses what is missing
    first, second = (next(answers) if value is None else value for value in values)
    return first, second
