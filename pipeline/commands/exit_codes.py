"""Exit codes of commands, for scripts and schedules."""

FAILED = 1  # a run started and did not finish, or its ledger could not be reached
USAGE = 2  # the request cannot be carried out as given, or a run would take no row
BUDGET = 3  # the dataset's budget does not allow it: where a schedule stops, and no fault
