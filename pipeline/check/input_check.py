"""The result of a check of the input, for the curator alone."""

import dataclasses
import json

from models.privacy import report

SCHEMA = 'dp-corpus/input-check'
SCHEMA_VERSION = 1
# Contexts of a batch over s, outside of which a plan and a check warn.
FEWEST_CONTEXTS, MOST_CONTEXTS = 0.5, 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelRecords:
    """One label.

    Attributes:
        label: Value of the column, cut where it is long and the run does not declare it; None where the
            run has no labels.
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
        texts: Number of texts that were drawn.
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
    """The input as a run would find it. Restricted to the curator; its `repr` shows no true figure.

    Attributes:
        files: Names of the files, as they are read.
        records: Rows that a run would take.
        rejected: Other rows, by reason.
        continued_lines: Lines of CSV files that continue a row within quotes: neither of them.
        labels: Declared labels in their order, then others, the most frequent first.
        undeclared: Number of labels that the run does not declare, beyond those listed too.
        batch_size: s, what a batch should hold, or a step of fine-tuning in the mean.
        declared_records: --records; None without.
        units: Units of privacy among the records.
        alike_units: Units whose ids differ from another's in case, zeros in front or punctuation alone.
        largest_unit: Records of the unit that has most.
        duplicates: Records whose text another one had before.
        wordless: Records whose text has no letter, as that of a column of numbers.
        lengths: Lengths of texts; None where there is no record, the method reads no tokens, or the libraries
            that count them are not installed.
        findings: Advice on what to look at and to change, a sentence or two each; worst first.
    """

    files: tuple[str, ...]
    records: int = dataclasses.field(repr=False)
    rejected: dict[str, int] = dataclasses.field(repr=False)
    continued_lines: int = dataclasses.field(repr=False)
    labels: tuple[LabelRecords, ...] = dataclasses.field(repr=False)
    undeclared: int = dataclasses.field(repr=False)
    batch_size: int
    declared_records: int | None
    units: int = dataclasses.field(repr=False)
    alike_units: int = dataclasses.field(repr=False)
    largest_unit: int = dataclasses.field(repr=False)
    duplicates: int = dataclasses.field(repr=False)
    wordless: int = dataclasses.field(repr=False)
    lengths: Lengths | None = dataclasses.field(repr=False)
    findings: tuple[str, ...] = dataclasses.field(repr=False)

    def to_json(self) -> str:
        """The check as JSON text, marked as restricted."""
        header = {'schema': SCHEMA, 'schema_version': SCHEMA_VERSION, 'audience': report.RESTRICTED}
        return json.dumps(header | dataclasses.asdict(self), indent=2, ensure_ascii=False) + '\n'
