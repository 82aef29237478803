"""A process forked after torch used its threads: every call gives the parent's values, and none waits for ever."""

import os
import subprocess
import sys

import pytest

# In a process of its own: this one's threads are the other tests' business. The child ends by itself or by the alarm.
CODE = """
import json, os, signal, sys
import torch
import discrete_vae as d
from discrete_vae.config import ModelConfig, RBMConfig, HierarchicalPosteriorConfig, MLPDecoderConfig
from discrete_vae.kernels import loops as threads

threads.SMALLEST_SHARED = 0
torch.set_num_threads(2)
torch.manual_seed(0)
config = ModelConfig(
    num_features=400, prior=RBMConfig(num_left=9, num_right=9),
    posterior=HierarchicalPosteriorConfig(groups=2, hidden=(400,)), decoder=MLPDecoderConfig(hidden=(400,)),
)
model = d.DiscreteVAE.from_config(config)
for parameter in model.prior.parameters():
    torch.nn.init.normal_(parameter, std=0.3)
x = torch.bernoulli(torch.full((200, 400), 0.3))
chains = d.BlockGibbs(model.prior, 300, seed=2)
state, weights = chains.state_dict(), {name: t.clone() for name, t in model.state_dict().items()}

def figures():
    model.load_state_dict(weights)  # the batch norms keep running statistics
    generator = torch.Generator().manual_seed(1)
    log_partition = d.exact_log_partition(model.prior).value
    elbo = model.elbo(x, log_partition=log_partition, generator=generator)
    loss = (elbo.kl_discrete - elbo.reconstruction).mean()
    loss.backward()
    gradient = sum(float(p.grad.double().abs().sum()) for p in model.parameters() if p.grad is not None)
    model.zero_grad()
    chains.load_state_dict(state)
    with torch.no_grad():
        likelihood = model.log_likelihood(x, num_samples=20, log_partition=log_partition, generator=generator)
    return {
        "exact": float(log_partition),
        "elbo": -float(loss.detach()),
        "gradient": gradient,
        "likelihood": float(likelihood.value.mean()),
        "bennett": d.bennett_log_partition(model.prior, num_chains=64, std_error=0.1, seed=3).value,
        "gibbs": float((chains.step(5) @ torch.arange(18.0)).sum()),
        "threads": torch.get_num_threads(),
    }

parent = figures()
assert threads.has_parallel_regions() or threads._process_of_threads == os.getpid()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os.write(writer, json.dumps(figures()).encode())
    os._exit(0)
_, status = os.waitpid(child, 0)
os.close(writer)
assert status == 0, f"the child ended with {status}"
answer = json.loads(os.read(reader, 10_000))
assert (parent.pop("threads"), answer.pop("threads")) == (2, 1)
assert torch.get_num_threads() == 2
for name, value in parent.items():
    assert abs(answer[name] - value) <= 1e-4 * abs(value), (name, value, answer[name])
assert answer["gibbs"] == parent["gibbs"]
print("same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_gives_the_parents_values():
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", CODE],
        env=os.environ | {"NUMBA_NUM_THREADS": "2"}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr
