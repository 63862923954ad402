"""Names of the files that a run keeps in its two folders.

The output folder is published:

    data/train-*.parquet, README.md, privacy_report.html, privacy_report.json
    adapter/         what fine-tuning trained, with its guarantee
    rounds/          of votes on whole texts: the list of each round, and its noisy votes
    adapter_card.json   of texts that were sampled from a released adapter: its card

The work directory is for the curator alone:

    run.key          the secret from which all noise is drawn
    run.json         digests of what must not change before the run is finished
    config.toml      the settings of the run
    plan.json        the number of batches of each group, with the noisy counts
    clustering.json  the centres that each label keeps, with the noisy counts
    conditions.json  the noisy counts of the cells whose values examples are given
    reference.json   texts of the first round, the reference of the other batches
    batches/         finished batches
    losses/          the privacy losses of batches, for the median aggregate
    spending/        what contexts spent, with individual accounting
    rounds/          lists of candidates, their embeddings, and noisy votes, of votes on whole texts
    embeddings/      embeddings of the records that vote on whole texts
    tuning/          checkpoints of fine-tuning, and adapter.safetensors at its end
    workers/         what the time of each worker process went to
    errors/          texts of errors, which may quote records
    rejected.jsonl   rows that are no records, if the curator asked for them
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
WORKERS_FOLDER = 'workers'
TUNING_FOLDER = 'tuning'
ROUNDS_FOLDER = 'rounds'
EMBEDDINGS_FOLDER = 'embeddings'
ADAPTER_FOLDER = 'adapter'
ADAPTER_CARD, ADAPTER_TENSORS = 'adapter.json', 'adapter.safetensors'
SAMPLED_ADAPTER = 'adapter_card.json'
WORK_FOLDERS = (BATCHES_FOLDER, LOSSES_FOLDER, SPENDING_FOLDER, ERRORS_FOLDER, WORKERS_FOLDER)
REJECTED = 'rejected.jsonl'
RESTRICTED_REPORT = 'restricted_report.json'
RESTRICTED_PAGE = 'restricted_report.html'

# Columns of the corpora of all methods; an attribute has a column beside these.
CORPUS_COLUMNS = (
    'text', 'label', 'label_words', 'batch_id', 'index_in_batch', 'private_tokens', 'public_tokens',
    'forced_tokens', 'tokens', 'truncated', 'round', 'noisy_votes', 'parents',
)  # fmt: skip
# Shards lie in a folder of their own: readers of Parquet folders take every file there.
DATA_FOLDER = 'data'
CARD = 'README.md'
REPORT_PAGE = 'privacy_report.html'
# Written last: where it is, the run is finished.
REPORT = 'privacy_report.json'

# Files of `dp-corpus split`: the key, and the parts for runs and for evaluations.
SPLIT_KEY = 'split.key'
SPLIT_RECORDS, SPLIT_TEST = 'records', 'test'
