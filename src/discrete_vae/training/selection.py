"""Which checkpoint is the best."""

from __future__ import annotations

from discrete_vae.evaluation.elbo import MeanElbo

CAUTION = 2.0
"""Standard errors of log Z that are taken off the ELBO before checkpoints are compared."""


def validation_score(estimate: MeanElbo) -> float:
    r"""What checkpoints are compared by: the validation bound less two standard errors of its log Z, in nats.

    The bound is the ELBO, or that with the run's number of importance samples: what training raises, and in all of a
    run's checkpoints the same.

    Checkpoint k has the true mean ELBO on the validation examples

        L_k = A_k - log Z_k,

    with A_k the part that needs no log Z. What is known of it is A_k - (log Z_k + e_k). Two kinds of noise are in it:

    - **Examples and draws.** All checkpoints have the same examples and, as noise is keyed by the example's place, the
      same draws. Of the standard error over examples, which `MeanElbo.elbo_std_error` states, nearly all is common
      to two checkpoints and falls out of their difference; what is left is about the same for each pair. It cannot
      make one checkpoint more doubtful than another, so it has no part in the rule.
    - **log Z.** e_k is drawn anew at each checkpoint, with a standard error s_k that differs between them: the more the
      modes of the prior are apart, the larger. The greatest of many estimates is that with the luckiest error. So the
      plain maximum picks the checkpoint whose log Z is known worst.

    Hence the score A_k - log Z_k - e_k - 2 s_k, which L_k exceeds with a probability of 0.98. If a has the best score
    and b is passed over, and neither error exceeds two of its standard errors, then

        L_b - L_a <= 4 s_b,

    whatever s_a is: what the choice can cost depends on how well the passed-over log Z is known, not on the winner's
    luck. The plain maximum can cost 2 s_a + 2 s_b. A score of each checkpoint alone orders them without contradiction,
    whatever the order in which they come, which tests of pairs do not; with equal errors, exact log Z for example, it
    is the plain maximum.

    The rule trusts s_k, so log Z comes from `comparable_log_partition`, not from a short annealing, whose value is too
    low on average and whose error is understated where it misses a mode.

    Args:
        estimate: The validation bound with the standard error of its log Z.

    Examples:
        >>> lucky = MeanElbo(-89.7, 0.3, -80.0, 4.7, 5.0, 100, 1, log_partition_std_error=0.4)
        >>> known = MeanElbo(-90.0, 0.3, -80.2, 4.8, 5.0, 100, 1, log_partition_std_error=0.02)
        >>> round(validation_score(lucky), 2), round(validation_score(known), 2)
        (-90.5, -90.04)
    """
    return estimate.elbo - CAUTION * estimate.log_partition_std_error
