"""scikit-learn's own checks, unmodified; none is expected to fail. Small sizes run by default, the defaults as slow."""

import pytest
from sklearn.base import is_outlier_detector
from sklearn.utils.estimator_checks import (
    check_dict_unchanged,
    check_estimator,
    check_estimators_pickle,
    check_outliers_train,
    parametrize_with_checks,
)

from discrete_vae.interop.sklearn import BoltzmannDensity, DiscreteVAETransformer

JUDGE = DiscreteVAETransformer(
    num_left=2, num_right=2, hidden=(4,), num_epochs=1, num_samples=2, contamination=0.1
)


@parametrize_with_checks(
    [
        DiscreteVAETransformer(num_left=4, num_right=3, hidden=(8,), num_epochs=1),
        BoltzmannDensity(num_hidden=5, num_epochs=5),
    ]
)
def test_small_estimators_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", [check_outliers_train, check_estimators_pickle])
def test_a_small_detector_of_outliers_passes(check):
    assert is_outlier_detector(JUDGE)
    check("DiscreteVAETransformer", JUDGE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        DiscreteVAETransformer(),
        BoltzmannDensity(),
        DiscreteVAETransformer(output="probabilities", likelihood="gaussian"),
        BoltzmannDensity(binarize=0.0, num_hidden=3),
        JUDGE,
    ],
    ids=repr,
)
def test_estimators_pass(estimator):
    results = check_estimator(estimator, on_skip=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input", "check_readonly_memmap_input"}  # not set or not installed
    assert len(results) > 40


def test_a_wrong_estimator_does_not_pass():
    class Forgetful(BoltzmannDensity):
        def transform(self, X):  # noqa: N803
            self.last_ = X  # scikit-learn wants an estimator unchanged by what it does after fit
            return super().transform(X)

    with pytest.raises(AssertionError):
        check_dict_unchanged("Forgetful", Forgetful(num_hidden=2, num_epochs=1))
