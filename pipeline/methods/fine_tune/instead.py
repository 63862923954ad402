"""What to give in place of settings that fine-tuning lacks."""

_VOTES = 'No batch of contexts votes on tokens: each unit has one gradient.'
# Of settings that private prediction has: why fine-tuning lacks them, and what it has in their place.
INSTEAD = {
    **dict.fromkeys(
        (
            'batch_size',
            'threshold',
            'threshold_noise_scale',
            'max_private_tokens',
            'accounting',
            'context_budget',
            'omega',
            'shift_bound',
            'aggregate',
            'public_temperature',
            'public_top_k',
            'max_batch_tokens',
        ),
        _VOTES,
    ),
    'batch_size': 'It is the number of contexts that vote. Give --expected-batch-size, of a step.',
    'clip_bound': 'It clips votes on tokens. Give --clip-norm for gradients.',
    **dict.fromkeys(
        ('batches_per_label', 'count_rho'),
        'Text is sampled from the adapter, as much as is asked for: give --examples-per-label, and '
        '--label-mix-rho for the mix of labels.',
    ),
    **dict.fromkeys(
        ('clusters', 'clustering_rho', 'centers', 'embedder'),
        'Clusters make records of a batch of votes alike, and there are none.',
    ),
    **dict.fromkeys(
        ('reference', 'reference_label_field', 'reference_size', 'reference_rounds'),
        'A reference is what votes are a difference from, and there are none.',
    ),
    **dict.fromkeys(
        ('condition_on', 'condition_rho'),
        'It counts records by the values that examples are then given in turn. Here the adapter learns '
        'which values texts have: give one of them to every text with --fixed.',
    ),
}
