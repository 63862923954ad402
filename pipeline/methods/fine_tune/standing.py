"""What texts of an adapter were worth, and when training one is worth its hours."""

from pipeline.methods.method import FEWEST_OF_LABEL, LAST_RANK, Score, Standing

# Rows of docs/measured.md, with Gemma 3 270M.
SCORES = (
    Score(what='bank questions', records=10003, labels=77, epsilon=1, texts=616, worth=0.67, of_records=0.87),
    Score(what='reviews', records=20000, labels=2, epsilon=1, texts=200, worth=0.58, of_records=0.75),
    Score(what='news', records=8000, labels=4, epsilon=1, texts=200, worth=0.69, of_records=0.83),
    Score(what='questions', records=5452, labels=6, epsilon=3, texts=300, worth=0.64, of_records=0.80),
    Score(what='questions', records=768, labels=6, epsilon=1, texts=300, worth=0.43, of_records=0.76),
    Score(what='medical notes', records=828, labels=20, epsilon=1, texts=40, worth=0.39, of_records=0.68),
)
# From so many units and such an epsilon on, texts of an adapter were worth more than those of votes on
# tokens; below, less. In between nothing was measured.
_FEWEST_UNITS, _LEAST_EPSILON = 2000, 2.0
# The epsilon of the run with many labels.
_LEAST_OF_MANY_LABELS = 1.0


def standing(units: float, epsilon: float | None, labels: int) -> Standing:
    """First with thousands of units and few of each label; after votes on whole texts with many of each."""
    if (
        units >= _FEWEST_UNITS
        and units / labels < FEWEST_OF_LABEL
        and epsilon is not None
        and epsilon >= _LEAST_OF_MANY_LABELS
    ):
        because = (
            'With thousands of records and few of each label, texts of an adapter were worth more than voted '
            'ones (77 labels of 130 records, ε = 1), and any number of them is free.'
        )
        return Standing(rank=1, because=because)
    if units >= _FEWEST_UNITS and epsilon is not None and epsilon >= _LEAST_EPSILON:
        because = (
            'Texts of an adapter were worth more than votes on tokens, and any number of them is free. With '
            'one round of votes on them (dp-corpus refine) they were worth as much as votes on whole texts, '
            'and were more like the records.'
        )
        return Standing(rank=2, because=because)
    because = 'With few records or a small ε, texts of an adapter were worth less than voted ones.'
    return Standing(rank=LAST_RANK, because=because)
