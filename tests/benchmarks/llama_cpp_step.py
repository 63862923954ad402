"""llama.cpp's batched decoding of a GGUF file: one JSON line with the seconds of a prefill and of a step.

Run by `decoding_benchmark`, by a Python that has llama-cpp-python and NumPy and nothing of this
project. Two threads, every row of a sequence of its own, the output layer for every row of a step.

    python llama_cpp_step.py FILE.gguf CONTEXTS PROMPT_TOKENS NEW_TOKENS
"""

import ctypes
import json
import statistics
import sys
import time

import llama_cpp
import numpy as np

THREADS, BATCH = 2, 2048


def main() -> None:
    """Measures once and prints the line."""
    path, contexts, prompt_tokens, new_tokens = sys.argv[1], *map(int, sys.argv[2:])
    llama_cpp.llama_backend_init()
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = contexts * (prompt_tokens + new_tokens)
    params.n_batch, params.n_seq_max = BATCH, contexts
    params.n_threads = params.n_threads_batch = THREADS
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
    vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    prompts = np.random.default_rng(0).integers(110, vocab_size, (contexts, prompt_tokens))

    def decode(tokens: list[tuple[int, int, int, bool]]) -> float:
        batch.n_tokens = len(tokens)
        for index, (token, position, sequence, wants_logits) in enumerate(tokens):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = wants_logits
        begin = time.perf_counter()
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError(f'Expected a batch that fits, got tokens={len(tokens)}. Lower the contexts.')
        llama_cpp.llama_get_logits(context)[0]  # waits for the batch
        return time.perf_counter() - begin

    together = BATCH // prompt_tokens
    prefill = sum(
        decode(
            [
                (int(token), position, row, position + 1 == prompt_tokens)
                for row in range(first, min(first + together, contexts))
                for position, token in enumerate(prompts[row])
            ]
        )
        for first in range(0, contexts, together)
    )
    steps = [
        decode([(1000 + step, prompt_tokens + step, row, True) for row in range(contexts)])
        for step in range(new_tokens)
    ]
    print(json.dumps({'prefill': prefill, 'step': statistics.median(steps)}))


if __name__ == '__main__':
    main()
