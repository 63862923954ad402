"""Trains the bundled model: tokenizer, weights, and the card that describes them.

    python -m tools.bundled.train --data ../shared/data --work-dir build/bundled

The model is a few-shot imitator. A training document is one topic's texts packed
one after another in the very prompt format of the job (`models.prompts`, preset
`pretrained`), so that what the model continues depends on what the prompt shows;
one document in six holds JSON records under a schema instead. Training
checkpoints every few minutes and resumes from the last one; the documents of step
i are a function of (seed, i), so a resumed run sees the same data.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import pickle
import re
import shutil
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import sentencepiece

from models.decoders.gemma import architectures
from models.decoders.gemma import library as gemma
from tools.bundled import corpus

ARCHITECTURE = architectures.ARCHITECTURES['bundled']
SEQUENCE_LENGTH = 512
SEQUENCES_PER_STEP = 16
FENCE = '```'
# Gemma 3's order: pad, eos, bos, unk, then mask and unused ids up to the turn
# markers at 105 and 106. The fence and the newlines are single tokens in Gemma's
# own vocabulary too.
_USER_SYMBOLS = (
    ['<mask>', '[multimodal]'] + [f'<unused{i}>' for i in range(99)]
    + ['<start_of_turn>', '<end_of_turn>', '\n', '\n\n', FENCE]
)  # fmt: skip


def train_tokenizer(topics: list[corpus.Topic], path: pathlib.Path) -> None:
    """Trains the SentencePiece model with Gemma's special ids.

    Args:
        topics: The public texts.
        path: Path of the `.model` file.
    """
    rng = np.random.default_rng(0)
    lines = []
    for topic in topics:
        share = 60 if topic.texts[0].source == 'novels' else len(topic.texts)
        for index in rng.permutation(len(topic.texts))[:share]:
            text = ' '.join(topic.texts[index].sentences[:8])[:1500]
            lines.append(text)
            if index % 5 == 0:
                lines.append(json_records([topic.texts[index]], topic, rng)[0])
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_prefix=str(path.with_suffix('')),
        vocab_size=ARCHITECTURE.num_embed,
        model_type='unigram',
        pad_id=0, eos_id=1, bos_id=2, unk_id=3,
        user_defined_symbols=_USER_SYMBOLS,
        byte_fallback=True, split_digits=True, hard_vocab_limit=False,
        normalization_rule_name='identity', add_dummy_prefix=False,
        remove_extra_whitespaces=False, character_coverage=0.9995,
        input_sentence_size=200_000, num_threads=2, max_sentence_length=8192,
        minloglevel=2,
    )  # fmt: skip


_FIELD_NAMES = {
    'title': ('title', 'name', 'heading', 'subject'),
    'year': ('year', 'date', 'since'),
    'people': ('cast', 'people', 'names', 'members'),
    'topics': ('genres', 'topics', 'tags', 'keywords'),
    'link': ('href', 'link', 'slug'),
    'text': ('extract', 'summary', 'text', 'description', 'abstract'),
}
_FIELD_TYPES = {
    'title': 'str', 'year': 'int', 'people': ['str'], 'topics': ['str'],
    'link': 'str', 'text': 'str',
}  # fmt: skip


def json_records(texts: list[corpus.PublicText], topic: corpus.Topic, rng: np.random.Generator) -> list[str]:
    """Renders texts as JSON records of one random schema, the schema first.

    Returns:
        `1 + len(texts)` strings: the schema, then a record for each text. Field
        names and their order vary between calls, so that a record's fields can
        only be known from the schema or the records before it.
    """
    kinds = [k for k in _FIELD_NAMES if k == 'text' or rng.random() < 0.7]
    if rng.random() < 0.3:
        rng.shuffle(kinds)
    names = {k: str(rng.choice(_FIELD_NAMES[k])) for k in kinds}
    rows = [json.dumps({names[k]: _FIELD_TYPES[k] for k in kinds})]
    for text in texts:
        body = ' '.join(text.sentences[:2])[:300]
        capitalised = re.findall(r'(?<=[a-z,] )[A-Z][a-z]+ [A-Z][a-z]+', ' '.join(text.sentences))
        title = text.title or ' '.join(body.split()[:3])
        year = re.search(r'\b(1[5-9]|20)\d\d\b', body)
        values = {
            'title': title,
            'year': int(year.group()) if year else int(rng.integers(1900, 2020)),
            'people': list(dict.fromkeys(capitalised))[: int(rng.integers(1, 6))],
            'topics': [str(w) for w in rng.permutation(topic.keywords)[: int(rng.integers(1, 3))]],
            'link': title.replace(' ', '_'),
            'text': body,
        }
        rows.append(json.dumps({names[k]: values[k] for k in kinds}, ensure_ascii=False))
    return rows


@dataclasses.dataclass
class Documents:
    """Few-shot documents as token ids, drawn step by step.

    Attributes:
        topics: Topics with their texts tokenized, sentence by sentence.
        tokenizer: The trained SentencePiece model.
    """

    topics: list[corpus.Topic]
    tokenizer: sentencepiece.SentencePieceProcessor

    def __post_init__(self) -> None:
        encode = self.tokenizer.EncodeAsIds
        self._sentences: dict[int, list[list[int]]] = {}
        self._open, self._close = encode(f'{FENCE}\n'), encode(f'\n{FENCE}\n\n')
        weights = []
        for topic in self.topics:
            source = topic.texts[0].source
            size = len(topic.texts) ** 0.7
            weights.append(size * (0.25 if source == 'novels' else 1.0))
        self._weights = np.array(weights) / np.sum(weights)

    def _ids(self, text: corpus.PublicText) -> list[list[int]]:
        """The text's sentences as ids; all but the first carry a leading space."""
        ids = self._sentences.get(id(text))
        if ids is None:
            ids = [self.tokenizer.EncodeAsIds((' ' if i else '') + s)
                   for i, s in enumerate(text.sentences[:40])]  # fmt: skip
            self._sentences[id(text)] = ids
        return ids

    def excerpt(self, text: corpus.PublicText, rng: np.random.Generator) -> list[int]:
        """A run of whole sentences of 15 to about 100 tokens, mostly the opening."""
        sentences = self._ids(text)
        start = 0 if rng.random() < 0.6 else int(rng.integers(len(sentences)))
        target = int(rng.integers(15, 90))
        ids = list(sentences[start])
        if start:  # no leading space at the start of a text
            ids = self.tokenizer.EncodeAsIds(text.sentences[start])
        for sentence in sentences[start + 1 :]:
            if len(ids) >= target:
                break
            ids += sentence
        return ids[:120]

    def block(self, ids: list[int], label: str | None) -> list[int]:
        """One example of the prompt format: label line, fence, text, fence."""
        head = self.tokenizer.EncodeAsIds(f'{label}\n') if label else []
        return head + self._open + ids + self._close

    def document(self, rng: np.random.Generator, *, held_out: bool = False) -> np.ndarray:
        """One document of one topic, `[SEQUENCE_LENGTH + 1]` int32, 0 is padding."""
        while True:
            topic = self.topics[rng.choice(len(self.topics), p=self._weights)]
            texts = [t for t in topic.texts if t.held_out == held_out]
            if len(texts) >= (3 if held_out else 8):
                break
        order = rng.permutation(len(texts))[:24]
        if topic.texts[0].source == 'novels':  # passages near one another
            first = int(rng.integers(max(1, len(texts) - 24)))
            order = first + rng.permutation(min(24, len(texts)))
        label = str(rng.choice(topic.keywords)) if rng.random() < 0.6 else None
        ids = [self.tokenizer.bos_id()]
        if topic.texts[0].source != 'novels' and rng.random() < 0.18:
            rows = json_records([texts[i] for i in order[:6]], topic, rng)
            for row in rows[int(rng.random() < 0.5) :]:
                ids += self.block(self.tokenizer.EncodeAsIds(row), None)
        else:
            for i in order:
                ids += self.block(self.excerpt(texts[i], rng), label)
                if len(ids) > SEQUENCE_LENGTH:
                    break
        document = np.zeros(SEQUENCE_LENGTH + 1, np.int32)
        document[: len(ids)] = ids[: SEQUENCE_LENGTH + 1]
        return document

    def step(self, seed: int, index: int) -> np.ndarray:
        """The documents of training step `index`: `[SEQUENCES_PER_STEP, L + 1]`."""
        rng = np.random.default_rng([seed, index])
        return np.stack([self.document(rng) for _ in range(SEQUENCES_PER_STEP)])

    def held_out(self, count: int) -> np.ndarray:
        """`count` documents of texts that training never shows."""
        rng = np.random.default_rng(12345)
        return np.stack([self.document(rng, held_out=True) for _ in range(count)])


