"""The public text that the bundled model imitates, as topics of short texts.

Three public sources, named in README.md beside this file with their licences:
English Wikipedia articles, DBpedia abstracts, and English novels out of
copyright. Articles and abstracts are clustered into topics; each topic carries
keywords, one of which becomes the label line of a few-shot document. A novel is
a topic of its own. No private evaluation set is read here.
"""

import collections
import csv
import dataclasses
import gzip
import io
import json
import lzma
import pathlib
import re
import tarfile
import zlib

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

# One text in fifty is never trained on; README.md quotes the loss on these.
HELD_OUT_ONE_IN = 50
_SENTENCE_END = re.compile(r'(?<=[.!?])["\u201d]?\s+(?=["\u201c(]?[A-Z0-9])')


@dataclasses.dataclass(frozen=True)
class PublicText:
    """One public text: its sentences in order, and what is known of it."""

    sentences: tuple[str, ...]
    title: str | None
    source: str
    category: str | None = None

    @property
    def held_out(self) -> bool:
        """True if the text is kept for evaluation, by a hash of itself."""
        return zlib.crc32(self.sentences[0].encode()) % HELD_OUT_ONE_IN == 0


@dataclasses.dataclass(frozen=True)
class Topic:
    """Texts of one subject, with words that may stand as its label."""

    keywords: tuple[str, ...]
    texts: tuple[PublicText, ...]


def split_sentences(text: str) -> tuple[str, ...]:
    """Splits prose at sentence ends; empty pieces are dropped."""
    return tuple(s.strip() for s in _SENTENCE_END.split(text) if s.strip())


def _detokenize(text: str) -> str:
    """Undoes the word tokenization of the DBpedia file (spaces before marks)."""
    text = re.sub(r'\s+([.,;:!?)%])', r'\1', text.replace('\t', ' '))
    text = re.sub(r'([(#$])\s+', r'\1', text)
    return re.sub(r"\s+('s|n't)\b", r'\1', text).strip()


def read_wikipedia(data: pathlib.Path) -> list[PublicText]:
    """Reads article openings; titles of the WikiMovies test set are left out."""
    barred = set()
    for path in sorted((data / 'wikimovies').glob('movies-*.json.gz')):
        with gzip.open(path, 'rt', encoding='utf-8') as file:
            barred |= {(m.get('href') or '').replace('_', ' ') for m in json.load(file)}
    texts = []
    with lzma.open(data / 'pretrain' / 'wiki_en.jsonl.xz', 'rt', encoding='utf-8') as file:
        for line in file:
            article = json.loads(line)
            if article['title'] in barred:
                continue
            lines = [p for p in article['text'].split('\n') if len(p) > 60]
            sentences = split_sentences(' '.join(lines))
            if sum(map(len, sentences)) >= 80:
                texts.append(PublicText(sentences, article['title'], 'wikipedia'))
    return texts


def read_dbpedia(data: pathlib.Path) -> list[PublicText]:
    """Reads the abstracts; `category` is the file's class name."""
    folder = data / 'dbpedia'
    names = (folder / 'classes.txt').read_text().split()
    texts = []
    with open(folder / 'train_14k.csv', newline='', encoding='utf-8') as file:
        for label, raw in csv.reader(file):
            sentences = split_sentences(_detokenize(raw))
            if sentences:
                texts.append(PublicText(sentences, None, 'dbpedia', names[int(label)]))
    return texts


def read_novels(data: pathlib.Path) -> list[Topic]:
    """Reads each novel as one topic of passages of four sentences."""
    topics = []
    with tarfile.open(data / 'pretrain' / 'novels100.tar.xz') as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.isfile() else None
            if handle is None or not member.name.endswith('.txt'):
                continue
            prose = io.TextIOWrapper(handle, encoding='utf-8', errors='replace').read()
            sentences = split_sentences(re.sub(r'\s+', ' ', prose).lstrip('\ufeff')[:400_000])
            passages = [sentences[i : i + 4] for i in range(0, len(sentences) - 4, 4)]
            author = pathlib.PurePath(member.name).stem.split('_')[0]
            texts = tuple(PublicText(p, None, 'novels') for p in passages)
            if texts:
                topics.append(Topic((author, 'Novel', 'Story', 'Fiction'), texts))
    return topics


def cluster_topics(texts: list[PublicText], *, num_topics: int, seed: int = 0) -> list[Topic]:
    """Groups texts by k-means on TF-IDF; a topic's keywords are its top terms."""
    bodies = [' '.join(t.sentences[:6])[:1000] for t in texts]
    vectorizer = TfidfVectorizer(
        max_features=20_000, stop_words='english', sublinear_tf=True, min_df=5,
        token_pattern=r'(?u)\b[A-Za-z]{3,}\b',
    )  # fmt: skip
    matrix = vectorizer.fit_transform(bodies)
    # k-means on raw TF-IDF leaves one cluster of leftovers; on the unit sphere of
    # the leading singular vectors the clusters come out of similar sizes.
    svd = TruncatedSVD(128, random_state=seed)
    points = normalize(svd.fit_transform(matrix))
    kmeans = MiniBatchKMeans(num_topics, batch_size=4096, n_init=3, random_state=seed)
    assignment = kmeans.fit_predict(points)
    weights = svd.inverse_transform(kmeans.cluster_centers_)
    terms = np.array(vectorizer.get_feature_names_out())
    members = collections.defaultdict(list)
    for text, cluster in zip(texts, assignment, strict=True):
        members[int(cluster)].append(text)
    topics = []
    for cluster, group in sorted(members.items()):
        top = terms[np.argsort(weights[cluster])[::-1][:12]]
        if len(group) >= 12:
            topics.append(Topic(tuple(str(t).capitalize() for t in top), tuple(group)))
    return topics


def read_topics(data: pathlib.Path, *, num_topics: int = 400) -> list[Topic]:
    """All topics of the three sources, in a fixed order.

    Args:
        data: The folder that holds `pretrain/`, `dbpedia/` and `wikimovies/` (the
            last one only for the titles that must be left out).
        num_topics: Clusters over Wikipedia and DBpedia together.
    """
    articles, abstracts = read_wikipedia(data), read_dbpedia(data)
    topics = cluster_topics(articles + abstracts, num_topics=num_topics)
    classes = collections.defaultdict(list)
    for text in abstracts:
        classes[text.category or ''].append(text)
    topics += [Topic((name,), tuple(group)) for name, group in sorted(classes.items())]
    return topics + read_novels(data)
