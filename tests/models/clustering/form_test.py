"""The form of texts beside their content; what holds for all embedders is in embedder_test.py."""

import collections

import numpy as np
import pytest

from models.clustering import form
from models.clustering.centers import SHIPPED, ClusterSettings
from models.clustering.embedder import TfidfEmbedder
from models.clustering.form import FormEmbedder, features

CONTENT = TfidfEmbedder.read(SHIPPED)
TEXTS = [
    'What is the name of the river?',
    'The river has a name.',
    '"What did the team win?", they asked.',
    'TEAM WINS MATCH: 3-1',
    'the match\n\nwas won',
]


def likeness_of_forms(one: str, other: str) -> float:
    """The slow twin: features by their names, with no places that two could share."""
    found = []
    for text in (one, other):
        summed: dict[str, float] = collections.defaultdict(float)
        for name, value in features(text):
            summed[name] += value
        length = sum(value**2 for value in summed.values()) ** 0.5
        found.append({name: value / length for name, value in summed.items()})
    return sum(value * found[1].get(name, 0.0) for name, value in found[0].items())


def test_products_are_those_of_content_and_form() -> None:
    """But for features that share one of the places: two texts have some 20, so that most pairs have none."""
    vectors = FormEmbedder(CONTENT, 0.4).embed(TEXTS).astype(np.float64)
    content = CONTENT.embed(TEXTS).astype(np.float64)
    expected = 0.6 * content @ content.T + 0.4 * np.array(
        [[likeness_of_forms(one, other) for other in TEXTS] for one in TEXTS]
    )
    off = np.abs(vectors @ vectors.T - expected)
    assert np.median(off) < 1e-6 and off.max() < 0.1
    # Another share leads to others.
    assert np.median(np.abs(vectors @ vectors.T - content @ content.T)) > 0.01


def test_groups_weigh_alike() -> None:
    for text in TEXTS:
        of_group: dict[str, float] = collections.defaultdict(float)
        for name, value in features(text):
            group = name.split()[0]
            of_group['edge' if group in ('first', 'last') else group] += value**2
        assert of_group == pytest.approx({'word': 1, 'edge': 1, 'length': 1, 'mark': 1})


def test_form_tells_a_question_from_a_statement_on_the_same_thing() -> None:
    question, other_question, statement = (
        'What is the name of the river?', 'What is the price of the ticket?',
        'The name of the river was given.',
    )  # fmt: skip
    plain, both = CONTENT, FormEmbedder(CONTENT, 0.5)
    for embedder, nearest in ((plain, 2), (both, 1)):
        one, *others = embedder.embed([question, other_question, statement])
        assert int(np.argmax([one @ other for other in others])) + 1 == nearest


def test_a_length_between_two_powers_is_like_both() -> None:
    """Two texts of nearly the same length are nearly as alike as a text is to itself."""

    def lengths(text: str) -> dict[str, float]:
        return {name: value for name, value in features(text) if name.startswith('length')}

    def alike(one: int, other: int) -> float:
        first, second = lengths('a' * one), lengths('a' * other)
        return sum(value * second.get(name, 0.0) for name, value in first.items())

    assert alike(31, 33) > 0.8 and alike(32, 32) == 1 and alike(40, 44) > 0.9
    assert alike(10, 100) == 0


def test_a_text_that_the_content_is_unknown_of_stays_unknown() -> None:
    found = FormEmbedder(CONTENT, 0.25).embed(['zzzzzz?', 'The match was won.', ' '])
    assert not found[0].any() and found[1].any() and not found[2].any()


def test_share_and_content_are_in_the_fingerprint() -> None:
    found = {FormEmbedder(CONTENT, share).fingerprint for share in (0.25, 0.5)}
    assert len(found | {CONTENT.fingerprint}) == 3


@pytest.mark.parametrize('share', [0.0, 1.0, -0.1, float('nan')])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match='Expected 0 < share < 1, got share='):
        FormEmbedder(CONTENT, share)


def test_workers_load_it_where_a_share_is_given() -> None:
    assert ClusterSettings().load_embedder().fingerprint == CONTENT.fingerprint
    loaded = ClusterSettings(form_share=0.25).load_embedder()
    assert loaded.fingerprint == FormEmbedder(CONTENT, 0.25).fingerprint
    assert loaded.dimensions == CONTENT.dimensions + form.DIMENSIONS
