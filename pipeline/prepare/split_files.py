"""Names of what `dp-corpus split` writes, for whoever looks for a part and reads no record."""

KEY = 'split.key'
RECORDS, TEST = 'records', 'test'
