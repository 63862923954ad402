"""The models that can be loaded: which files are here, what each needs, and which prompt suits it."""

import dataclasses
import json
import os
import types
from collections.abc import Mapping

from models import bundled, fetched
from models.decoders import family
from models.decoders.device_memory import Memory
from pipeline import methods
from pipeline.asked import config
from pipeline.settings.prompt import Prompt

# The preset for weights that were tuned to follow instructions, beside that for weights as they were trained.
INSTRUCTION = 'instruction'
# Devices of launch/dataflow/profiles.py, the smaller ones first: bytes that JAX may take of each, of a GPU
# three quarters, and how many a machine has.
MACHINES: Mapping[str, Memory] = types.MappingProxyType(
    {
        'tpu-v5e': Memory(16 * 2**30, 1),
        'nvidia-l4': Memory(24 * 10**9 * 3 // 4, 1),
        'nvidia-a100': Memory(40 * 10**9 * 3 // 4, 1),
        'tpu-v6e': Memory(32 * 2**30, 1),
        'nvidia-a100-80gb': Memory(80 * 10**9 * 3 // 4, 1),
        'nvidia-h100': Memory(80 * 10**9 * 3 // 4, 1),
        'tpu-v5p': Memory(95 * 2**30, 4),
    }
)
# Settings of a run in which nothing but defaults decides the memory.
_DEFAULT_RUN = {'epsilon': 1.0, 'delta': 1e-6}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedModel:
    """A model that --model takes.

    Attributes:
        model: Its name.
        origin: Its makers' name for it.
        maker: Who trained it.
        terms: Under which terms it may be used.
        parameters: Number of weights.
        here: True if its files are where --model looks for them.
        checkpoint: Path of these files; null for a model whose files --checkpoint has to name.
        how_to_get: The way to get its files: a command, or in words.
        memory_float32: Bytes that weights and one batch of a run with default settings take at the least.
        memory_bfloat16: The same, with numbers of half the size.
        fits: Profiles of `dataflow.sh` whose machines hold that much in bfloat16.
        prompt: The preset that it gets where nobody chooses one.
        instruction_prompt: The preset for its instruction-tuned weights; null where there are none.
    """

    model: str
    origin: str
    maker: str
    terms: str
    parameters: int
    here: bool
    checkpoint: str | None
    how_to_get: str
    memory_float32: int
    memory_bfloat16: int
    fits: tuple[str, ...]
    prompt: str
    instruction_prompt: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelList:
    """All models.

    Attributes:
        models: In the order of their registration.
    """

    models: tuple[ListedModel, ...]

    def to_json(self) -> str:
        """The list as one JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2)


def model_list() -> ModelList:
    """Every model, with what is here of it; loads none."""
    return ModelList(models=tuple(map(_listed, family.model_names())))


def _listed(model: str) -> ListedModel:
    model_family = family.family_of(model)
    origin, known = model_family.origin(model), model_family.known_files(model)
    # A price needs no file: of a model that users bring, any name of a file with a tokenizer will do.
    place = {} if known is not None else {'checkpoint': f'{model}.gguf'}
    run = config.job_config(model=model, **place, **_DEFAULT_RUN)
    method = methods.of(run)
    solved = methods.solve(run)
    assert isinstance(run.method, Prompt)
    return ListedModel(
        model=model,
        origin=origin.name,
        maker=origin.maker,
        terms=origin.terms,
        parameters=model_family.models[model].num_parameters,
        here=known is not None and os.path.exists(known.checkpoint),
        checkpoint=None if known is None else known.checkpoint,
        how_to_get=_how_to_get(model),
        memory_float32=method.needed_memory(solved, 'float32'),
        memory_bfloat16=method.needed_memory(solved, 'bfloat16'),
        fits=tuple(
            name
            for name, machine in MACHINES.items()
            if method.needed_memory(solved, 'bfloat16', machine.devices) <= machine.bytes
        ),
        prompt=run.method.prompt_name,
        instruction_prompt=None if model == bundled.MODEL else INSTRUCTION,
    )


def _how_to_get(model: str) -> str:
    if model == bundled.MODEL:
        return 'comes with the package'
    if model == fetched.MODEL:
        return fetched.COMMAND
    return 'bring it: --checkpoint'
