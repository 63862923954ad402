"""Benchmark of masks: our automaton on the device, beside llguidance on the host behind a callback.

    python -m tests.benchmarks.mask_benchmark --model gemma3-270m --tokens 150 --rounds 3

Both take the schema of launch/demo/clinic_visit.json and the model's tokenizer, and walk the same random
tokens that both allow. `mask` is the mask of one state: ours on the whole vocabulary and on 1,024
candidates, theirs into a bitmask. `loop` is one compiled `while_loop` that samples from masked noise: with
our table, with an ordered callback to llguidance's matcher at every token, and without a mask. Times are
milliseconds of the process, which other work on the machine disturbs less than those of the clock. Prints
one JSON line.
"""

import argparse
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import llguidance
import numpy as np

from models.constraints import Constraint, Grammar
from models.decoders import family
from models.grammars import forced
from models.grammars.structure import Structure

SCHEMA = pathlib.Path(__file__).parents[2] / 'launch' / 'demo' / 'clinic_visit.json'
_CANDIDATES = 1024


def _milliseconds(run: Callable[..., object], *arguments: object) -> float:
    begun = time.process_time()
    jax.block_until_ready(run(*arguments))
    return 1e3 * (time.process_time() - begun)


def _matcher(text: str, pieces: Sequence[bytes], stop: frozenset[int]) -> Any:
    """llguidance's matcher of a schema, which cuts forced text into bytes."""

    class _Tokens:
        eos_token_id, bos_token_id, special_token_ids = min(stop), None, sorted(stop)
        # Every token needs bytes, and these are in no text.
        tokens = [piece or b'\xff<%d>' % index for index, piece in enumerate(pieces)]
        of_byte = {piece: index for index, piece in enumerate(pieces) if len(piece) == 1}

        def __call__(self, data: bytes) -> list[int]:
            return [self.of_byte[bytes([byte])] for byte in data]

    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Tokens()), n_vocab=len(pieces))
    options = {'whitespace_flexible': False}
    grammar = llguidance.LLMatcher.grammar_from_json_schema(text, overrides=options)
    found = llguidance.LLMatcher(tokenizer, grammar)
    if found.is_error():
        raise ValueError(f'Expected a schema that llguidance takes, got error={found.get_error()!r}.')
    return found


def _unpacked(bitmask: bytes, count: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bitmask, np.uint8), bitorder='little')[:count].astype(bool)


def masks(ours: Constraint, theirs: Any, stop: frozenset[int], tokens: int) -> dict[str, float]:
    """Median milliseconds of a mask, over a walk of tokens that both allow."""
    rng, state = np.random.default_rng(0), ours.start()
    whole = jax.jit(lambda state: ours.allowed(state))
    some = jax.jit(lambda state, ids: ours.allowed_among(state, ids))
    advance = jax.jit(lambda state, token: ours.advance(state, token))
    count = len(whole(state))
    ids = jnp.asarray(rng.choice(count, min(count, _CANDIDATES), replace=False), jnp.int32)
    jax.block_until_ready(some(state, ids))
    found: dict[str, list[float]] = {'whole vocabulary': [], 'candidates': [], 'llguidance': []}
    for _ in range(tokens):
        found['whole vocabulary'].append(_milliseconds(whole, state))
        found['candidates'].append(_milliseconds(some, state, ids))
        found['llguidance'].append(_milliseconds(theirs.compute_bitmask))
        both = np.flatnonzero(np.asarray(whole(state)) & _unpacked(theirs.compute_bitmask(), count))
        both = both[~np.isin(both, sorted(stop))]
        token = int(rng.choice(both)) if len(both) else -1
        if token < 0 or not theirs.consume_token(token) or theirs.is_stopped():
            theirs.reset()
            state = ours.start()
        else:
            state = advance(state, jnp.int32(token))
    return {name: round(statistics.median(times), 3) for name, times in found.items()}


def loops(ours: Constraint, theirs: Any, ends: np.ndarray, tokens: int, rounds: int) -> Mapping[str, float]:
    """Median milliseconds of a token in one compiled loop, by what masks it."""
    count, is_end = len(ends), jnp.asarray(ends)

    def of_host(token: np.ndarray) -> np.ndarray:
        if int(token) >= 0:
            theirs.consume_token(int(token))
        if theirs.is_stopped() or theirs.is_error():
            theirs.reset()
        return _unpacked(theirs.compute_bitmask(), count)

    def looped(
        mask_of: Callable[[Any, jax.Array], jax.Array], next_of: Callable[[Any, jax.Array], Any], first: Any
    ) -> Callable[[], object]:
        def step(carry: Any) -> Any:
            place, state, token, key = carry
            key, drawn = jax.random.split(key)
            noise = jax.random.uniform(drawn, (count,))
            token = jnp.argmax(jnp.where(mask_of(state, token), noise, -1)).astype(jnp.int32)
            return place + 1, next_of(state, token), token, key

        @jax.jit
        def run(key: jax.Array) -> jax.Array:
            start = (jnp.int32(0), first, jnp.int32(-1), key)
            return jax.lax.while_loop(lambda carry: carry[0] < tokens, step, start)[2]

        return lambda: run(jax.random.key(0))

    shape = jax.ShapeDtypeStruct((count,), jnp.bool_)
    runs = {
        'no mask': looped(lambda _, __: jnp.ones(count, bool), lambda state, _: state, ()),
        'table': looped(
            lambda state, _: ours.allowed(state),
            lambda state, token: jnp.where(is_end[token], ours.start(), ours.advance(state, token)),
            ours.start(),
        ),
        'callback': looped(
            lambda _, token: jax.experimental.io_callback(of_host, shape, token, ordered=True),
            lambda state, _: state,
            (),
        ),
    }
    for run in runs.values():
        jax.block_until_ready(run())
    times = {name: [_milliseconds(run) / tokens for _ in range(rounds)] for name, run in runs.items()}
    return {name: round(statistics.median(of_one), 3) for name, of_one in times.items()}


def main() -> None:
    """Runs the benchmark and prints its line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--model', default='gemma3-270m')
    parser.add_argument('--tokens', type=int, default=150)
    parser.add_argument('--rounds', type=int, default=3)
    settings = parser.parse_args()
    own = family.family_of(settings.model)
    files = own.known_files(settings.model)
    if files is None:
        raise ValueError(f'Expected a model whose files are here, got model={settings.model!r}.')
    tokenizer, text = own.load_tokenizer(settings.model, files.tokenizer), SCHEMA.read_text()
    pieces, released = tokenizer.token_bytes(), tokenizer.released_token_mask()
    stop, automaton = frozenset(tokenizer.stop_tokens), Structure(json_schema=text).automaton
    table = forced.forced_table(automaton, tokenizer, pieces, tokens=released, stop_tokens=stop)
    ours = Grammar.of(automaton, pieces, tokens=released, stop_tokens=stop, forced_tokens=table)
    theirs, ends = _matcher(text, pieces, stop), np.isin(np.arange(len(released)), sorted(stop))
    line: dict[str, Any] = {
        'model': settings.model, 'vocabulary': len(released), 'states': automaton.states,
        'device': jax.devices()[0].platform, 'mask': masks(ours, theirs, stop, settings.tokens),
    }  # fmt: skip
    theirs.reset()
    line['loop'] = loops(ours, theirs, ends, settings.tokens, settings.rounds)
    print(json.dumps(line))


if __name__ == '__main__':
    main()
