"""One loop for every model: state, step, optimiser, early stopping."""

from ffjord.training.loop import Recorder as Recorder
from ffjord.training.loop import Silent as Silent
from ffjord.training.loop import initial_state as initial_state
from ffjord.training.loop import train as train
from ffjord.training.state import TrainState as TrainState
