"""The trained parts behind the tables' seam, on tiny random ones: what each method promises of the same draft."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from anchorroute import models
from anchorroute.evaluate import jobs, metrics, order
from anchorroute.evaluate.evaluator import EvaluatorConfig, OpenEvaluator
from anchorroute.evaluate.gallery import progression
from anchorroute.evaluate.protocols import Setting, Variant
from anchorroute.evaluate.subject import Draft, ModelSubject
from anchorroute.evaluate.sweep import jobs_of
from anchorroute.motion import body
from anchorroute.motion import features as feats
from anchorroute.text import Text
from test_sweep import clip


class Letters:
    """Stands for the frozen text encoder: quick, and needs no weights."""

    width = 384

    def __call__(self, texts: list[str]) -> Text:
        tokens = torch.zeros(len(texts), 3, self.width)
        for row, text in enumerate(texts):
            tokens[row, :, sum(map(ord, text)) % self.width] = 1
        return Text(tokens[:, 0], tokens, torch.ones(len(texts), 3, dtype=torch.bool))


@pytest.fixture(scope="module")
def subject() -> ModelSubject:
    parts = models.untrained()
    settings = replace(parts.settings, steps=3)
    return ModelSubject.of(replace(parts, text=Letters(), settings=settings))


@pytest.fixture(scope="module")
def work() -> list[jobs.Job]:
    return jobs_of(Setting("body", 3), jobs.usable([clip(i, frames=40 + 4 * i) for i in range(3)]), 0)


@pytest.fixture(scope="module")
def draft(subject: ModelSubject, work: list[jobs.Job]) -> Draft:
    return subject.draft(work, anchored=True)


def errors(features: torch.Tensor, work: list[jobs.Job], *, fixed: bool = False) -> float:
    found = []
    for clip_features, job in zip(features, work, strict=True):
        joints = feats.to_joints(clip_features[: job.length])
        found.append(metrics.control_distances(body.fixed_bones(joints) if fixed else joints, job.observed))
    return metrics.control_error(found)


def test_drafts_do_not_depend_on_batch_mates_and_anchors_matter(
    subject: ModelSubject, work: list[jobs.Job], draft: Draft
) -> None:
    alone = subject.draft(work[:1], anchored=True)
    assert torch.allclose(alone.u[0], draft.u[0, : alone.u.shape[1]], atol=1e-5)
    other = [replace(work[0], seed=work[0].seed + 1), *work[1:]]
    assert not torch.equal(subject.draft(other, anchored=True).u[0], draft.u[0])


def test_generator_is_the_decoded_draft(subject: ModelSubject, work: list[jobs.Job], draft: Draft) -> None:
    (plain,) = subject.finish(draft, work, [Variant("generator")])
    lengths = torch.tensor([job.length for job in work])
    assert torch.equal(plain.features, subject.models.tokenizer.decode(draft.u, lengths))


def test_snapshots_are_what_shorter_runs_give(subject: ModelSubject, work: list[jobs.Job], draft: Draft) -> None:
    three, nine = Variant("RS3", "adam", steps=3), Variant("RS9", "adam", steps=9)
    both = subject.finish(draft, work, [three, nine])
    (alone,) = subject.finish(draft, work, [three])
    assert torch.allclose(both[0].features, alone.features, atol=1e-4)
    assert not torch.allclose(both[0].features, both[1].features, atol=1e-4)
    assert both[1].trace is not None
    assert both[1].trace.shape == (3, 10)


def test_gauss_newton_brings_anchors_nearer_on_the_body_that_it_observes(
    subject: ModelSubject, work: list[jobs.Job], draft: Draft
) -> None:
    solve = Variant("GN", "gauss-newton")
    (before,) = subject.finish(draft, work, [Variant("generator")])
    (after,) = subject.finish(draft, work, [solve])
    assert errors(after.features, work) < errors(before.features, work)
    filed = replace(subject, observes="body")
    (on_body,) = filed.finish(draft, work, [solve])
    assert errors(on_body.features, work, fixed=True) <= errors(after.features, work, fixed=True) + 1e-4
    assert filed.id != subject.id


def test_baselines_come_back_as_features(subject: ModelSubject, work: list[jobs.Job], draft: Draft) -> None:
    (before,) = subject.finish(draft, work, [Variant("generator")])
    found = {
        name: subject.finish(draft, work, [Variant(name, name)])[0].features
        for name in ("warp", "projection", "projection on bones")
    }
    assert all(np.isfinite(features.numpy()).all() for features in found.values())
    assert errors(found["projection"], work) < 0.2 * errors(before.features, work)
    assert errors(found["warp"], work) < errors(before.features, work)


def test_a_sheet_has_a_row_a_variant(subject: ModelSubject, work: list[jobs.Job], tmp_path: Path) -> None:
    one, two = (progression(subject, work[0], tmp_path / f"{n}.png", runs=[[Variant("generator")]] * n) for n in (1, 2))
    with Image.open(one) as low, Image.open(two) as high:
        assert high.width == low.width
        assert high.height > 1.8 * low.height


def test_weaker_versions_are_generated_apart_and_judged_by_what_they_lose(
    subject: ModelSubject, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config = EvaluatorConfig(embed=8, width=16, layers=1, heads=2, text_width=16, name="toy")
    judge = OpenEvaluator(config, Letters()).eval()
    clips = [clip(i, frames=40) for i in range(32)]
    found = order.placed(judge, subject.models, clips, 32, tmp_path)
    assert [one.name for one in found] == [way.name for way in order.WAYS]
    assert found[0].in_order is None
    assert len({one.figures["fid"] for one in found}) == len(found), "each version made other motions"
    for one in found[1:]:
        way = next(way for way in order.WAYS if way.name == one.name)
        gaps = {name: one.figures[name] - found[0].figures[name] for name in way.loses}
        assert one.in_order == all((gap < 0) == (name == "r_top3") for name, gap in gaps.items())
    assert order.placed(judge, subject.models, clips, 32, tmp_path) == found, "from the kept drafts"
    assert len(order.rows(found)) == 4


def test_other_weights_have_another_id(subject: ModelSubject) -> None:
    other = ModelSubject.of(models.untrained(seed=1))
    assert other.weights(anchored=False) != subject.weights(anchored=False)
    adapted = ModelSubject.of(replace(subject.models, control=other.models.control))
    assert adapted.weights(anchored=False) == subject.weights(anchored=False), "the prior's drafts stay valid"
    assert adapted.weights(anchored=True) != subject.weights(anchored=True)
