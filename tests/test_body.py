import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute.motion import body
from anchorroute.motion.rotation import quat_about_y, quat_apply
from anchorroute.motion.skeleton import BONE_LENGTHS, PARENTS, REST_OFFSETS

from motions import walk


def noisy(seed: int, noise: float, frames: int = 40) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    joints = walk(frames, seed)
    return joints + noise * torch.randn(joints.shape, generator=generator)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.01, 0.1, 1.0]))
def test_rotations_pose_exactly_the_fixed_bone_body(seed: int, noise: float) -> None:
    joints = noisy(seed, noise)
    root, local = body.rotations(joints)
    assert (body.forward_kinematics(root, local) - body.fixed_bones(joints)).norm(dim=-1).max() < 1e-5
    assert torch.allclose(local.norm(dim=-1), torch.ones(()), atol=1e-5)


def test_bones_have_their_lengths_and_directions() -> None:
    joints = noisy(1, 0.02)
    fixed = body.fixed_bones(joints)
    for j in range(1, 22):
        bone, wish = fixed[:, j] - fixed[:, PARENTS[j]], joints[:, j] - joints[:, PARENTS[j]]
        assert torch.allclose(bone.norm(dim=-1), torch.tensor(BONE_LENGTHS[j]), atol=1e-5)
        if j not in (1, 2, 3, 12, 13, 14):
            assert torch.cosine_similarity(bone, wish, dim=-1).min() > 1 - 1e-6


def test_a_second_time_changes_nothing() -> None:
    fixed = body.fixed_bones(noisy(2, 0.1))
    assert (body.fixed_bones(fixed) - fixed).abs().max() < 1e-5


def test_the_rest_pose_has_no_rotation() -> None:
    rest = torch.zeros(5, 22, 3)
    for j in range(1, 22):
        rest[:, j] = rest[:, PARENTS[j]] + torch.from_numpy(REST_OFFSETS)[j]
    _, local = body.rotations(rest)
    assert (local[..., 0].abs() > 1 - 1e-5).all()


def test_turning_the_body_turns_only_the_pelvis() -> None:
    joints = walk(30)
    _, local = body.rotations(joints)
    _, turned = body.rotations(quat_apply(quat_about_y(torch.tensor(0.7)), joints))
    assert torch.allclose(local[:, 1:], turned[:, 1:], atol=1e-4)


def test_knees_bend_about_one_axis() -> None:
    """The thigh's twist follows the bend: the knee's local rotation is a pure hinge about x."""
    rest = torch.zeros(20, 22, 3)
    offsets = torch.from_numpy(REST_OFFSETS).clone()
    for t in range(20):
        angle = torch.tensor(0.3 + 0.05 * t)
        bent = torch.stack((torch.zeros(()), -angle.cos(), -angle.sin()))
        for j in range(1, 22):
            bone = bent * BONE_LENGTHS[j] if j in (7, 8) else offsets[j]
            rest[t, j] = rest[t, PARENTS[j]] + bone
    _, local = body.rotations(rest)
    for knee in (4, 5):
        assert local[:, knee, 2:].abs().max() < 1e-3
        assert local[:, knee, 1].abs().min() > 0.1


def test_gradients_flow_and_stay_finite() -> None:
    joints = noisy(3, 0.01).requires_grad_()
    body.fixed_bones(joints).square().sum().backward()
    assert joints.grad is not None and torch.isfinite(joints.grad).all() and joints.grad.abs().sum() > 0


def test_batches_broadcast() -> None:
    joints = torch.stack((noisy(4, 0.01), noisy(5, 0.01)))
    root, local = body.rotations(joints)
    one_root, one_local = body.rotations(joints[1])
    assert torch.allclose(root[1], one_root, atol=1e-6) and torch.allclose(local[1], one_local, atol=1e-5)
