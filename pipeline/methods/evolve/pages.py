"""The files of a release of votes on texts: what people read, and every list with its noisy votes."""

from apache_beam.io.filesystems import FileSystems

from models.evolution.settings import EvolutionSettings
from models.privacy.report import PrivacyReport
from pipeline.methods.evolve.run import VotingRun
from pipeline.pages import dataset_card, report_page
from transforms.durable import read_file
from transforms.evolve.files import candidates_name, votes_name
from transforms.run_files import CARD, REPORT_PAGE, ROUNDS_FOLDER
from transforms.write import Files


def pages(run: VotingRun, prepared: EvolutionSettings, privacy_report: PrivacyReport) -> Files:
    """The files beside the corpus, by name."""
    rounds = run.params.rounds
    names = [name(number) for number in range(1, rounds + 1) for name in (candidates_name, votes_name)]
    if prepared.unvoted_per_label:
        names.append(candidates_name(rounds + 1))
    folder = FileSystems.join(run.work_dir, ROUNDS_FOLDER)
    return {
        REPORT_PAGE: report_page.render_html(privacy_report).encode(),
        CARD: dataset_card.render_card(privacy_report, columns=run.columns.meanings).encode(),
        **{f'{ROUNDS_FOLDER}/{name}': read_file(FileSystems.join(folder, name)) for name in names},
    }
