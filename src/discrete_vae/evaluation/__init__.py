"""Estimates over a data set: log-likelihood, ELBO, log Z."""
