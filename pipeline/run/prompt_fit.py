"""The fit of weights and a prompt: weights that answer in turns need prompts in turns."""

from models.decoders import family
from models.decoders.tokenizer import START_OF_TURN
from models.prompt_templates import read_template
from pipeline.settings.prompt import Prompt


def turns_warning(settings: Prompt) -> str | None:
    """A warning where weights and prompt are a wrong pair; None where nothing tells that they are.

    A template that writes `<start_of_turn>` asks in turns. The files of weights that were tuned to answer in
    turns hold a chat template.
    """
    answers = family.family_of(settings.model).answers_turns(settings.model_files.checkpoint)
    asks = START_OF_TURN in read_template(settings.prompt_name).public
    if answers is None or answers == asks:
        return None
    prompt = settings.prompt_name
    if answers:
        return (
            f'The weights of model={settings.model!r} were tuned to answer in turns: their files hold a chat '
            f'template. prompt={prompt!r} has no turns. Try --prompt instruction.'
        )
    return (
        f'prompt={prompt!r} asks in turns, and the files of model={settings.model!r} hold no chat template: '
        'such weights continue documents. Try --prompt document, or bring instruction-tuned weights.'
    )
