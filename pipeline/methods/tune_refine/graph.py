"""The part of the graph that trains, samples and votes, and what it is built from."""

import dataclasses

import apache_beam as beam

from models.evolution.settings import EvolutionSettings
from models.finetuning.settings import TuningSettings
from models.records import Record
from models.sampling.settings import AdapterFile, SamplerSettings
from pipeline.methods import workers
from pipeline.methods.evolve import graph as of_votes
from pipeline.methods.fine_tune import graph as of_training
from pipeline.methods.method import Generated
from pipeline.methods.tune_refine.run import TunedVotingRun
from transforms.count import count_outside
from transforms.finetune import TrainText


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedVotingSettings:
    """Settings of workers, picklable and public: of those that train, and of those that sample and vote."""

    tuning: TuningSettings
    voting: EvolutionSettings


def prepare(run: TunedVotingRun) -> TunedVotingSettings:
    """Settings that workers train, sample and vote with; checks the files of the model, and the prompts."""
    tuning, voting = of_training.prepare(run.tuning), of_votes.prepare(run.voting)
    assert isinstance(voting.source, SamplerSettings)  # no endpoint has the adapter
    # Texts are asked for as the adapter was trained: with the instruction of a label, and no other text.
    source = dataclasses.replace(
        voting.source,
        adapter=AdapterFile(folder=run.work_dir, rank=tuning.lora_rank),
        max_prompt_tokens=tuning.longest_instruction,
    )
    return TunedVotingSettings(tuning=tuning, voting=dataclasses.replace(voting, source=source))


def generate(
    run: TunedVotingRun, prepared: TunedVotingSettings, records: beam.PCollection[Record]
) -> Generated:
    """Records -> the texts of an adapter, trained on them, that they favour."""
    trained = records | 'Training' >> TrainText(
        prepared.tuning,
        run.work_dir,
        text_limit=run.method.max_example_tokens * workers.CHARACTERS_PER_TOKEN,
        accelerator=run.runner.accelerator,
    )
    generated = of_votes.generate(run.voting, prepared.voting, records, after=trained)
    structure = prepared.tuning.structure
    if structure is None:
        return generated
    return dataclasses.replace(generated, counted=count_outside(records, structure))
