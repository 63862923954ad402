"""A look at the input as a run would read it, for the curator alone, before a run is paid for.

Nothing is released and nothing is charged. What it shows are true figures of private records, so settings
that follow from them by a rule are tuning on private data (models/privacy/README.md, section 5).
"""

import collections
import dataclasses
import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from models import extras, spelling
from models.batching import record_hash, unit_hash
from models.privacy.randomness import RunKey
from models.records import Record
from pipeline import methods
from pipeline.check import quoted_lines
from pipeline.check.input_check import FEWEST_CONTEXTS, MOST_CONTEXTS, InputCheck, LabelRecords, Lengths
from pipeline.methods.input_view import InputView, MeasureTexts
from pipeline.run.record_rules import record_rules
from pipeline.settings.job_config import JobConfig
from transforms import places
from transforms.read import Reason, RecordRules, Rejection, check_input, read_place
from transforms.read.dialect import OF_SPREADSHEETS

# Number of texts whose tokens are counted, drawn from all.
SAMPLED_TEXTS = 2_000
# Number of undeclared labels that are listed, the most frequent first.
SHOWN_LABELS = 5
# Characters of an undeclared label that are shown: a column named by mistake may hold whole texts.
SHOWN_CHARACTERS = 40
# Shares from which on a finding speaks of them.
ALARMING_REJECTED, ALARMING_CUT, ALARMING_DUPLICATES, ALARMING_WORDLESS = 0.05, 0.25, 0.05, 0.5


