"""thrml: an `IsingEBM` of the same law, sampled by a jitted and vmapped `sample_states`."""

import functools

import jax
import jax.numpy as jnp
from spins import to_spins
from thrml import Block, SamplingSchedule, SpinNode, sample_states
from thrml.models import IsingEBM, IsingSamplingProgram, hinton_init

NAME, PACKAGE = "thrml", "thrml"


def prepare(weight, bias, num_chains, num_threads):
    num_left, num_right = weight.shape
    coupling, field = to_spins(weight, bias)
    nodes = [SpinNode() for _ in range(num_left + num_right)]
    left, right = nodes[:num_left], nodes[num_left:]
    edges = [(a, b) for a in left for b in right]
    energy = IsingEBM(nodes, edges, jnp.asarray(field), jnp.asarray(coupling.ravel()), jnp.array(1.0))
    blocks = [Block(left), Block(right)]
    program = IsingSamplingProgram(energy, blocks, [])
    key, start = jax.random.split(jax.random.key(0))
    state = {"key": key, "blocks": hinton_init(start, energy, blocks, (num_chains,))}

    @functools.cache
    def compiled(num_sweeps):
        schedule = SamplingSchedule(n_warmup=num_sweeps, n_samples=1, steps_per_sample=1)
        return jax.jit(
            jax.vmap(lambda key, state: sample_states(key, program, schedule, state, [], [Block(nodes)]))
        )

    def step(num_sweeps):
        state["key"], key = jax.random.split(state["key"])
        (samples,) = compiled(num_sweeps)(jax.random.split(key, num_chains), state["blocks"])
        samples = samples[:, 0]
        state["blocks"] = [samples[:, :num_left], samples[:, num_left:]]
        return samples

    return step
