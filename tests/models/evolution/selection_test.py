"""Selection by released votes: fields, labels, survivors and parents against their slow twins."""

import fractions

import numpy as np
import pytest

from models.evolution import selection
from models.evolution.selection import VoteField
from tests.oracles import evolution as slow


def unit_rows(number: int, dimensions: int = 5, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((number, dimensions))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def noisy_votes(embeddings: np.ndarray, sigma: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """True and noisy votes of three labels: one smooth, one constant, one rough."""
    rng = np.random.default_rng(seed)
    smooth = 20 * np.exp(2 * embeddings[:, 0])
    true = np.stack([smooth, np.full(len(smooth), 9.0), rng.poisson(9, len(smooth))])
    return true, true + sigma * rng.standard_normal(true.shape)


# ---------------------------------------------------------------- field


def test_field_is_the_slow_twins_at_its_most_likely_width_and_strength(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embeddings, new = unit_rows(12), unit_rows(4, seed=9)
    _, votes = noisy_votes(embeddings, sigma=3.0)
    shares, of_new = np.random.default_rng(4).random((2, 3, 12))
    of_new = of_new[:, :4]
    field = VoteField.of(votes, embeddings, 3.0, shares)
    found = field.at(new, of_new)
    assert field.leads == pytest.approx(slow.leads(votes, shares, 3.0))
    for label, (row, lead) in enumerate(zip(votes, field.leads, strict=True)):
        row = row - lead * shares[label]
        choices = [
            (width, strength * 9.0) for width in selection._WIDTHS for strength in selection._STRENGTHS
        ]
        likelihoods = [
            slow.log_likelihood(row, embeddings, sigma=3.0, width=width, strength=strength)
            for width, strength in choices
        ]
        width, strength = choices[int(np.argmax(likelihoods))]
        expected = slow.vote_field(row, embeddings, new, sigma=3.0, width=width, strength=strength)
        expected = np.array(expected) + lead * of_new[label]
        assert found[label] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_field_is_nearer_the_truth_than_the_votes_and_shrinks_noise_to_its_mean() -> None:
    embeddings = unit_rows(200)
    true, votes = noisy_votes(embeddings, sigma=8.0)
    found = VoteField.of(votes, embeddings, 8.0, np.zeros((3, 200))).at(embeddings, np.zeros((3, 200)))
    errors = np.square(found - true).mean(axis=1)
    assert (errors < 64 / 4).all()
    # The second label's votes are the same everywhere, and what is left of the noise is small.
    assert found[1].std() < 1.0


def test_field_of_few_or_equal_texts_is_finite() -> None:
    for embeddings in (unit_rows(1), np.repeat(unit_rows(1), 5, axis=0), np.zeros((3, 5), np.float32)):
        votes = np.arange(2.0 * len(embeddings)).reshape(2, -1)
        asked = np.zeros(len(embeddings), int)
        shares = selection.asked_shares(asked, 2, embeddings)
        found = VoteField.of(votes, embeddings, 1.0, shares).at(unit_rows(3), np.zeros((2, 3)))
        assert np.isfinite(found).all()


def test_field_refuses_votes_of_another_list_and_noise_of_no_scale() -> None:
    with pytest.raises(ValueError, match='embeddings=4'):
        VoteField.of(np.zeros((2, 3)), unit_rows(4), 1.0, np.zeros((2, 4)))
    with pytest.raises(ValueError, match='sigma=0'):
        VoteField.of(np.zeros((2, 4)), unit_rows(4), 0, np.zeros((2, 4)))


def test_asked_shares_are_the_slow_twins_at_the_best_width_and_ridge() -> None:
    embeddings, asked = unit_rows(14), np.array([0, 1, -1, 0, 1, 1, 0] * 2)
    found = selection.asked_shares(asked, 2, embeddings)
    choices = {}
    for width in selection._WIDTHS_OF_ASKED:
        for ridge in selection._RIDGES:
            table = [
                [
                    slow.asked_share(asked, label, embeddings, text, width=width, ridge=ridge)
                    for text in range(14)
                ]
                for label in range(2)
            ]
            error = np.square(np.array(table) - (asked == np.arange(2)[:, None])).sum()
            choices[error] = np.clip(table, 0, 1)
    assert found == pytest.approx(choices[min(choices)], abs=1e-6)


def test_what_was_asked_for_around_texts_finds_their_labels_in_noise() -> None:
    rng, labels = np.random.default_rng(5), 30
    centres = unit_rows(labels, 12, seed=3)
    of_text = np.repeat(np.arange(labels), 20)
    rows = centres[of_text] + 0.15 * rng.standard_normal((len(of_text), 12))
    embeddings = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    # The source writes the label that it is asked for half of the time.
    asked = np.where(rng.random(len(of_text)) < 0.5, of_text, rng.integers(labels, size=len(of_text)))
    votes = 2.0 + 3.0 * (of_text == np.arange(labels)[:, None])
    votes = votes + 5.0 * rng.standard_normal(votes.shape)
    shares = selection.asked_shares(asked, labels, embeddings)
    nothing = np.zeros_like(votes)
    right = [
        float(
            np.mean(VoteField.of(votes, embeddings, 5.0, each).at(embeddings, each).argmax(axis=0) == of_text)
        )
        for each in (shares, nothing)
    ]
    assert right[0] > 0.9 and right[0] > right[1] + 0.02
    # Votes that have nothing to do with what was asked for have no lead to speak of.
    alone = selection.leads_of(2.0 + 5.0 * rng.standard_normal(votes.shape), 5.0, shares)
    assert alone.mean() < 0.3 < selection.leads_of(votes, 5.0, shares).mean()


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize('seed', range(5))
def test_label_scores_are_the_slow_twins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.normal(2, 5, (4, 30))
    counts[:, 3] = -1.0
    totals = np.array([900.0, 60.0, -40.0, 3.0])
    found = selection.label_scores(counts, totals, 4.0)
    assert found == pytest.approx(np.array(slow.label_scores(counts.tolist(), totals.tolist(), 4.0)))
    assert found.sum(axis=0) == pytest.approx(np.ones(30))
    assert found[:, 3] == pytest.approx(np.full(4, 0.25))


def test_rare_label_takes_the_texts_that_favour_it() -> None:
    counts = np.array([[50.0, 900.0], [40.0, 0.0]])
    scores = selection.label_scores(counts, np.array([950.0, 40.0]), 1.0)
    assert selection.labels_of(scores).tolist() == [1, 0]
    assert selection.clarity(scores)[1] == 1.0


# ---------------------------------------------------------------- near-duplicates


def test_distinct_texts_are_the_slow_twins() -> None:
    rng = np.random.default_rng(3)
    texts = [
        ' '.join(rng.choice(['Oil', 'rises', 'a', '!', '2', 'www.a.org', 'a(HTTPS://b/c)']) for _ in range(2))
        for _ in range(60)
    ]
    embeddings = unit_rows(60, 3)
    for most_alike in (0.7, 0.95, 1.0):
        found = selection.distinct(texts, embeddings, most_alike=most_alike)
        assert found.tolist() == slow.distinct(texts, embeddings, most_alike)
        assert 0 < found.sum() < 60


def test_case_and_marks_tell_no_texts_apart_and_a_text_needs_a_word() -> None:
    texts = ['Oil rises.', 'oil  RISES', '--', '', 'rises oil']
    found = selection.distinct(texts, np.eye(5, dtype=np.float32))
    assert found.tolist() == [True, False, False, False, True]


def test_a_web_address_alone_is_no_text() -> None:
    texts = ['http://www.example.org/a-b.html', 'www.example.org', 'Oil: www.example.org', 'Oil!', 'awww']
    found = selection.distinct(texts, np.eye(5, dtype=np.float32))
    assert found.tolist() == [False, False, True, False, True]


# ---------------------------------------------------------------- survivors and parents


@pytest.mark.parametrize('seed', range(20))
def test_survivors_are_the_slow_twins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(-3, 12, int(rng.integers(1, 15)))
    number = int(rng.integers(0, 20))
    assert selection.survivors(counts, number).tolist() == slow.survivors(counts.tolist(), number)


@pytest.mark.parametrize('number', [1, 2, 7, 8, 9, 31, 40, 200])
def test_what_is_favoured_is_the_slow_twins(number: int) -> None:
    counts = np.random.default_rng(number).integers(-5, 60, number)
    for least in (1, 8):
        found = selection.favoured(counts, least=least)
        assert found.tolist() == slow.favoured(counts.tolist(), fractions.Fraction(1, 4), least)
        assert (found >= 0).all()
        if len(set(counts.tolist())) == number > 4 * least:
            assert (found > 0).sum() == round(number / 4)


def test_of_votes_that_are_spread_wide_the_best_survive() -> None:
    """Without what all have, texts that nobody is nearest to would survive nearly as often as the best."""
    counts = np.concatenate([np.full(90, 30.0), np.full(10, 60.0)])
    of_best = [
        (selection.survivors(weights, 100) >= 90).mean() for weights in (selection.favoured(counts), counts)
    ]
    assert of_best[0] == 1 and of_best[1] < 0.2


def test_text_survives_as_often_as_its_share_says() -> None:
    counts = np.random.default_rng(0).exponential(size=40)
    times = np.bincount(selection.survivors(counts, 100), minlength=40)
    expected = 100 * counts / counts.sum()
    assert (np.abs(times - expected) < 1).all()


def test_prompts_show_different_survivors_the_leading_one_last_and_every_one_leads() -> None:
    embeddings = unit_rows(30)
    chosen = np.array([2, 2, 2, 5, 7, 11, 13, 17, 19, 23])
    found = selection.parents(chosen, embeddings, prompts=20, shots=3, seed=(1, 2))
    assert all(len(set(prompt)) == 3 for prompt in found)
    assert sorted(prompt[-1] for prompt in found) == sorted([*chosen, *chosen])
    assert found == selection.parents(chosen, embeddings, prompts=20, shots=3, seed=(1, 2))
    assert found != selection.parents(chosen, embeddings, prompts=20, shots=3, seed=(1, 3))
    for *others, lead in found:
        alike = sorted(float(embeddings[one] @ embeddings[lead]) for one in set(chosen.tolist()) - {lead})
        assert all(float(embeddings[other] @ embeddings[lead]) <= alike[len(alike) // 2] for other in others)


def test_one_survivor_is_shown_alone() -> None:
    assert selection.parents(np.array([4]), unit_rows(5), prompts=2, shots=3, seed=(0,)) == [(4,), (4,)]


# ---------------------------------------------------------------- corpus


@pytest.mark.parametrize('labels', [1, 2, 4])
def test_corpus_is_the_slow_twins(labels: int) -> None:
    rng = np.random.default_rng(labels)
    scores = rng.dirichlet(np.ones(labels), 40).T
    counts = rng.normal(3, 3, (labels, 40))
    embeddings = unit_rows(40)
    fit = selection.fitness(scores, counts)
    assert fit == pytest.approx(slow.fitness(scores.tolist(), counts.tolist()))
    numbers = [3, 20, 0, 5][:labels]
    for variety in (0.0, 0.4):
        places, found = selection.corpus(scores, numbers, fitness=fit, embeddings=embeddings, variety=variety)
        expected = slow.corpus(scores.tolist(), numbers, fit.tolist(), embeddings.tolist(), variety)
        assert list(zip(places.tolist(), found.tolist(), strict=True)) == expected
        assert len(set(places.tolist())) == len(places)


def test_a_text_like_a_chosen_one_gives_way_to_one_that_is_a_little_less_fit() -> None:
    embeddings = np.array([[1.0, 0.0], [0.96, 0.28], [0.0, 1.0]])
    fit = np.array([1.0, 0.9, 0.8])
    for variety, expected in ((0.0, [0, 1]), (0.4, [0, 2])):
        places, labels = selection.corpus(
            np.ones((1, 3)), (2,), fitness=fit, embeddings=embeddings, variety=variety
        )
        assert places.tolist() == expected and labels.tolist() == [0, 0]


def test_without_a_vote_a_label_still_has_its_texts() -> None:
    places, labels = selection.corpus(
        np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), (1, 3), fitness=np.zeros(3), embeddings=unit_rows(3)
    )
    assert (places.tolist(), labels.tolist()) == ([0, 2], [0, 1])


def test_text_that_hardly_any_record_is_near_is_less_fit_than_one_that_many_are_near() -> None:
    scores = np.array([[0.9, 0.8, 0.5], [0.1, 0.2, 0.5]])
    counts = np.array([[1.0, 40.0, 90.0], [0.0, 10.0, 90.0]])
    assert np.argmax(selection.fitness(scores, counts)) == 1
