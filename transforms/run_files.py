"""Names of what a run keeps in its two folders, for whoever writes or reads them.

The output is published:

    data/train-*.parquet, README.md, privacy_report.html, privacy_report.json
    adapter/         what fine-tuning trained, with its guarantee

The work directory is the curator's own:

    run.key          the secret that all noise is drawn from
    run.json         digests of what may not change until the run is finished
    config.toml      its settings, for the curator
    plan.json        batches of each group, with the noisy counts that they follow from
    clustering.json  the kept centres, with theirs
    conditions.json  the noisy counts of the cells whose values examples are given
    reference.json   texts of the first round that are the reference of the other batches
    batches/         finished batches
    losses/          what the batches of a median run lost
    spending/        what contexts spent, with individual accounting
    tuning/          checkpoints of fine-tuning, and adapter.safetensors once it is done
    errors/          texts of errors, which may quote records
    rejected.jsonl   rows that are no records, where the curator asked for them
    restricted_report.json, restricted_report.html
"""

RUN_KEY = 'run.key'
RUN = 'run.json'
CONFIG = 'config.toml'
PLAN = 'plan.json'
CLUSTERING = 'clustering.json'
CONDITIONS = 'conditions.json'
REFERENCE = 'reference.json'
BATCHES_FOLDER = 'batches'
LOSSES_FOLDER = 'losses'
SPENDING_FOLDER = 'spending'
ERRORS_FOLDER = 'errors'
TUNING_FOLDER = 'tuning'
ADAPTER_FOLDER = 'adapter'
ADAPTER_CARD, ADAPTER_TENSORS = 'adapter.json', 'adapter.safetensors'
WORK_FOLDERS = (BATCHES_FOLDER, LOSSES_FOLDER, SPENDING_FOLDER, ERRORS_FOLDER)
REJECTED = 'rejected.jsonl'
RESTRICTED_REPORT = 'restricted_report.json'
RESTRICTED_PAGE = 'restricted_report.html'

# Shards lie in a folder of their own: readers of Parquet folders take every file there.
DATA_FOLDER = 'data'
CARD = 'README.md'
REPORT_PAGE = 'privacy_report.html'
# Written last: where it is, the run is finished.
REPORT = 'privacy_report.json'