def token_losses(model: Any, params: Any, tokens: jax.Array) -> jax.Array:
    """Cross entropy of every next token in nats, `[B L]`; padding counts 0."""
    cast = jax.tree.map(lambda x: x.astype(model.dtype), params)
    # An explicit causal mask: padding is on the right, so no token sees it.
    length = tokens.shape[1] - 1
    causal = jnp.broadcast_to(jnp.tril(jnp.ones((length, length), bool)), (len(tokens), length, length))
    positions = jnp.broadcast_to(jnp.arange(length), (len(tokens), length))
    logits = model.apply({'params': cast}, tokens[:, :-1], positions=positions, attention_mask=causal).logits
    losses = optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), tokens[:, 1:])
    return jnp.where(tokens[:, 1:] == 0, 0.0, losses)


def mean_loss(model: Any, params: Any, tokens: jax.Array) -> jax.Array:
    """Mean cross entropy per token, in nats."""
    return token_losses(model, params, tokens).sum() / (tokens[:, 1:] != 0).sum()


def _muon_dimensions(params: Any) -> Any:
    """Input and output axes of each weight; None leaves it to Adam."""
    dims = optax.contrib.MuonDimensionNumbers

    def spec(path: Any, leaf: jax.Array) -> Any:
        name = jax.tree_util.keystr(path)
        if leaf.ndim < 2 or 'embedder' in name:
            return None
        if 'kv_einsum' in name:  # [2 K D H]
            return dims(reduction_axis=2, output_axis=3)
        if 'attn_vec_einsum' in name:  # [N H D]
            return dims(reduction_axis=(0, 1), output_axis=2)
        if 'q_einsum' in name:  # [N D H]
            return dims(reduction_axis=1, output_axis=2)
        if 'gating' in name:  # [2 D F]
            return dims(reduction_axis=1, output_axis=2)
        return dims()  # linear [F D]

    return jax.tree_util.tree_map_with_path(spec, params)


