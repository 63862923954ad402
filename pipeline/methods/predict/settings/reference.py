"""Settings of the reference: whose prediction the difference aggregate is taken from (METHOD 4c)."""

import dataclasses
import functools

from pipeline.settings import panel

_setting = functools.partial(panel.setting, 'Reference')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference(panel.Panel):
    """Which public texts the records are compared with."""

    reference: str | None = _setting(
        "Public texts of the records' own genre, whose prediction the difference is taken from: files like "
        'those of --input, or the folder of an earlier release. Choose them without a look at the records.',
        None,
        path='patterns',
    )
    reference_label_field: str | None = _setting(
        'Column of the label in the files of --reference. Without it all texts serve all labels.',
        None,
        names_path=False,
    )
    reference_size: int = _setting('M: reference texts of each label.', 8)
    reference_rounds: int | None = _setting(
        '2: a tenth of the batches of each label is decoded first, and texts that they release are the '
        'reference of the others. 1: without. Default: 2 for the difference without --reference, else 1.',
        None,
    )

    def check(self) -> None:
        if self.reference_rounds not in (None, 1, 2):
            raise ValueError(
                f'Expected reference_rounds 1 or 2, got reference_rounds={self.reference_rounds}. Give 2 for '
                'a reference from the run itself, or 1.'
            )
        if self.reference is None and self.reference_label_field is not None:
            raise ValueError(
                'Expected reference_label_field with reference only, got '
                f'reference_label_field={self.reference_label_field!r}, reference=None. Give --reference '
                'too, or leave it out.'
            )
        if self.reference is not None and self.reference_rounds == 2:
            raise ValueError(
                f'Expected one source of the reference, got reference={self.reference!r}, '
                'reference_rounds=2. Leave out --reference, or --reference-rounds.'
            )
        self._check_positive('reference_size')
