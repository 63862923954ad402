"""How many batches a run plans, as far as public numbers tell."""

from pipeline.methods.predict.mechanism import Config


def configured_batches(config: Config) -> tuple[int, ...] | None:
    """Batches of each label where the settings say how many; None where a noisy count does."""
    batches = config.method.batches_per_label
    return None if batches is None else (batches,) * len(config.input.label_values)


def expected_batches(config: Config) -> int | None:
    """Planned batches as far as public facts tell, None where they do not."""
    groups = len(config.input.label_values) * (config.method.clusters or 1)
    if (configured := configured_batches(config)) is not None:
        return sum(configured) * (config.method.clusters or 1)
    if config.input.sampled_records is None:
        return None
    per_batch = config.method.batch_size * (
        config.budget.examples_per_context if config.budget.unit == 'example' else 1
    )
    return max(groups, round(config.input.sampled_records / per_batch))
