"""scikit-learn's own checks, unmodified; none is expected to fail. Small sizes run by default, the defaults as slow."""

import pytest
from sklearn.utils.estimator_checks import check_dict_unchanged, check_estimator, parametrize_with_checks

from discrete_vae.interop.sklearn import BoltzmannDensity, DiscreteVAETransformer


@parametrize_with_checks(
    [
        DiscreteVAETransformer(num_left=4, num_right=3, hidden=(8,), num_epochs=1),
        BoltzmannDensity(num_hidden=5, num_epochs=5),
    ]
)
def test_small_estimators_pass(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        DiscreteVAETransformer(),
        BoltzmannDensity(),
        DiscreteVAETransformer(output="probabilities", likelihood="gaussian"),
        BoltzmannDensity(binarize=0.0, num_hidden=3),
    ],
    ids=repr,
)
def test_estimators_pass(estimator):
    results = check_estimator(estimator, on_skip=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {
        "check_array_api_input",
        "check_readonly_memmap_input",
    }  # what is not set or not installed
    assert len(results) > 40


def test_a_wrong_estimator_does_not_pass():
    class Forgetful(BoltzmannDensity):
        def transform(self, X):  # noqa: N803
            self.last_ = X  # scikit-learn wants an estimator unchanged by what it does after fit
            return super().transform(X)

    with pytest.raises(AssertionError):
        check_dict_unchanged("Forgetful", Forgetful(num_hidden=2, num_epochs=1))
