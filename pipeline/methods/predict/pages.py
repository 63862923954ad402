"""The files beside the corpus that people read."""

from models.privacy.report import PrivacyReport
from pipeline.methods.predict.run import PredictionRun
from pipeline.pages import dataset_card, report_page
from transforms.run_files import CARD, REPORT_PAGE
from transforms.write import Files


def pages(run: PredictionRun, privacy_report: PrivacyReport) -> Files:
    """The report as a page, and the card of the corpus."""
    # What language other models write in nobody declared.
    languages = () if run.method.model != 'bundled' else ('en',)
    card = dataset_card.render_card(privacy_report, languages=languages, columns=run.columns.meanings)
    return {REPORT_PAGE: report_page.render_html(privacy_report).encode(), CARD: card.encode()}
