"""A named, typed configuration for every experiment of the paper. Free of JAX; `experiments.build` is not."""

from ffjord.experiments.catalog import COMPARISONS as COMPARISONS
from ffjord.experiments.catalog import EXPERIMENTS as EXPERIMENTS
from ffjord.experiments.catalog import find as find
from ffjord.experiments.config import DataConfig as DataConfig
from ffjord.experiments.config import Experiment as Experiment
from ffjord.experiments.config import FileConfig as FileConfig
from ffjord.experiments.config import MatchingConfig as MatchingConfig
from ffjord.experiments.config import ModelConfig as ModelConfig
from ffjord.experiments.config import RegularizationConfig as RegularizationConfig
from ffjord.experiments.config import SolveConfig as SolveConfig
from ffjord.experiments.config import TrainConfig as TrainConfig
