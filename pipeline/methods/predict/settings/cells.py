"""Settings of cells: fields of a schema whose mix the corpus takes from the records, by noisy counts."""

import dataclasses
import functools
import math

from pipeline.settings import panel

_setting = functools.partial(panel.setting, 'Structure')
DEFAULT_CONDITION_RHO = 0.005


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells(panel.Panel):
    """Which values examples are given in the shares of the records."""

    condition_on: tuple[str, ...] = _setting(
        'Declared fields of --json-schema, comma-separated, each an enum, a boolean or a const, whose mix '
        'the corpus takes from the records: contexts are counted by their values, with noise, and every '
        'example is given values in the released shares. Declare them first: what comes before them in an '
        'example does not hang on them.',
        (),
        names_path=False,
    )
    condition_rho: float | None = _setting('rho of the noisy counts of --condition-on. Default: 0.005.', None)

    def check(self) -> None:
        if self.condition_rho is not None and not self.condition_on:
            raise ValueError(
                f'Expected condition_rho with condition_on only, got condition_rho={self.condition_rho!r}, '
                'condition_on=[]. Give --condition-on too, or leave it out.'
            )
        if not (self.resolved_condition_rho > 0 and math.isfinite(self.resolved_condition_rho)):
            raise ValueError(
                f'Expected condition_rho > 0, got condition_rho={self.condition_rho}. Counts without noise '
                'cannot be released.'
            )

    @property
    def resolved_condition_rho(self) -> float:
        """rho of the noisy counts of cells, as given or what the counts of labels cost."""
        return DEFAULT_CONDITION_RHO if self.condition_rho is None else self.condition_rho

    @property
    def cell_count_rho(self) -> float:
        """rho that the run spends on the noisy counts of cells: 0 where none are counted."""
        return self.resolved_condition_rho if self.condition_on else 0.0
