import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute.motion import rotation as rot


def unit_quats(seed: int, n: int = 64) -> torch.Tensor:
    return rot.normalise(torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


def vectors(seed: int, n: int = 64) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


seeds = st.integers(0, 10_000)
few = settings(max_examples=15, deadline=None)


@few
@given(seeds)
def test_composition_turns_right_to_left(seed: int) -> None:
    a, b, v = unit_quats(seed), unit_quats(seed + 1), vectors(seed)
    assert torch.allclose(rot.quat_apply(rot.quat_multiply(a, b), v), rot.quat_apply(a, rot.quat_apply(b, v)))


@few
@given(seeds)
def test_inverse_undoes_and_length_stays(seed: int) -> None:
    q, v = unit_quats(seed), vectors(seed)
    turned = rot.quat_apply(q, v)
    assert torch.allclose(rot.quat_apply(rot.quat_inverse(q), turned), v)
    assert torch.allclose(turned.norm(dim=-1), v.norm(dim=-1))


@few
@given(seeds)
def test_matrix_and_quaternion_agree(seed: int) -> None:
    q, v = unit_quats(seed), vectors(seed)
    m = rot.quat_to_matrix(q)
    assert torch.allclose((m @ v[..., None]).squeeze(-1), rot.quat_apply(q, v))
    back = rot.matrix_to_quat(m)
    assert torch.allclose(back * back[:, :1].sign(), q * q[:, :1].sign(), atol=1e-9)
    assert torch.allclose(rot.matrix_from_6d(rot.matrix_to_6d(m)), m)


def test_matrix_to_quat_holds_at_half_turns() -> None:
    for axis in torch.eye(3, dtype=torch.float64):
        q = torch.cat((torch.zeros(1, dtype=torch.float64), axis))
        assert torch.allclose(rot.matrix_to_quat(rot.quat_to_matrix(q)), q, atol=1e-9)


@few
@given(seeds)
def test_between_is_the_smallest_turn(seed: int) -> None:
    u, v = vectors(seed), vectors(seed + 1)
    q = rot.quat_between(u, v)
    assert torch.allclose(rot.quat_apply(q, rot.normalise(u)), rot.normalise(v), atol=1e-7)
    angle = torch.acos((rot.normalise(u) * rot.normalise(v)).sum(-1).clamp(-1, 1))
    assert torch.allclose(2 * torch.acos(q[:, 0].clamp(-1, 1)), angle, atol=1e-5)


def test_between_opposite_vectors_is_a_half_turn() -> None:
    u = torch.eye(3)
    q = rot.quat_between(u, -u)
    assert torch.allclose(rot.quat_apply(q, u), -u, atol=1e-6)


def test_about_y_takes_forward_to_the_left() -> None:
    turned = rot.quat_apply(rot.quat_about_y(torch.tensor(math.pi / 2)), torch.tensor([0.0, 0.0, 1.0]))
    assert torch.allclose(turned, torch.tensor([1.0, 0.0, 0.0]), atol=1e-6)


@few
@given(seeds, st.floats(0, 1))
def test_slerp_moves_at_constant_speed(seed: int, share: float) -> None:
    a, b = unit_quats(seed), unit_quats(seed + 1)
    whole = torch.acos((a * b).sum(-1).abs().clamp(max=1))
    part = torch.acos((a * rot.quat_slerp(a, b, share)).sum(-1).abs().clamp(max=1))
    assert torch.allclose(part, share * whole, atol=1e-4)


def test_continuous_signs_change_no_rotation() -> None:
    generator = torch.Generator().manual_seed(0)
    q = rot.normalise(torch.randn(50, 3, 4, generator=generator).cumsum(0))
    flipped = q * torch.where(torch.rand(50, 3, 1, generator=generator) < 0.5, -1.0, 1.0)
    smooth = rot.quat_continuous(flipped)
    assert ((smooth[1:] * smooth[:-1]).sum(-1) >= 0).all()
    assert torch.allclose(rot.quat_to_matrix(smooth), rot.quat_to_matrix(q), atol=1e-6)


def test_gradients_stay_finite_where_directions_vanish() -> None:
    u = torch.zeros(3, requires_grad=True)
    rot.quat_between(u, torch.tensor([0.0, 1.0, 0.0])).sum().backward()
    assert u.grad is not None and torch.isfinite(u.grad).all()
