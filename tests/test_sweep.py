"""Tables end to end on tiny random parts: pairing, snapshots, resuming, rows, and the numbers behind them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from anchorroute.data.humanml3d import Clip
from anchorroute.errors import DataError, RequestError
from anchorroute.evaluate import jobs, metrics, protocols
from anchorroute.evaluate.evaluator import EvaluatorConfig, OpenEvaluator
from anchorroute.evaluate.protocols import Protocol, Setting, Variant
from anchorroute.evaluate.shards import Shard
from anchorroute.evaluate.subject import Draft, Motions
from anchorroute.evaluate.sweep import Budget, Sweep, jobs_of
from anchorroute.evaluate.tables import table
from anchorroute.motion import features as feats
from anchorroute.motion.skeleton import PARENTS, REST_OFFSETS


def clip(index: int, frames: int = 48) -> Clip:
    """A stiff figure on its own straight path, with its own arm swing."""
    rng = np.random.default_rng(index)
    pose = torch.zeros(22, 3)
    for joint, parent in enumerate(PARENTS):
        if parent >= 0:
            pose[joint] = pose[parent] + torch.as_tensor(REST_OFFSETS[joint], dtype=torch.float32)
    joints = pose.repeat(frames + 1, 1, 1)
    joints[..., 1] -= float(pose[:, 1].min())
    joints[..., 2] += torch.arange(frames + 1)[:, None] * float(rng.uniform(0.01, 0.06))
    joints[:, 20, 1] += 0.2 * torch.sin(torch.arange(frames + 1) * float(rng.uniform(0.1, 0.5)))
    captions = (f"figure {index % 7} walks", f"walk number {index}")
    return Clip(id=f"{index:06d}", features=feats.from_joints(joints), captions=captions)


def toy_text(texts: list[str]) -> SimpleNamespace:
    tokens = torch.zeros(len(texts), 4, 8)
    for i, text in enumerate(texts):
        tokens[i, :, sum(map(ord, text)) % 8] = 1
    return SimpleNamespace(pooled=tokens[:, 0], tokens=tokens, mask=torch.ones(len(texts), 4, dtype=torch.bool))


@pytest.fixture(scope="module")
def evaluator() -> OpenEvaluator:
    torch.manual_seed(0)
    config = EvaluatorConfig(embed=8, width=16, layers=1, heads=2, text_dim=8, text_width=16, name="toy")
    return OpenEvaluator(config, toy_text).eval()


class Echo:
    """A generator whose tokens are the real features plus an error; solvers take the error away by known shares."""

    observes = "features"

    def __init__(self, name: str = "echo") -> None:
        self.id = name
        self.drafted: list[int] = []
        self.finished: list[tuple[str, ...]] = []

    def weights(self, *, anchored: bool) -> str:
        return self.id

    @staticmethod
    def real(batch: list[jobs.Job]) -> torch.Tensor:
        padded = torch.nn.utils.rnn.pad_sequence([job.clip.features for job in batch], batch_first=True)
        return padded.unflatten(1, (-1, 4)).flatten(2)

    def draft(self, batch: list[jobs.Job], *, anchored: bool) -> Draft:
        self.drafted.append(len(batch))
        u = self.real(batch)
        shift = torch.zeros_like(u).unflatten(2, (4, 263))
        shift[..., 3] = 0.1 if anchored else 0.4  # the root's height
        shift[..., 5:67:3] = 0.1 if anchored else 0.4  # and everybody else's
        return Draft(u + shift.flatten(2), 0.5)

    def finish(self, draft: Draft, batch: list[jobs.Job], variants: list[Variant]) -> list[Motions]:
        self.finished.append(tuple(variant.name for variant in variants))
        real, out = self.real(batch), []
        for variant in variants:
            left = {"generator": 1.0, "adam": 1 - variant.steps / 1000, "gauss-newton": 0.0}[variant.method]
            u = real + left * (draft.u - real)
            last = variant is variants[-1] and variant.steps
            trace = torch.linspace(1, left, 3).expand(len(batch), 3) if last else None
            out.append(Motions(u.unflatten(2, (4, 263)).flatten(1, 2), 1.0, trace))
        return out


def sweep_of(store: Path, evaluator: OpenEvaluator, subject: Echo, budget: Budget, name: str = "families") -> Sweep:
    clips = [clip(i, frames=40 + 4 * (i % 3)) for i in range(10)]
    protocol = replace(
        protocols.protocol(name), settings=(Setting("root3d", 2), Setting("root3d", 5), Setting("body", 3))
    )
    return Sweep.of(protocol, subject, evaluator, clips, "data", budget, store)


def test_errors_of_known_generators_come_out_exactly(tmp_path: Path, evaluator: OpenEvaluator) -> None:
    budget = Budget(repeats=2, heavy_samples=4, batch=3)
    sweep = sweep_of(tmp_path, evaluator, Echo(), budget)
    sweep.run()
    result = table(sweep, "evaluate families")
    found = {(row[0], row[1]): dict(zip(result.columns, row, strict=True)) for row in result.rows}
    for family in ("root3d", "body"):
        assert found[family, "generator"]["control error mm"] == pytest.approx(100, abs=1e-2)
        assert found[family, "RS200"]["control error mm"] == pytest.approx(80, abs=1e-2)
        assert found[family, "RS500"]["control error mm"] == pytest.approx(50, abs=1e-2)
        assert found[family, "GN"]["median mm"] == pytest.approx(0, abs=1e-2)
        assert found[family, "GN"]["clips"] == found[family, "RS200"]["clips"] == 4
        assert found[family, "GN, all clips"]["clips"] == 10
        assert found[family, "generator"]["± mm"] < 1e-2
        assert found[family, "generator"]["FID"] is None, "ten clips carry no FID"
    assert {entry["k"] for entry in result.extra["by_k"]} == {2, 3, 5}
    assert result.extra["traces"][0]["variant"] == "RS500"
    assert result.extra["paper"]["title"].startswith("The paper")


def test_one_run_gives_all_snapshots_and_one_draft_serves_all(tmp_path: Path, evaluator: OpenEvaluator) -> None:
    subject = Echo()
    sweep_of(tmp_path, evaluator, subject, Budget(batch=32, heavy_samples=4)).run()
    assert sorted(subject.drafted) == [4, 4, 4, 6, 6, 6], "every clip is drafted once a setting"
    assert ("RS100", "RS200", "RS500") in subject.finished
    assert len(subject.finished) == 9


def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path: Path, evaluator: OpenEvaluator) -> None:
    class Dies(Echo):
        def finish(self, draft: Draft, batch: list[jobs.Job], variants: list[Variant]) -> list[Motions]:
            if len(self.finished) == 5:
                raise KeyboardInterrupt
            return super().finish(draft, batch, variants)

    with pytest.raises(KeyboardInterrupt):
        sweep_of(tmp_path / "a", evaluator, Dies(), Budget()).run()
    kept = len(list((tmp_path / "a" / "shards").iterdir()))
    assert kept > 0
    again = Echo()
    second = sweep_of(tmp_path / "a", evaluator, again, Budget())
    computed = second.run()
    assert computed == 15 - kept
    whole = sweep_of(tmp_path / "b", evaluator, Echo(), Budget())
    whole.run()
    assert repr(table(second, "x").rows) == repr(table(whole, "x").rows)
    assert sweep_of(tmp_path / "a", evaluator, Echo(), Budget()).run() == 0


def test_tables_share_what_they_have_in_common(tmp_path: Path, evaluator: OpenEvaluator) -> None:
    assert sweep_of(tmp_path, evaluator, Echo(), Budget(), "families").run() == 15
    # generator, GN and RouteSolver at 200 steps (the families' RS200) are there already; plain and uniform are not
    assert sweep_of(tmp_path, evaluator, Echo(), Budget(), "refinement").run() == 6


def test_shares_together_are_the_whole(tmp_path: Path, evaluator: OpenEvaluator) -> None:
    both = [sweep_of(tmp_path, evaluator, Echo(), Budget()).run(share=(mine, 2)) for mine in (0, 1)]
    assert both == [10, 5]
    assert sweep_of(tmp_path, evaluator, Echo(), Budget()).run() == 0


def test_shards_of_other_weights_or_clips_are_not_mixed_in(tmp_path: Path, evaluator: OpenEvaluator) -> None:
    sweep_of(tmp_path, evaluator, Echo(), Budget()).run()
    other = Echo("other weights")
    assert sweep_of(tmp_path, evaluator, other, Budget()).run() == 15
    assert sweep_of(tmp_path, evaluator, Echo(), Budget(samples=5)).run() == 15
    assert sweep_of(tmp_path, evaluator, Echo(), Budget(samples=5, counts=(2,))).run() == 0


def test_one_k_a_clip_means_the_same_over_all(tmp_path: Path, evaluator: OpenEvaluator) -> None:
    clips = [clip(i, frames=48) for i in range(10)]
    mixed = protocols.protocol("refinement").mixed()
    assert [s.name for s in mixed.settings] == ["root3d-mixed-0", "planar-mixed-0", "body-mixed-0"]
    sweep = Sweep.of(mixed, Echo(), evaluator, clips, "data", Budget(heavy_samples=5), tmp_path)
    sweep.run()
    shard = sweep.shards(protocols.GENERATOR, mixed.settings[:1])[0][0]
    assert shard.counts.tolist() == [2, 4, 8, 16, 32] * 2
    result = table(sweep, "x")
    assert {entry["k"] for entry in result.extra["by_k"]} == {2, 4, 8, 16, 32}
    assert [row[0] for row in result.rows[1:6]] == ["root3d"] * 5


def test_progress_counts_to_the_end(tmp_path: Path, evaluator: OpenEvaluator) -> None:
    seen: list[tuple[int, int]] = []
    sweep_of(tmp_path, evaluator, Echo(), Budget()).run(lambda done, total, _: seen.append((done, total)))
    assert seen[0] == (0, 15)
    assert seen[-1] == (15, 15)
    assert seen == sorted(seen)


# what is asked


def test_anchors_and_seeds_do_not_depend_on_the_company() -> None:
    clips = jobs.usable([clip(i) for i in range(6)])
    setting = Setting("body", 4)
    alone, together = jobs_of(setting, clips[3:4], 1)[0], jobs_of(setting, clips, 1)[3]
    assert alone.seed == together.seed
    assert alone.caption == together.caption
    assert torch.equal(alone.observed.values, together.observed.values)
    other = jobs_of(setting, clips, 2)[3]
    assert other.seed != alone.seed
    assert not torch.equal(other.observed.frames, alone.observed.frames)


def test_anchors_lie_on_the_real_motion() -> None:
    clips = jobs.usable([clip(i) for i in range(3)])
    settings = (Setting("root3d", 8), Setting("planar", 3), Setting("body", 16), Setting("body", 0, "ratio", 0.3))
    for setting in settings:
        for job in jobs_of(setting, clips, 0):
            assert metrics.control_distances(feats.to_joints(job.clip.features), job.observed).max() < 1e-5
    counts = [len(jobs_of(setting, clips, 0)[0].observed) for setting in settings]
    assert counts == [8, 3, 16, 6 * int(0.3 * 48)]


def test_subsets_are_nested_and_do_not_depend_on_the_order() -> None:
    clips = [clip(i) for i in range(9)]
    small, large = jobs.subset(clips, 3), jobs.subset(clips[::-1], 6)
    assert [c.id for c in large[:3]] == [c.id for c in small]


def test_clips_are_cut_to_whole_tokens_and_useless_ones_left_out() -> None:
    bare = replace(clip(1), captions=())
    kept = jobs.usable([clip(0, frames=51), clip(2, frames=39), bare, replace(clip(3), weak=True)])
    assert [c.frames for c in kept] == [48]
    with pytest.raises(DataError, match="nothing to evaluate"):
        jobs.usable([bare])


# shards


def test_a_shard_reads_back_and_cuts(tmp_path: Path, evaluator: OpenEvaluator) -> None:
    sweep = sweep_of(tmp_path, evaluator, Echo(), Budget())
    sweep.run()
    shard = sweep.shards(protocols.GENERATOR, (Setting("root3d", 5),))[0][0]
    assert len(shard) == 10
    assert shard.first(4).counts.tolist() == [5] * 4
    assert len(shard.first(4).distances) == 20
    assert np.array_equal(shard.first(4).control_errors(), shard.control_errors()[:4])
    shard.save(tmp_path / "again.npz")
    again = Shard.load(tmp_path / "again.npz")
    assert np.array_equal(again.embedding, shard.embedding)


def test_protocols_hold_what_the_paper_asks() -> None:
    families = protocols.protocol("families")
    assert len(families.settings) == 15
    assert [v.name for v in families.variants] == ["generator", "RS100", "RS200", "RS500", "GN"]
    assert len({v.run for v in families.variants if v.method == "adam"}) == 1, "one run, three snapshots"
    assert len(protocols.protocol("mechanism").variants) == 9
    assert set(families.groups) == {"root3d", "planar", "body"}
    assert set(protocols.protocol("keyjoint").groups) == {"body ratio", "body stride", "body count"}
    with pytest.raises(RequestError, match="families"):
        protocols.protocol("famlies")


def test_protocol_variants_are_settings_the_solvers_know() -> None:
    from anchorroute.routesolver import Adam, GaussNewton

    for protocol in protocols.PROTOCOLS.values():
        assert isinstance(protocol, Protocol)
        for variant in protocol.variants:
            known = {"adam": Adam, "gauss-newton": GaussNewton}.get(variant.method)
            if known is not None:
                known(**dict(variant.settings))
