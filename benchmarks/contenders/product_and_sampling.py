"""A product and a sampling call in turn, as in training."""

from contenders import discrete_vae, product

NAME, PACKAGE = "product, then sampling", "discrete-vae"


def prepare(weight, bias, num_chains, num_threads):
    multiply = product.prepare(weight, bias, num_chains, num_threads)
    sample = discrete_vae.prepare(weight, bias, num_chains, num_threads)

    def step(num_sweeps):
        multiply(num_sweeps)
        return sample(num_sweeps)

    return step