def check_records(
    config: JobConfig,
    on_progress: Callable[[int], None] | None = None,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> InputCheck:
    """Reads the input as a run would, CSV files a second time for their lines, and says what it would find.

    Memory grows with the numbers of units and of different texts, some hundred bytes each.

    Raises:
        ValueError: See `transforms.read.check_input`; or a prompt that does not fit.
        FileNotFoundError: No such files; no model.
    """
    rules = record_rules(config.input, config.budget.unit)
    files = check_input(str(config.input.input), rules.fields)
    view = methods.of(config).input_view(config)
    measure: MeasureTexts | None = None
    uncounted: tuple[str, ...] = ()
    try:
        measure = view.measure()
    except extras.MissingExtraError as error:
        # Everything else needs no tokenizer.
        uncounted = (f'No tokens are counted, and so no length is judged. {error}',)
    sums = _Sums(config, view)
    paths = tuple(file.path for file in files)
    for row in _rows(paths, rules):
        if isinstance(row, Rejection) and on_rejected is not None:
            on_rejected(row)
        sums.add(row)
        if on_progress is not None and sums.rows % 1_000 == 0:
            on_progress(sums.rows)
    result = sums.result(paths, quoted_lines.QuotedLines(paths, rules.fields), measure)
    return dataclasses.replace(result, findings=(*result.findings, *uncounted))


def _rows(paths: Sequence[str], rules: RecordRules) -> Iterator[Record | Rejection]:
    """Rows with any label, so that undeclared ones are seen."""
    if rules.labels is not None:
        rules = dataclasses.replace(rules, labels=None, any_label=True)
    for path in paths:
        yield from read_place(path, rules)


class _Sums:
    """The sums over rows."""

    def __init__(self, config: JobConfig, view: InputView) -> None:
        self._config, self._view = config, view
        self._declared = config.input.label_values
        self._rejected: collections.Counter[str] = collections.Counter()
        self._by_label: collections.Counter[str | None] = collections.Counter()
        self._texts: set[bytes] = set()
        self._units: collections.Counter[bytes] = collections.Counter()
        # Units by what the spellings of their ids have in common.
        self._alike: collections.Counter[bytes] = collections.Counter()
        # Unit -> hash of the record that decides its label, and that label (METHOD 1).
        self._first: dict[bytes, tuple[bytes, str | None]] = {}
        # A key drawn anew each time, as a run's is: another run puts a unit under another of its labels.
        self._key = RunKey.new()
        self._drawn: list[Record] = []
        self._random = random.Random(0)
        self.rows = self._records = self._duplicates = self._with_nulls = self._wordless = 0

    def add(self, row: Record | Rejection) -> None:
        """Counts a row."""
        self.rows += 1
        if isinstance(row, Rejection):
            self._rejected[row.reason.value] += 1
            self._with_nulls += b'\0' in row.raw
            return
        self._by_label[row.label] += 1
        if row.label not in self._declared:
            self._rejected[Reason.UNDECLARED_LABEL.value] += 1
            return
        self._records += 1
        digest = hashlib.blake2b(row.text.encode(), digest_size=12).digest()
        self._duplicates += digest in self._texts
        self._texts.add(digest)
        self._wordless += not any(map(str.isalpha, row.text))
        if row.unit is not None:
            unit, first = unit_hash(self._key, row.unit), (record_hash(self._key, row), row.label)
            if unit not in self._units:
                self._alike[unit_hash(self._key, spelling.alike(row.unit))] += 1
            self._units[unit] += 1
            self._first[unit] = min(self._first.get(unit, first), first, key=lambda one: one[0])
        # Each of the records so far is among the drawn ones with the same probability.
        if len(self._drawn) < SAMPLED_TEXTS:
            self._drawn.append(row)
        elif (place := self._random.randrange(self._records)) < SAMPLED_TEXTS:
            self._drawn[place] = row

    def result(
        self, files: tuple[str, ...], lines: quoted_lines.QuotedLines, measure: MeasureTexts | None
    ) -> InputCheck:
        """The check of all rows."""
        labels = tuple(self._labels())
        lengths = self._lengths(measure) if self._drawn and measure is not None else None
        of_user = self._config.budget.unit == 'user'
        check = InputCheck(
            files=files,
            records=self._records,
            rejected=dict(self._rejected.most_common()),
            continued_lines=lines.continued,
            labels=labels,
            undeclared=len(self._by_label.keys() - set(self._declared)),
            batch_size=self._view.expected_batch_size,
            declared_records=self._config.input.records,
            units=len(self._units) if of_user else self._records,
            alike_units=sum(count for count in self._alike.values() if count > 1),
            largest_unit=max(self._units.values(), default=0) if of_user else min(1, self._records),
            duplicates=self._duplicates,
            wordless=self._wordless,
            lengths=lengths,
            findings=(),
        )
        of_files = quoted_lines.findings(lines, self._config.input.quoting)
        if any(map(places.may_be_text, files)):
            of_files = itertools.chain(self._of_encoding(), of_files)
        return dataclasses.replace(
            check, findings=tuple(_findings(check, of_files, self._config, self._view))
        )

    def _of_encoding(self) -> Iterator[str]:
        """Advice where rows are text of another encoding than they were read as."""
        if self._with_nulls:
            yield (
                f'{self._with_nulls:,} rejected rows hold null bytes, as UTF-16 without a byte order mark '
                'does. If that is what the file is, give --encoding utf-16, or utf-16-be.'
            )
        elif not_text := self._rejected[Reason.NOT_TEXT.value]:
            read_as = self._config.input.encoding or 'utf-8'
            yield (
                f'{not_text:,} rows are not text of their encoding, which is {read_as} or what a byte order '
                f'mark says. Give --encoding {OF_SPREADSHEETS}, as spreadsheets of western Europe write it, '
                'or the encoding that the writer of the file used.'
            )

    def _labels(self) -> Iterator[LabelRecords]:
        config = self._config
        units = collections.Counter(label for _, label in self._first.values())
        of_user = config.budget.unit == 'user'
        for label in self._declared:
            records = self._by_label[label]
            contexts, batches = self._view.of_label(records, units[label] if of_user else None)
            yield LabelRecords(
                label=label, declared=True, records=records, contexts=contexts, batches=batches
            )
        others = [one for one in self._by_label.most_common() if one[0] not in self._declared]
        for label, records in others[:SHOWN_LABELS]:
            yield LabelRecords(
                label=_cut(label), declared=False, records=records, contexts=None, batches=None
            )

    def _lengths(self, measure: MeasureTexts) -> Lengths:
        room, tokens = measure([record.text for record in self._drawn])

        def quantile(share: float) -> int:
            return tokens[min(len(tokens) - 1, int(share * len(tokens)))]

        return Lengths(
            texts=len(tokens),
            median=quantile(0.5),
            upper_decile=quantile(0.9),
            longest=tokens[-1],
            room=room,
            share_cut=sum(count > room for count in tokens) / len(tokens),
        )


def _cut(label: str | None) -> str | None:
    """The beginning of a long label, and that it is one."""
    if label is None or len(label) <= SHOWN_CHARACTERS:
        return label
    return f'{label[:SHOWN_CHARACTERS]}… (cut, of {len(label):,} characters)'


def _of_like_labels(labels: Sequence[LabelRecords]) -> Iterator[str]:
    """Differences of undeclared labels from declared ones that may look the same."""
    declared = {spelling.alike(str(each.label)): str(each.label) for each in labels if each.declared}
    for other in (str(each.label) for each in labels if not each.declared):
        if (like := declared.get(spelling.alike(other))) is not None:
            yield (
                f'Rows have the label {other!r}, and --labels declares {like!r}: they differ in '
                f'{spelling.difference(other, like)} alone, and are two labels. Spell one of them as the '
                'other.'
            )


def _findings(
    check: InputCheck, of_files: Iterable[str], config: JobConfig, view: InputView
) -> Iterator[str]:
    rows = check.records + sum(check.rejected.values())
    if not rows:
        yield 'There is no row in these files. Check --input.'
        return
    others = [each for each in check.labels if not each.declared]
    if not check.records:
        yield 'A run would take none of these rows, and end as always, with a corpus of the public prompt.'
    yield from of_files
    if others:
        names = ', '.join(repr(each.label) for each in others[:5])
        more = ', ...' if check.undeclared > 5 else ''
        yield (
            f'{check.rejected[Reason.UNDECLARED_LABEL.value]:,} rows have labels that --labels does not '
            f'declare: {names}{more}. Declare them from a published scheme (VALUE=WORDS gives prompts words '
            'for a value), or leave these rows out as now.'
        )
    yield from _of_like_labels(check.labels)
    for label in check.labels:
        if label.declared and check.records and not label.records:
            yield f'No row has the declared label {label.label!r}. Check how the column spells it.'
    if without_value := check.rejected.get(Reason.NO_VALUE.value):
        yield (
            f'{without_value:,} rows hold a formula without a value, or with an error such as #REF!. Open '
            'the workbook in a spreadsheet program, which computes its formulas, and save it.'
        )
    for reason, count in check.rejected.items():
        if reason == Reason.NO_VALUE.value:
            continue
        if reason != Reason.UNDECLARED_LABEL.value and count / rows >= ALARMING_REJECTED:
            yield (
                f'{count:,} of {rows:,} rows are rejected: {reason}. Look at some with check '
                '--show-rejected 10.'
            )
    yield from view.findings(check)
    if check.declared_records and not (
        FEWEST_CONTEXTS <= check.units / check.declared_records <= MOST_CONTEXTS
    ):
        users = ' users' if config.budget.unit == 'user' else ''
        yield (
            f'--records says {check.declared_records:,}{users}, and a run would take {check.units:,}. What '
            f'`plan` says of {view.off_by_number(check)} is off by as much. Declare a number that is public.'
        )
    if check.lengths is not None and check.lengths.share_cut >= ALARMING_CUT:
        flag = f'--{view.length_setting.replace("_", "-")}'
        yield (
            f'{check.lengths.share_cut:.0%} of the texts are cut at {check.lengths.room} tokens. Raise '
            f'{flag}, which costs time and memory and no privacy.'
        )
    if check.records and check.wordless / check.records >= ALARMING_WORDLESS:
        yield (
            f'{check.wordless:,} of {check.records:,} texts have no letter, as numbers have none. Is '
            f'--text-field {config.input.text_field!r} the column of the text?'
        )
    if check.records and check.duplicates / check.records >= ALARMING_DUPLICATES:
        yield (
            f'{check.duplicates:,} records repeat a text of another. Each is a unit of its own unless one '
            'unit id holds them together: --unit user with --unit-field.'
        )
    if check.alike_units:
        yield (
            f'{check.alike_units:,} unit ids differ from another one in case, zeros in front or punctuation '
            'alone. Where two of them are one person, ε holds for each of them and not for the person: '
            'spell the ids of a person in one way.'
        )
    if config.budget.unit == 'user' and check.largest_unit > 10 * max(
        1, check.records // max(1, check.units)
    ):
        yield (
            f'One unit has {check.largest_unit:,} records, of which a run shows at most '
            f'{config.budget.examples_per_context}.'
        )
    delta, size = config.budget.delta, check.units
    if delta is not None and size and delta * size >= 1:
        yield f'delta={delta:g} is no less than one over the number of units. Give n ** -1.1 or less.'
