"""The reference: public texts of the same genre as the records (METHOD 4c).

A private prompt changes the public prompt's prediction mostly in the way that any text of the genre would.
So the difference is taken from the prediction that public texts give in the form of the private template.
The texts come from the curator, who vouches for them, or from the run itself: a first round of batches is
decoded with the public prompt, and its released texts are the reference of all later batches. The rounds
hold disjoint contexts, so they compose in parallel like batches, and for a unit of either round the other
round is a function of released text.

Everything here is a function of public or released values, and no hash has a key, so anyone can repeat the
choice.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence

from models.batch_plan import BatchPlan
from models.privacy.earlier_release import TextOrigin
from models.records import BatchId, SyntheticExample

# The first round decodes one in so many batches of a label.
BATCHES_PER_FIRST = 10
# Shorter examples say little of the genre.
LEAST_TOKENS = 8


def text_hash(text: str) -> bytes:
    """SHA-256 of a text, which orders texts: 32 bytes."""
    return hashlib.sha256(text.encode()).digest()


def pick(texts: Iterable[str], size: int) -> tuple[str, ...]:
    """The `size` texts of smallest SHA-256, in its order, each once; fewer where there are fewer.

    Merging is associative, `pick([*pick(a, m), *b], m) == pick([*a, *b], m)`, and no more than
    `size` texts are held at a time.
    """
    kept: dict[bytes, str] = {}
    for text in texts:
        _keep(kept, text, size)
    return _in_order(kept)


def _keep(kept: dict[bytes, str], text: str, size: int) -> None:
    kept[text_hash(text)] = text
    if len(kept) > size:
        del kept[max(kept)]


def _in_order(kept: Mapping[bytes, str]) -> tuple[str, ...]:
    return tuple(kept[digest] for digest in sorted(kept))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference:
    """The reference texts of each label, from the curator. All fields are public.

    Attributes:
        texts: (label, its texts) of each declared label; of a single None where the run declares none.
        digest: SHA-256 of `texts`, in hexadecimal: see `reference_digest`.
        shared_hashes: `text_hash` of every whole text, to count the records that equal one.
    """

    texts: tuple[tuple[str | None, tuple[str, ...]], ...]
    digest: str
    shared_hashes: frozenset[bytes]
    origin: TextOrigin

    @classmethod
    def of(
        cls,
        texts: Mapping[str | None, Sequence[str]],
        *,
        origin: TextOrigin | None = None,
        text_limit: int | None = None,
    ) -> 'Reference':
        """The reference of picked texts.

        Args:
            texts: The texts of each label, in the order of `pick`.
            origin: Their origin; None for files of which nothing but the curator's word is known.
            text_limit: Characters of a text that any prompt could use: the rest stays here. The
                digest is of whole texts. None leaves them whole.
        """
        return cls(
            texts=tuple(
                (label, tuple(text[:text_limit] for text in label_texts))
                for label, label_texts in texts.items()
            ),
            digest=reference_digest(texts),
            shared_hashes=frozenset(
                text_hash(text) for label_texts in texts.values() for text in label_texts
            ),
            origin=TextOrigin(vouched=True) if origin is None else origin,
        )

    def of_label(self, label: str | None) -> tuple[str, ...]:
        """The texts of a label."""
        return dict(self.texts)[label]

    @property
    def counts(self) -> tuple[tuple[str | None, int], ...]:
        """Number of texts of each label."""
        return tuple((label, len(texts)) for label, texts in self.texts)


def reference_digest(texts: Mapping[str | None, Sequence[str]]) -> str:
    """SHA-256 of the JSON `[[label, [text, ...]], ...]`, in UTF-8 without spaces or escapes; hexadecimal."""
    pairs = [[label, list(label_texts)] for label, label_texts in texts.items()]
    return hashlib.sha256(json.dumps(pairs, ensure_ascii=False, separators=(',', ':')).encode()).hexdigest()


def pick_by_label(
    rows: Iterable[tuple[str | None, str]], labels: Sequence[str | None], size: int, *, serve_all: bool
) -> dict[str | None, tuple[str, ...]]:
    """The picked texts of each label; for some or all labels there may be fewer than `size`.

    Args:
        rows: (label, text).
        labels: The run's declared labels, or a single None. Texts of other labels are not used.
        size: M.
        serve_all: True if each text is used for every label, not only for its own.
    """
    kept: dict[str | None, dict[bytes, str]] = {label: {} for label in ((None,) if serve_all else labels)}
    for label, text in rows:
        place = None if serve_all else label
        if place in kept:
            _keep(kept[place], text, size)
    picked = {place: _in_order(texts) for place, texts in kept.items()}
    return dict.fromkeys(labels, picked[None]) if serve_all else picked


# --- Rounds ----------------------------------------------------------------------


def first_round(plan: BatchPlan) -> frozenset[BatchId]:
    """The batches that are decoded first, with the public prompt.

    A tenth of each label's batches, rounded down, and at least one; a label with one batch has no second
    round. They are spread over the label's clusters: one from each cluster, then a second one from each,
    and so on, in the order of the SHA-256 of the batches' names.
    """
    of_label: dict[str | None, list[tuple[int, bytes, BatchId]]] = {label: [] for label in plan.labels}
    for group, (label, batches) in enumerate(zip(plan.group_labels, plan.batches_per_group, strict=True)):
        names = (BatchId(group=group, index=index) for index in range(batches))
        ordered = sorted((text_hash(str(name)), name) for name in names)
        of_label[label] += [(turn, digest, name) for turn, (digest, name) in enumerate(ordered)]
    return frozenset(
        name
        for turns in of_label.values()
        for _, _, name in sorted(turns)[: max(1, len(turns) // BATCHES_PER_FIRST)]
    )


def is_complete(example: SyntheticExample) -> bool:
    """True if a released example can be a reference text: not truncated, not blank, not short."""
    tokens = example.private_tokens + example.public_tokens + getattr(example, 'forced_tokens', 0)
    # Tokens are not counted (0) of a text that was given to votes on texts, and not sampled.
    is_long = not tokens or tokens >= LEAST_TOKENS
    return not example.truncated and bool(example.text.strip()) and is_long


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedReference:
    """The reference texts of each group, released by the first round.

    Attributes:
        texts_by_group: The texts of each group of the batch plan, at most M. Empty where the first
            round has no complete example; all later batches then use the public prompt.
    """

    texts_by_group: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, texts: Mapping[int, Iterable[str]], plan: BatchPlan, size: int) -> 'ReleasedReference':
        """Picks from the complete examples of the first round.

        Args:
            texts: Texts by the index of their group; groups without any may be missing. The `size`
                smallest of each group suffice.
            plan: The batch plan.
            size: M. A group with M texts of its own takes those. Another group takes its label's texts,
                and, if those are fewer than M, texts of other labels after them: these are of the genre
                too, and a reference of one or two texts is worse than the public prompt.
        """
        picks = [pick(texts.get(group, ()), size) for group in range(len(plan.group_names))]
        of_label: dict[str | None, tuple[str, ...]] = dict.fromkeys(plan.labels, ())
        for label, picked in zip(plan.group_labels, picks, strict=True):
            of_label[label] = pick((*of_label[label], *picked), size)
        of_all = pick(itertools.chain(*picks), size)
        filled = {
            label: tuple(dict.fromkeys((*picked, *of_all)))[:size] for label, picked in of_label.items()
        }
        return cls(
            texts_by_group=tuple(
                picked if len(picked) == size else filled[label]
                for label, picked in zip(plan.group_labels, picks, strict=True)
            )
        )

    def to_json(self) -> str:
        """The reference as JSON: the same text for the same reference."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + '\n'

    @classmethod
    def from_json(cls, text: str) -> 'ReleasedReference':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: The text is not the JSON of a reference.
        """
        value = json.loads(text)
        groups = value.get('texts_by_group') if isinstance(value, dict) and len(value) == 1 else None
        if not isinstance(groups, list) or not all(
            isinstance(texts, list) and all(isinstance(one, str) for one in texts) for texts in groups
        ):
            raise ValueError(
                'Expected reference texts by group, got another JSON value. Restore reference.json in the '
                'work directory.'
            )
        return cls(texts_by_group=tuple(tuple(texts) for texts in groups))
