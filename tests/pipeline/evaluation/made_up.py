"""A made-up measure, all of it: what somebody writes who adds one."""

from typing import final

from pipeline.evaluation.measure import Chart, Figure, Findings, Measure, NotDefined, Progress, Sample, Series
from pipeline.evaluation.sources import Sources


@final
class Shouting(Measure):
    """Share of the texts that hold an exclamation mark, beside that of the records."""

    name = 'shouting'
    title = 'Shouting'
    question = 'Does the corpus shout more than the records do?'
    source = 'Made up, section 1'
    needs = frozenset({'records'})

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        records = sources.records
        assert records is not None  # needs
        loud = [text for text in sources.corpus.texts if '!' in text]
        if not loud:
            raise NotDefined('Nobody shouts.')
        shares = (len(loud) / len(sources.corpus), sum('!' in text for text in records.texts) / len(records))
        progress(1, 1)
        return Findings(
            settings={'mark': '!'},
            figures=(
                Figure(name='loud', label='Loud texts', value=shares[0], better='lower'),
                Figure(name='loud/records', label='Loud texts, of the records', value=shares[1]),
            ),
            charts=(
                Chart(
                    kind='bars',
                    title='Who shouts',
                    x_label='texts',
                    y_label='share of texts',
                    series=(Series(name='loud', x=('corpus', 'records'), y=shares),),
                ),
            ),
            samples=(Sample(caption='The first loud text', texts=(('corpus', loud[0]),)),),
        )
