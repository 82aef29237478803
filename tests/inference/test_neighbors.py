"""Nearest codes: against all distances, one by one."""

import numpy as np
import pytest

from discrete_vae.inference import neighbors
from discrete_vae.inference.neighbors import nearest_codes


def codes(rows, units, seed, on=0.5):
    return np.random.default_rng(seed).random((rows, units)) < on


def brute_force(queries, among, k, excluded=None):
    distances = (queries[:, None] != among[None]).sum(-1)
    if excluded is not None:
        distances[np.arange(len(queries)), excluded] = 10**6
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]  # of equal ones the first
    return order, np.take_along_axis(distances, order, 1)


@pytest.mark.parametrize(("units", "rows", "k"), [(3, 50, 7), (64, 300, 10), (130, 41, 41), (8, 1, 1)])
def test_neighbors_are_those_of_a_search_one_by_one(units, rows, k, monkeypatch):
    monkeypatch.setattr(neighbors, "_BLOCK", 17)
    queries, among = codes(11, units, 0, 0.3), codes(rows, units, 1, 0.3)
    done = []
    found = nearest_codes(np.packbits(queries, axis=1), np.packbits(among, axis=1), k, report=done.append)
    indices, distances = brute_force(queries, among, k)
    assert (found.indices == indices).all()
    assert (found.distances == distances).all()
    assert done[-1] == rows


def test_a_row_can_be_left_out():
    among = codes(40, 20, 2)
    own = np.arange(40)
    packed = np.packbits(among, axis=1)
    assert (nearest_codes(packed, packed, 1).distances == 0).all()
    found = nearest_codes(packed, packed, 39, excluded=own)
    indices, distances = brute_force(among, among, 39, own)
    assert (found.indices == indices).all()
    assert (found.distances == distances).all()


def test_threads_change_nothing(threads_of_torch):
    queries, among = (np.packbits(codes(30, 100, seed), axis=1) for seed in (0, 1))
    alone = nearest_codes(queries, among, 5)
    threads_of_torch(2)
    assert (nearest_codes(queries, among, 5).indices == alone.indices).all()
