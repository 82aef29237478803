"""A gradient study with made-up results, which takes no time."""

import numpy as np

from reproduction.gradient_measurements import GradientRow, study_cases
from reproduction.gradient_methods import StudySettings
from reproduction.gradient_study import GradientStudy

SETTINGS = StudySettings(num_units=(4, 8), betas=(1.0, 3.0), beta_units=4, num_repeats=2)


def made_up_study(settings=SETTINGS, seed=0):
    random = np.random.default_rng(seed)
    rows = []
    for case in study_cases(settings):
        for name in case.methods:
            key = [case.beta if value is None else value for value in case.key(name, settings, seed)]
            variance, seconds = random.gamma(4.0, size=2)
            evaluations = 2 if name in ("DisARM", "leave-one-out") else 1
            rows.append(GradientRow(*key, variance, 0.1 * variance, 2.0, 1.0, evaluations, seconds))
    return GradientStudy(tuple(rows), settings)
