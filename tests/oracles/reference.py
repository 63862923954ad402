"""The texts of the reference (METHOD 4c), from everything at once and with plain sorting."""

import hashlib
from collections.abc import Sequence

from models.batch_plan import BatchPlan
from models.records import BatchId, SyntheticExample


def pick_texts(texts: Sequence[str], size: int) -> list[str]:
    """Slow twin of `reference.pick`: all distinct texts in the order of their SHA-256, cut."""
    return sorted(set(texts), key=lambda text: hashlib.sha256(text.encode('utf-8')).hexdigest())[:size]


def first_round(plan: BatchPlan) -> set[BatchId]:
    """Slow twin of `reference.first_round`: a turn of one batch of each cluster after another."""
    chosen: set[BatchId] = set()
    for label in plan.labels:
        groups = [group for group, other in enumerate(plan.group_labels) if other == label]
        left = {
            group: sorted(
                (BatchId(group=group, index=index) for index in range(plan.batches_per_group[group])),
                key=lambda name: hashlib.sha256(str(name).encode()).hexdigest(),
            )
            for group in groups
        }
        wanted = max(1, sum(map(len, left.values())) // 10)
        while wanted:
            turn = sorted(
                (names.pop(0) for names in left.values() if names),
                key=lambda name: hashlib.sha256(str(name).encode()).hexdigest(),
            )
            chosen.update(turn[:wanted])
            wanted -= min(wanted, len(turn))
    return chosen


def released_texts(examples: Sequence[SyntheticExample], plan: BatchPlan, size: int) -> list[list[str]]:
    """Texts of each group, from all examples of the first round."""
    complete = [
        example
        for example in examples
        if not (example.truncated or example.text.strip() == '')
        # Nobody counted the tokens of a text that was given to votes on texts.
        and not 0 < example.private_tokens + example.public_tokens < 8
    ]
    found = []
    for group, label in enumerate(plan.group_labels):
        own = pick_texts([one.text for one in complete if int(one.batch_id[:4]) == group], size)
        of_label = pick_texts([one.text for one in complete if one.label == label], size)
        if len(own) >= size:
            found.append(own)
            continue
        others = [one.text for one in complete if one.text not in of_label]
        found.append(of_label + pick_texts(others, size - len(of_label)))
    return found
