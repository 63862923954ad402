"""How many tokens a run of votes on texts decodes, how long it embeds, and in how much memory."""

from models.decoders.device import Dtype
from pipeline.methods.evolve import mechanism
from pipeline.methods.evolve.mechanism import Config

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}
# Seconds of one core for a text of some forty words, measured by tests/benchmarks/embedding_benchmark.py. A
# folder of weights is taken for MiniLM, and the language model is counted in tokens.
_EMBEDDING_SECONDS = {'tfidf': 0.0004, 'minilm': 0.012, 'decoder': 0.0}
_OTHER_EMBEDDER = 'minilm'


def decoded_tokens(config: Config) -> int:
    """Tokens of all texts up to their length cap, and of the prompts around texts of earlier rounds.

    Prompts of labels are read once, and an endpoint decodes elsewhere.
    """
    own, labels = config.method, len(config.input.label_values)
    tokens = 0
    if own.endpoint is None:
        tokens += mechanism.sampled_texts(config) * own.max_example_tokens
        tokens += labels * sum(mechanism.texts_per_label(config)[1:]) * own.max_prompt_tokens
    if own.resolved_embedder == 'decoder':
        tokens += round(_embedded_texts(config)) * own.max_prompt_tokens
    return tokens


def embedding_hours(config: Config) -> float:
    """Hours of one core for the texts of all records."""
    seconds = _EMBEDDING_SECONDS.get(config.method.resolved_embedder, _EMBEDDING_SECONDS[_OTHER_EMBEDDER])
    return _embedded_texts(config) * seconds / 3600


def _embedded_texts(config: Config) -> float:
    return (config.input.sampled_records or 0.0) * config.budget.examples_per_context


def needed_memory(config: Config, dtype: Dtype) -> int:
    """Bytes that weights and the texts of a batch take at the least."""
    own, item_bytes = config.method, _ITEM_BYTES[dtype]
    if own.endpoint is not None and own.resolved_embedder != 'decoder':
        return 0
    length = own.max_prompt_tokens + own.max_example_tokens
    cache = own.resolved_micro_batch_size * length * own.model_sizes.cache_bytes_per_token(item_bytes)
    return own.model_sizes.num_parameters * item_bytes + cache
