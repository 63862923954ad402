"""What a run would find in its input, for the curator alone, before a run is paid for.

Nothing is released and nothing is charged. What it shows are true figures of private records, so settings
that follow from them by a rule are tuning on private data (models/privacy/README.md, section 5).
"""

import collections
import dataclasses
import hashlib
import json
import random
import typing
from collections.abc import Callable, Iterator, Sequence

from models.batching import record_hash, unit_hash
from models.privacy import counts, report
from models.privacy.randomness import RunKey
from models.records import Record
from pipeline.config import JobConfig
from pipeline.plan import FEWEST_CONTEXTS, MOST_CONTEXTS
from pipeline.run import settings as run_settings
from transforms.read import Reason, RecordRules, check_input, read_piece, split_file

if typing.TYPE_CHECKING:
    from models.prompts import PromptWriter

SCHEMA = 'dp-corpus/input-check'
SCHEMA_VERSION = 1
# Texts whose tokens are counted, drawn from all.
SAMPLED_TEXTS = 2_000
# Labels that the run does not declare, the most frequent first.
SHOWN_LABELS = 20
# Of a label that the run does not declare: a column named by mistake may hold whole texts.
SHOWN_CHARACTERS = 40
# From here on a share or a ratio is spoken of.
ALARMING_REJECTED, ALARMING_CUT, ALARMING_DUPLICATES = 0.05, 0.25, 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelRecords:
    """One label.

    Attributes:
        label: As the column has it, cut where it is long and the run does not declare it; None where the
            run has no labels.
        declared: Whether the run declares it.
        records: Records of it.
        contexts: Contexts that they make, in the mean of a sample: records, or units, or slots of k records;
            None if undeclared. Of fine-tuning units, each with its one gradient.
        batches: Planned batches; with a noisy count, those of the true one. None if undeclared, and of
            fine-tuning, whose steps draw from all units.
    """

    label: str | None
    declared: bool
    records: int = dataclasses.field(repr=False)
    contexts: int | None = dataclasses.field(repr=False)
    batches: int | None = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens of texts, by the run's tokenizer.

    Attributes:
        texts: How many texts were drawn.
        median: Half of them are as long or shorter.
        upper_decile: Nine in ten are.
        longest: The longest one's.
        room: Tokens that a prompt has for each text, or that fine-tuning reads of it; the rest is cut.
        share_cut: Share of the texts that are longer.
    """

    texts: int = dataclasses.field(repr=False)
    median: int = dataclasses.field(repr=False)
    upper_decile: int = dataclasses.field(repr=False)
    longest: int = dataclasses.field(repr=False)
    room: int
    share_cut: float = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputCheck:
    """What a run would find in its input. Restricted to the curator; its `repr` shows no true figure.

    Attributes:
        files: Names of the files, as they are read.
        records: Rows that a run would take.
        rejected: Other rows, by reason.
        labels: Declared labels in their order, then others, the most frequent first.
        undeclared: Number of labels that the run does not declare, beyond those listed too.
        batch_size: s, what a batch should hold, or a step of fine-tuning in the mean.
        declared_records: --records; None without.
        units: Units of privacy among the records.
        largest_unit: Records of the unit that has most.
        duplicates: Records whose text another one had before.
        lengths: Of texts; None where there is no record.
        findings: What to look at and what to change, a sentence or two each; worst first.
    """

    files: tuple[str, ...]
    records: int = dataclasses.field(repr=False)
    rejected: dict[str, int] = dataclasses.field(repr=False)
    labels: tuple[LabelRecords, ...] = dataclasses.field(repr=False)
    undeclared: int = dataclasses.field(repr=False)
    batch_size: int
    declared_records: int | None
    units: int = dataclasses.field(repr=False)
    largest_unit: int = dataclasses.field(repr=False)
    duplicates: int = dataclasses.field(repr=False)
    lengths: Lengths | None = dataclasses.field(repr=False)
    findings: tuple[str, ...] = dataclasses.field(repr=False)

    def to_json(self) -> str:
        """The check as JSON text, marked as restricted."""
        header = {'schema': SCHEMA, 'schema_version': SCHEMA_VERSION, 'audience': report.RESTRICTED}
        return json.dumps(header | dataclasses.asdict(self), indent=2, ensure_ascii=False) + '\n'


def check_records(config: JobConfig, on_progress: Callable[[int], None] | None = None) -> InputCheck:
    """Reads the input once, as a run would, and says what it would find.

    Memory grows with the numbers of units and of different texts, some hundred bytes each.

    Args:
        config: Of the run.
        on_progress: Told how many rows were read, now and then.

    Raises:
        ValueError: As `transforms.read.check_input`; a prompt that does not fit.
        FileNotFoundError: No such files; no model.
    """
    rules = run_settings.record_rules(config)
    files = check_input(str(config.input), rules.fields)
    writer = run_settings.prompt_writer(config)
    found = _Found(config)
    for row in _rows([file.path for file in files], rules):
        found.add(row)
        if on_progress is not None and found.rows % 1_000 == 0:
            on_progress(found.rows)
    return found.result(tuple(file.path for file in files), writer)


def _rows(paths: Sequence[str], rules: RecordRules) -> Iterator[Record | Reason]:
    """Rows with any label, so that undeclared ones are seen."""
    if rules.labels is not None:
        rules = dataclasses.replace(rules, labels=None, any_label=True)
    for path in paths:
        for piece in split_file(path):
            for row in read_piece(piece, rules):
                yield row if isinstance(row, Record) else row.reason


class _Found:
    """What rows add up to."""

    def __init__(self, config: JobConfig) -> None:
        self._config = config
        self._declared = config.label_values
        self._rejected: collections.Counter[str] = collections.Counter()
        self._by_label: collections.Counter[str | None] = collections.Counter()
        self._texts: set[bytes] = set()
        self._units: collections.Counter[bytes] = collections.Counter()
        # Of each unit: hash of the record that decides its label, and that label (METHOD 1).
        self._first: dict[bytes, tuple[bytes, str | None]] = {}
        # Drawn anew each time, as a run's key is: another run puts a unit under another of its labels.
        self._key = RunKey.new()
        self._drawn: list[Record] = []
        self._random = random.Random(0)
        self.rows = self._records = self._duplicates = 0

    def add(self, row: Record | Reason) -> None:
        """Counts a row."""
        self.rows += 1
        if isinstance(row, Reason):
            self._rejected[row.value] += 1
            return
        self._by_label[row.label] += 1
        if row.label not in self._declared:
            self._rejected[Reason.UNDECLARED_LABEL.value] += 1
            return
        self._records += 1
        digest = hashlib.blake2b(row.text.encode(), digest_size=12).digest()
        self._duplicates += digest in self._texts
        self._texts.add(digest)
        if row.unit is not None:
            unit, own = unit_hash(self._key, row.unit), (record_hash(self._key, row), row.label)
            self._units[unit] += 1
            self._first[unit] = min(self._first.get(unit, own), own, key=lambda one: one[0])
        # Each of the records so far is among the drawn ones with the same probability.
        if len(self._drawn) < SAMPLED_TEXTS:
            self._drawn.append(row)
        elif (place := self._random.randrange(self._records)) < SAMPLED_TEXTS:
            self._drawn[place] = row

    def result(self, files: tuple[str, ...], writer: 'PromptWriter') -> InputCheck:
        """The check of all rows."""
        labels = tuple(self._labels())
        lengths = self._lengths(writer) if self._drawn else None
        of_user = self._config.unit == 'user'
        found = InputCheck(
            files=files,
            records=self._records,
            rejected=dict(self._rejected.most_common()),
            labels=labels,
            undeclared=len(self._by_label.keys() - set(self._declared)),
            batch_size=self._config.batch_size if self._config.votes else self._config.expected_batch_size,
            declared_records=self._config.records,
            units=len(self._units) if of_user else self._records,
            largest_unit=max(self._units.values(), default=0) if of_user else min(1, self._records),
            duplicates=self._duplicates,
            lengths=lengths,
            findings=(),
        )
        return dataclasses.replace(found, findings=tuple(_findings(found, self._config)))

    def _labels(self) -> Iterator[LabelRecords]:
        config = self._config
        units = collections.Counter(label for _, label in self._first.values())
        of_user = config.unit == 'user'
        k = 1 if of_user else config.examples_per_context
        for label in self._declared:
            records = self._by_label[label]
            counted = round(config.sample_rate * (units[label] if of_user else records))
            if not config.votes:
                yield LabelRecords(
                    label=label, declared=True, records=records, contexts=counted, batches=None
                )
                continue
            if config.batches_per_label is not None:
                batches = config.batches_per_label
            else:
                batches = counts.batches_for(counted, config.batch_size, k)
            contexts = counted if k == 1 else _filled_slots(counted, config.batch_size * batches)
            yield LabelRecords(
                label=label, declared=True, records=records, contexts=contexts, batches=batches
            )
        others = [one for one in self._by_label.most_common() if one[0] not in self._declared]
        for label, records in others[:SHOWN_LABELS]:
            yield LabelRecords(
                label=_cut(label), declared=False, records=records, contexts=None, batches=None
            )

    def _lengths(self, writer: 'PromptWriter') -> Lengths:
        texts = [record.text for record in self._drawn]
        if self._config.votes:
            room = min(writer.room(label, self._config.examples_per_context) for label in self._declared)
            tokens = sorted(writer.lengths(texts))
        else:
            room = self._config.max_example_tokens
            tokens = sorted(map(len, writer.continuations(texts, max_tokens=None)))

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


def _filled_slots(records: int, slots: int) -> int:
    """Expected number of slots that hold a record, each record in a slot by its hash."""
    return round(slots * (1 - (1 - 1 / slots) ** records))


def _mean_step(found: InputCheck) -> float:
    """Units of a step of fine-tuning in the mean, given how many there are."""
    assert found.declared_records is not None  # `fine_tuning.check`
    return found.batch_size * found.units / found.declared_records


def _findings(found: InputCheck, config: JobConfig) -> Iterator[str]:
    rows = found.records + sum(found.rejected.values())
    if not rows:
        yield 'There is no row in these files. Check --input.'
        return
    others = [each for each in found.labels if not each.declared]
    if not found.records:
        yield 'A run would take none of these rows, and end as always, with a corpus of the public prompt.'
    if others:
        names = ', '.join(repr(each.label) for each in others[:5])
        more = ', ...' if found.undeclared > 5 else ''
        yield (
            f'{found.rejected[Reason.UNDECLARED_LABEL.value]:,} rows have labels that --labels does not '
            f'declare: {names}{more}. Declare them from a published scheme (VALUE=WORDS gives prompts words '
            'for a value), or leave these rows out as now.'
        )
    for label in found.labels:
        if label.declared and found.records and not label.records:
            yield f'No row has the declared label {label.label!r}. Check how the column spells it.'
    for reason, count in found.rejected.items():
        if reason != Reason.UNDECLARED_LABEL.value and count / rows >= ALARMING_REJECTED:
            yield (
                f'{count:,} of {rows:,} rows are rejected: {reason}. Look at some with generate '
                '--keep-rejected, which leaves them in the work directory.'
            )
    for label in found.labels:
        if label.contexts is None or not label.batches or not found.records:
            continue
        ratio = label.contexts / label.batches / found.batch_size
        name = 'A batch' if label.label is None else f'A batch of {label.label!r}'
        if ratio > MOST_CONTEXTS:
            yield (
                f'{name} would hold {label.contexts / label.batches:,.0f} contexts, where --batch-size says '
                f'{found.batch_size}: each token costs what it costs at {found.batch_size}, at more work. '
                'More --batches-per-label, or none of it, which counts with noise, give as many batches as '
                'there are records for.'
            )
        elif ratio < FEWEST_CONTEXTS:
            yield (
                f'{name} would hold {label.contexts / label.batches:,.1f} contexts, where --batch-size says '
                f'{found.batch_size}: it stays near the public prompt. Fewer batches, a smaller --batch-size '
                'at its price, or fewer labels.'
            )
    # Of fine-tuning --records are units: what each step's batch is drawn from.
    taken = found.records if config.votes else found.units
    if found.declared_records and not FEWEST_CONTEXTS <= taken / found.declared_records <= MOST_CONTEXTS:
        what = (
            'texts and hours' if config.votes else f'a step, which would hold {_mean_step(found):,.1f} units,'
        )
        yield (
            f'--records says {found.declared_records:,}, and a run would take {taken:,}. What `plan` '
            f'says of {what} is off by as much. Declare a number that is public.'
        )
    if found.lengths is not None and found.lengths.share_cut >= ALARMING_CUT:
        flag = '--max-prompt-tokens' if config.votes else '--max-example-tokens'
        yield (
            f'{found.lengths.share_cut:.0%} of the texts are cut at {found.lengths.room} tokens. Raise '
            f'{flag}, which costs time and memory and no privacy.'
        )
    if found.records and found.duplicates / found.records >= ALARMING_DUPLICATES:
        yield (
            f'{found.duplicates:,} records repeat a text of another. Each is a unit of its own unless one '
            'unit id holds them together: --unit user with --unit-field.'
        )
    if config.unit == 'user' and found.largest_unit > 10 * max(1, found.records // max(1, found.units)):
        yield (
            f'One unit has {found.largest_unit:,} records, of which a run shows at most '
            f'{config.examples_per_context}.'
        )
    delta, size = config.delta, found.units
    if delta is not None and size and delta * size >= 1:
        yield f'delta={delta:g} is no less than one over the number of units. Give n ** -1.1 or less.'
