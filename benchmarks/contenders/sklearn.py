"""scikit-learn: `BernoulliRBM.gibbs`, one sweep per call; it returns the left side only."""

import numpy as np
from sklearn.neural_network import BernoulliRBM

NAME, PACKAGE = "scikit-learn", "scikit-learn"


def prepare(weight, bias, num_chains, num_threads):
    num_left, num_right = weight.shape
    rbm = BernoulliRBM(n_components=num_right)
    rbm.components_ = np.ascontiguousarray(weight.T)
    rbm.intercept_visible_, rbm.intercept_hidden_ = bias[:num_left], bias[num_left:]
    rbm.random_state_ = np.random.RandomState(0)
    state = {"left": np.zeros((num_chains, num_left), np.float32)}

    def step(num_sweeps):
        left = state["left"]
        for _ in range(num_sweeps):
            left = rbm.gibbs(left)
        state["left"] = left
        return left

    return step
