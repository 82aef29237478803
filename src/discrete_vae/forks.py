"""Forked children of a process that used torch's threads."""

from __future__ import annotations

import os

import torch

_guarded = False


def guard_forks() -> None:
    """From now on, forked children of this process compute on one thread.

    A child has none of its parent's threads, but GNU OpenMP still counts on them: the first operation that torch
    divides among threads would wait for ever. torch's own data loaders do the same in their workers. A child that is
    not a fork (``spawn``, ``subprocess``) keeps its threads.
    """
    global _guarded
    if not _guarded and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_use_one_thread)
        _guarded = True


def _use_one_thread() -> None:
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
