"""Muon: what its update is, and that what is no kernel is trained as torch's SGD does it."""

from __future__ import annotations

import torch

from lockstep.muon import COEFFICIENTS, Muon, orthogonalized


def test_singular_values_come_near_one_and_directions_stay() -> None:
    matrix = torch.randn(12, 40, generator=torch.Generator().manual_seed(0))
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonalized(matrix, rounds=5)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.3
    assert (s.max() / s.min()) > 2  # they were apart before
    # In the basis of the old singular vectors it is diagonal: the directions are the same.
    inner = u.T @ found @ vh.T
    assert (inner - inner.diag().diag()).abs().max() < 1e-4


def test_the_rounds_are_those_of_newton_and_schulz() -> None:
    """As the paper has them, each with the large matrix."""
    found = matrix = torch.randn(12, 40, generator=torch.Generator().manual_seed(0))
    found = found / found.norm()
    a, b, c = COEFFICIENTS
    for rounds in range(1, 6):
        gram = found @ found.T
        found = a * found + (b * gram + c * gram @ gram) @ found
        assert torch.allclose(orthogonalized(matrix, rounds), found, atol=1e-5)


def test_a_tall_matrix_is_treated_as_its_transpose() -> None:
    matrix = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(orthogonalized(matrix, 3), orthogonalized(matrix.T, 3).T)


def test_kernels_keep_their_norm_and_move_by_the_learning_rate() -> None:
    torch.manual_seed(0)
    kernel = torch.nn.Parameter(torch.randn(8, 4, 3, 3))
    kernel.grad = torch.randn_like(kernel)
    before = kernel.detach() * 8**0.5 / kernel.detach().norm()
    Muon([{"params": [kernel], "orthogonal": True, "lr": 0.1, "momentum": 0.6, "rounds": 3}]).step()
    assert torch.allclose(before - kernel, 0.1 * orthogonalized(kernel.grad.flatten(1), 3).view(8, 4, 3, 3), atol=1e-6)


def test_other_parameters_are_trained_as_by_sgd_with_nesterov() -> None:
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(5)) for _ in range(2))
    muon = Muon([{"params": [ours], "lr": 0.1, "momentum": 0.85, "weight_decay": 0.01}])
    sgd = torch.optim.SGD([theirs], lr=0.1, momentum=0.85, nesterov=True, weight_decay=0.01)
    for _ in range(4):
        ours.grad = torch.randn(5)
        theirs.grad = ours.grad.clone()
        muon.step()
        sgd.step()
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert not torch.allclose(ours, torch.ones(5), atol=0.1)


def test_a_kernel_that_is_zero_gets_its_first_step_and_no_nan() -> None:
    """As the last layers of many networks are at the start."""
    kernel = torch.nn.Parameter(torch.zeros(4, 6))
    kernel.grad = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    Muon([{"params": [kernel], "orthogonal": True, "lr": 0.1, "momentum": 0.0}]).step()
    assert torch.isfinite(kernel).all()
    assert kernel.abs().sum() > 0
