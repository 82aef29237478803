"""Plain torch at its best: addmm, sigmoid, uniform numbers into memory that is there already, one comparison."""

import torch

NAME, PACKAGE = "torch, uniform_", "torch"


@torch.no_grad()
def prepare(weight, bias, num_chains, num_threads):
    weight, bias = torch.from_numpy(weight), torch.from_numpy(bias)
    num_left, num_right = weight.shape
    bias_left, bias_right = bias.split([num_left, num_right])
    state = {"right": torch.bernoulli(torch.full((num_chains, num_right), 0.5))}
    noise_left, noise_right = torch.empty(num_chains, num_left), torch.empty(num_chains, num_right)

    def step(num_sweeps):
        right = state["right"]
        for _ in range(num_sweeps):
            left = (noise_left.uniform_() < torch.sigmoid(torch.addmm(bias_left, right, weight.T))).float()
            right = (noise_right.uniform_() < torch.sigmoid(torch.addmm(bias_right, left, weight))).float()
        state["right"] = right
        return torch.cat([left, right], 1)

    return step