def make_optimizer(steps: int) -> optax.GradientTransformation:
    """Muon for the matrices, Adam for the rest, warm-up and linear decay."""

    def schedule(peak: float) -> optax.Schedule:
        return optax.schedules.join_schedules(
            [optax.linear_schedule(0.0, peak, 60),
             optax.constant_schedule(peak),
             optax.linear_schedule(peak, peak * 0.02, int(steps * 0.6))],
            [60, int(steps * 0.4)])  # fmt: skip

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.contrib.muon(
            schedule(0.015), adam_learning_rate=schedule(0.004), adam_b2=0.98,
            muon_weight_dimension_numbers=_muon_dimensions, weight_decay=0.01,
        ),
    )  # fmt: skip


def train(work_dir: pathlib.Path, documents: Documents, *, steps: int, seed: int) -> Any:
    """Trains for `steps`, checkpointing to `work_dir`; returns the parameters."""
    model = gemma.make_transformer(ARCHITECTURE, dtype=jnp.bfloat16)
    params = gemma.make_transformer(ARCHITECTURE, dtype=jnp.float32).init(
        jax.random.key(seed), jnp.ones((1, 8), jnp.int32)
    )['params']
    optimizer = make_optimizer(steps)
    state = {'params': params, 'optimizer': optimizer.init(params), 'step': jnp.zeros((), jnp.int32)}
    saver = ocp.CheckpointManager(
        (work_dir / 'training').absolute(),
        options=ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=100),
    )
    if saver.latest_step() is not None:
        state = saver.restore(saver.latest_step(), args=ocp.args.StandardRestore(state))
        print(f'resumed at step {int(state["step"])}', flush=True)

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
        loss, grads = jax.value_and_grad(functools.partial(mean_loss, model))(state['params'], tokens)
        updates, inner = optimizer.update(grads, state['optimizer'], state['params'])
        params = optax.apply_updates(state['params'], updates)
        return {'params': params, 'optimizer': inner, 'step': state['step'] + 1}, loss

    evaluate = jax.jit(functools.partial(mean_loss, model))
    held_out = documents.held_out(32)
    started, losses = time.time(), []
    first = int(state['step'])
    for index in range(first, steps):
        state, loss = update(state, documents.step(seed, index))
        losses.append(loss)
        if (index + 1) % 25 == 0:
            rate = (index + 1 - first) * SEQUENCES_PER_STEP * SEQUENCE_LENGTH / (time.time() - started)
            row = {'step': index + 1, 'loss': float(np.mean(losses)), 'tokens_per_second': rate}
            if (index + 1) % 100 == 0:
                row['held_out_loss'] = float(evaluate(state['params'], held_out))
            print(json.dumps(row), flush=True)
            with open(work_dir / 'log.jsonl', 'a', encoding='utf-8') as log:
                log.write(json.dumps(row) + '\n')
            losses = []
        saver.save(index + 1, args=ocp.args.StandardSave(state))
    saver.wait_until_finished()
    return state['params']


def main() -> None:
    """Trains what is missing in the work folder, then exports the package's files."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--data', type=pathlib.Path, required=True)
    parser.add_argument('--work-dir', type=pathlib.Path, required=True)
    parser.add_argument('--steps', type=int, default=1500)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--export', type=pathlib.Path, help='folder for tokenizer.model and checkpoint/')
    args = parser.parse_args()
    args.work_dir.mkdir(parents=True, exist_ok=True)
    cache = args.work_dir / 'topics.pickle'
    if not cache.exists():
        cache.write_bytes(pickle.dumps(corpus.read_topics(args.data)))
    topics = pickle.loads(cache.read_bytes())
    tokenizer_path = args.work_dir / 'tokenizer.model'
    if not tokenizer_path.exists():
        train_tokenizer(topics, tokenizer_path)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer_path))
    documents = Documents(topics, tokenizer)
    params = train(args.work_dir, documents, steps=args.steps, seed=args.seed)
    if args.export:
        shutil.copy(tokenizer_path, args.export / 'tokenizer.model')
        checkpoint = args.export / 'checkpoint'
        shutil.rmtree(checkpoint, ignore_errors=True)
        gemma.save_orbax(jax.tree.map(lambda x: x.astype(jnp.bfloat16), params), checkpoint)
        # It names the path that was written to, and no reader needs it.
        (checkpoint / 'commit_success.txt').unlink(missing_ok=True)


if __name__ == '__main__':
    main()
