"""Writes what llama.cpp computes from a GGUF file: an independent tokenizer, dequantizer and decoder.

    python -m venv /tmp/llama && /tmp/llama/bin/pip install llama-cpp-python==0.3.36
    /tmp/llama/bin/python tests/models/decoders/gemma/llama_cpp_reference.py FILE.gguf \\
        > tests/models/decoders/gemma/llama_cpp_reference.json

The package has no wheels: it is compiled, in some ten minutes. On a CPU llama.cpp rounds the
activations to eight bits before each product with quantized weights. So its own
dequantizer first writes the file out in float32, and that is what is run: float32 weights,
activations, keys and values, without flash attention. What it gives with the file as it is
(`quantized`) is kept too, to show how far the rounding alone moves the numbers.
"""

import argparse
import ctypes
import hashlib
import json
import math
import pathlib
import tempfile

import llama_cpp

TOP = 10
FLOAT32_FILE, FLOAT32_TYPE = 0, 0  # LLAMA_FTYPE_ALL_F32, GGML_TYPE_F32
PROMPTS = (
    'The capital of France is',
    'Water boils at a temperature of',
    'Abstracts of medical papers, one after another.\n\nTopic: heart disease\nAbstract:',
    'Dear Ms Okafor,\n\nThank you for your letter of',
    'Two plus two is four, and three plus three is',
    'def add(left, right):\n    return',
    'The recipe asks for 200 grams of flour, two eggs and a pinch of',
    'Yesterday the council of Little Wexcombe voted to close the',
    'Q: Who wrote the play Hamlet?\nA:',
    'Once upon a time there was a fox who',
    'The patient, a 54-year-old man, presented with chest pain and',
    'Review: the soup was cold and the waiter was rude. Stars:',
    '<table><tr><td>Name</td><td>',
    '1, 2, 3, 5, 8, 13,',
    'Our flight to Nairobi was delayed because',
    'In 1969 the first humans walked on the',
    'The opposite of hot is',
    '{"name": "Ada", "age":',
    'The old lighthouse keeper climbed the stairs, lit the lamp and',
    'Shares of the company fell by nine percent on Tuesday after it said that its profit for the year '
    'would be',
)  # fmt: skip


def write_float32(source: pathlib.Path, target: pathlib.Path) -> None:
    """Dequantizes a file with llama.cpp's own code."""
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = FLOAT32_FILE
    options.allow_requantize = True
    options.nthread = 2
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(options))
    if code:
        raise SystemExit(f'Expected llama.cpp to dequantize {source}, got code={code}.')


def predictions(path: pathlib.Path) -> list[dict[str, object]]:
    """Each prompt's ids, and the most likely next tokens with their log-probabilities."""
    model = llama_cpp.Llama(
        str(path), n_ctx=256, n_batch=256, n_threads=2, seed=0, verbose=False, flash_attn=False,
        type_k=FLOAT32_TYPE, type_v=FLOAT32_TYPE,
    )  # fmt: skip
    results = []
    for prompt in PROMPTS:
        # Control strings would be spelt out; none is in the prompts.
        tokens = model.tokenize(prompt.encode(), add_bos=True, special=False)
        model.reset()
        model.eval(tokens)
        pointer = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        logits = pointer[: model.n_vocab()]
        highest = max(logits)
        total = highest + math.log(math.fsum(math.exp(logit - highest) for logit in logits))
        best = sorted(range(len(logits)), key=lambda index: -logits[index])[:TOP]
        results.append({
            'prompt': prompt,
            'tokens': tokens,
            'top': [[index, round(logits[index] - total, 5)] for index in best],
        })  # fmt: skip
    return results


def main() -> None:
    """Prints the reference as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('file', type=pathlib.Path)
    path = parser.parse_args().file
    with path.open('rb') as file:
        digest = hashlib.file_digest(file, 'sha256').hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder) / 'float32.gguf'
        write_float32(path, plain)
        float32 = predictions(plain)
    reference = {
        'sha256': digest,
        'llama_cpp_python': llama_cpp.__version__,
        'float32': float32,
        'quantized': [{'top': found['top']} for found in predictions(path)],
    }
    lines = [f'  {json.dumps(key)}: ' + (
        json.dumps(value) if isinstance(value, str)
        else '[\n' + ',\n'.join(f'    {json.dumps(item)}' for item in value) + '\n  ]'
    ) for key, value in reference.items()]  # fmt: skip
    print('{\n' + ',\n'.join(lines) + '\n}')


if __name__ == '__main__':
    main()
