"""Exit codes of commands, for scripts and schedules."""

FAILED = 1  # what was asked for was not reached: a run failed, its ledger is not there, no row is a record
USAGE = 2  # the request cannot be carried out as given
BUDGET = 3  # the dataset's budget does not allow it: where a schedule stops, and no fault
