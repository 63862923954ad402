"""What votes on tokens were worth, and when they are the first choice."""

from pipeline.methods.method import LAST_RANK, Score, Standing

# Rows of docs/measured.md, with Gemma 3 270M and individual accounting.
SCORES = (
    Score(what='news', records=768, labels=4, epsilon=1, texts=57, worth=0.72, of_records=0.80),
    Score(what='questions', records=768, labels=6, epsilon=1, texts=123, worth=0.45, of_records=0.65),
    Score(what='medical notes', records=768, labels=20, epsilon=1, texts=60, worth=0.57, of_records=0.72),
    Score(what='questions', records=1920, labels=6, epsilon=3, texts=272, worth=0.47, of_records=0.77),
    Score(what='reviews', records=384, labels=2, epsilon=1, texts=32, worth=0.61, of_records=0.61),
)
# Runs with fewer and with more units were measured, and none between 2,000 and 5,000.
_MOST_UNITS = 2000


def standing(units: float, epsilon: float | None, labels: int) -> Standing:
    """First with some hundred units; with thousands others were worth more, or take minutes."""
    if units < _MOST_UNITS:
        because = 'With some hundred records, votes on tokens were worth the most (768 records, ε = 1).'
        return Standing(rank=1, because=because)
    because = 'With thousands of records, texts of other methods were worth more, or took minutes.'
    return Standing(rank=LAST_RANK, because=because)
