"""Training: pure batches, exact resume, two processes as one, the whole chain on tiny data."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from lightning_fabric import Fabric
from safetensors.torch import load_file
from torch import Tensor, nn

import train_data
from anchorroute import checkpoint
from anchorroute.cli.train import train as command
from anchorroute.data.humanml3d import Clip
from anchorroute.errors import AnchorRouteError, DataError, RequestError
from anchorroute.train.corpus import Corpus, rng
from anchorroute.train.journal import read
from anchorroute.train.loop import Averaged, Batch, LoopConfig, Task, fit, seed_step
from anchorroute.train.prior import token_weights, weighted_cross_entropy
from anchorroute.train.state import claim
from anchorroute.train.tokens import encoder_hash


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_data.write(tmp_path_factory.mktemp("data") / "set")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORROUTE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


class Line(Task):
    """Fit y = a x + b by gradient; dropout inside makes its steps random."""

    def __init__(self, seed: int = 0, broken_at: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.seed, self.broken_at = seed, broken_at

    def draw(self, step: int, size: int) -> Batch:
        x = torch.from_numpy(rng(self.seed, step).normal(size=(size, 3))).float()
        if step == self.broken_at:
            x = x * torch.nan
        return {"x": x, "y": x.sum(1, keepdim=True)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return {"loss": (self.model(batch["x"]) - batch["y"]).square().mean()}

    def validate(self) -> dict[str, float]:
        return {"score": float(self(self.draw(10**6, 64))["loss"])}


def line(run: Path, task: Task | None = None, pause: float | None = None, **changes: object) -> Line:
    task = task or Line()
    options = {
        "batch": 16,
        "steps": 40,
        "warmup": 4,
        "save_every": 7,
        "log_every": 1,
        "validations": 1,
        "precision": "32-true",
    }
    fit(task, LoopConfig(**(options | changes)), run, fabric=Fabric(accelerator="cpu"), pause_after=pause)  # type: ignore[arg-type]
    assert isinstance(task, Line)
    return task


def weights(task: Task) -> list[Tensor]:
    return [p.detach().clone() for p in task.parameters()]


class Killed(Line):
    """Dies in the middle of a step, after the last checkpoint."""

    def draw(self, step: int, size: int) -> Batch:
        if step == 25:
            raise KeyboardInterrupt
        return super().draw(step, size)


def test_resume_is_bit_exact(tmp_path: Path) -> None:
    whole = line(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        line(tmp_path / "cut", Killed())
    rows_at_death = len(read(tmp_path / "cut" / "train.csv"))
    cut = line(tmp_path / "cut")
    assert rows_at_death == 25
    for a, b in zip(weights(whole), weights(cut)):
        assert torch.equal(a, b)
    one, two = (read(tmp_path / name / "train.csv") for name in ("whole", "cut"))
    assert [r["step"] for r in two] == list(range(1, 41))
    assert [r["loss"] for r in one] == [r["loss"] for r in two]
    a, b = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "cut"))
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_dropout_draws_anew_every_step_and_process() -> None:
    """The seeding of each step must not freeze dropout to one mask."""
    masks = []
    for step, rank in ((0, 0), (1, 0), (1, 1), (0, 0)):
        seed_step(0, step, rank)
        masks.append(nn.functional.dropout(torch.ones(64), 0.5))
    assert not torch.equal(masks[0], masks[1]) and not torch.equal(masks[1], masks[2])
    assert torch.equal(masks[0], masks[3])


def test_pieces_end_where_one_piece_would(tmp_path: Path) -> None:
    config = LoopConfig(minutes=10.0, warmup=1, lr=1.0, final_lr=0.0)
    assert config.spent(123, 300.0) == 0.5
    assert config.rate(123, 0.5) == pytest.approx(0.5)
    assert config.rate(123, 1.0) == pytest.approx(0.0, abs=1e-12)
    steps = LoopConfig(steps=200, warmup=1)
    assert steps.spent(100, 1e9) == 0.5
    task = Line()
    pieces = 0
    while True:
        done = fit(
            task,
            LoopConfig(batch=16, minutes=0.02, warmup=4, validations=1, precision="32-true"),
            tmp_path,
            fabric=Fabric(accelerator="cpu"),
            pause_after=0.007,
        )
        pieces += 1
        if done.reason == "budget":
            break
        task = Line()
    assert pieces > 1
    assert 0.02 <= done.minutes < 0.2


def test_patience_stops_and_keeps_the_best(tmp_path: Path) -> None:
    class Worsening(Line):
        scores = iter([3.0, 1.0, 2.0, 2.5, 0.0])

        def validate(self) -> dict[str, float]:
            self.seen = weights(self)
            score = next(self.scores)
            if score == 1.0:
                self.best = self.seen
            return {"score": score}

    task = Worsening()
    done = fit(
        task,
        LoopConfig(batch=4, steps=50, validations=5, patience=2, precision="32-true"),
        tmp_path,
        fabric=Fabric(accelerator="cpu"),
    )
    assert done.reason == "patience" and done.step == 40
    for a, b in zip(weights(task), task.best):
        assert torch.equal(a, b)


def test_average_follows_its_formula() -> None:
    model = nn.Linear(1, 1, bias=False)
    averaged = Averaged(model, 0.5)
    expected = float(model.weight.detach())
    for step in range(6):
        with torch.no_grad():
            model.weight.fill_(float(step))
        averaged.update(step)
        keep = min(0.5, (1 + step) / (10 + step))
        expected = keep * expected + (1 - keep) * step
    with averaged.applied():
        assert float(model.weight.detach()) == pytest.approx(expected, rel=1e-6)
    assert float(model.weight.detach()) == 5.0


def test_nonfinite_loss_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AnchorRouteError, match=r"step 11.*lower --lr"):
        line(tmp_path, Line(broken_at=11))


@pytest.mark.parametrize("budget", [{}, {"minutes": 1.0, "steps": 5}, {"steps": 0}, {"minutes": -1.0}])
def test_budgets_that_mean_nothing(budget: dict[str, float]) -> None:
    with pytest.raises(RequestError):
        LoopConfig(**budget)  # type: ignore[arg-type]


def test_a_run_folder_is_one_run(tmp_path: Path) -> None:
    claim(tmp_path, {"lr": 1e-3, "data": "a"})
    claim(tmp_path, {"lr": 1e-3, "data": "a"})
    with pytest.raises(RequestError, match=r"data = \"a\".*\"b\""):
        claim(tmp_path, {"lr": 1e-3, "data": "b"})
    assert json.loads((tmp_path / "run.json").read_text())["commit"]


# ------------------------------------------------------------------------------------------------------------ batches


def corpus(lengths: list[int]) -> Corpus:
    clips = []
    for i, n in enumerate(lengths):
        features = torch.full((n, 263), float(i))
        features[:, 0] = torch.arange(n)
        clips.append(Clip(str(i), features, (f"clip {i}",)))
    return Corpus.of(clips, minimum=1)


def test_windows_stay_inside_clips_and_reach_every_start() -> None:
    made = corpus([10, 5, 12])
    windows = made.windows(np.random.default_rng(0), 4000, 6)
    assert windows.shape == (4000, 6, 263)
    assert torch.equal(windows[:, 1:, 0] - windows[:, :-1, 0], torch.ones(4000, 5))
    assert (windows[:, :, 1] == windows[:, :1, 1]).all()
    starts = {(int(w[0, 1]), int(w[0, 0])) for w in windows}
    assert starts == {(0, s) for s in range(5)} | {(2, s) for s in range(7)}
    with pytest.raises(DataError, match="20 frames"):
        made.windows(np.random.default_rng(0), 1, 20)


def test_padded_is_zero_behind_the_end() -> None:
    made = corpus([10, 5, 12])
    rows = made.padded(np.array([2, 1]), np.array([3, 1]), np.array([8, 4]))
    assert rows[0, :, 0].tolist() == [3, 4, 5, 6, 7, 8, 9, 10]
    assert rows[1, :, 0].tolist() == [1, 2, 3, 4, 0, 0, 0, 0] and not rows[1, 4:].any()


def test_batches_are_functions_of_seed_and_step() -> None:
    one, two, other = rng(1, 5).normal(size=4), rng(1, 5).normal(size=4), rng(1, 6).normal(size=4)
    assert (one == two).all() and not (one == other).any()
    assert not (rng(1, 5, 2).normal(size=4) == one).any()


def test_weights_make_shares_add_up() -> None:
    """Two processes' mean losses average to the loss over all tokens, whatever their shares of padding."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randint(0, 7, (6, 9), generator=generator)
    for row, length in enumerate([9, 2, 5, 1, 7, 3]):
        z[row, length:] = -1
    logits = torch.randn(6, 9, 7, generator=generator)
    weight = token_weights(z[..., None])
    shares = [weighted_cross_entropy(logits[r::2], z[r::2], weight[r::2]) for r in range(2)]
    whole = nn.functional.cross_entropy(logits.flatten(0, 1), z.flatten(), ignore_index=-1)
    assert float(sum(shares)) / 2 == pytest.approx(float(whole), rel=1e-6)


# --------------------------------------------------------------------------------------------- processes and commands


def call(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def start(data: Path, run: Path) -> subprocess.Popen[bytes]:
    code = "from anchorroute.cli.train import train; train()"
    arguments = ["tokenizer", "--preset", "debug", "--steps", "60", "--save-every", "5", "--threads", "1"]
    line_ = [sys.executable, "-c", code, *arguments, str(data), str(run)]
    return subprocess.Popen(line_, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.slow
def test_killed_run_continues_bit_for_bit(data: Path, tmp_path: Path) -> None:
    """kill -9 in the middle; the same command then ends in the very weights of an uninterrupted run."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    uninterrupted = start(data, whole)
    victim = start(data, cut)
    while not (cut / "last.safetensors").exists():
        assert victim.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    os.kill(victim.pid, signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert start(data, cut).wait() == 0 and uninterrupted.wait() == 0
    a, b = (load_file(path / "last.safetensors") for path in (whole, cut))
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    assert not list(cut.glob("*.part"))


@pytest.mark.slow
def test_two_processes_train_as_one(data: Path, tmp_path: Path) -> None:
    """Losses agree to 1e-4 over 20 float32 steps with the same global batch."""
    losses = []
    for devices in (1, 2):
        run = tmp_path / str(devices)
        script = [sys.executable, train_data.__file__, str(data), str(run), str(devices)]
        environment = os.environ | {"PYTHONPATH": str(Path(train_data.__file__).parent), "OMP_NUM_THREADS": "1"}
        subprocess.run(script, check=True, env=environment, capture_output=True, timeout=400)
        losses.append([row["loss"] for row in read(run / "train.csv")])
    assert len(losses[0]) == 20
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    a, b = (load_file(tmp_path / str(n) / "last.safetensors") for n in (1, 2))
    for key in a:
        if key.startswith("average"):
            assert torch.allclose(a[key], b[key], rtol=1e-4, atol=1e-5), key


@dataclass(frozen=True)
class Chain:
    tokenizer: Path
    prior: Path
    residual: Path


@pytest.mark.slow
def test_the_whole_chain_on_tiny_data(data: Path, tmp_path: Path) -> None:
    """data -> tokenizer -> prior -> finer levels -> adapters, by the commands a person types."""
    debug = ("--preset", "debug", "--threads", "1")
    call("tokenizer", *debug, str(data), str(tmp_path / "t"))
    call("decoder", *debug, "--tokenizer", str(tmp_path / "t" / "tokenizer"), str(data), str(tmp_path / "d"))
    tokens = tmp_path / "d" / "tokenizer"
    old, new = (checkpoint.load(path).module for path in (tmp_path / "t" / "tokenizer", tokens))
    assert encoder_hash(old) == encoder_hash(new)
    assert not torch.equal(old.decoder.output.weight, new.decoder.output.weight)
    call("prior", *debug, "--tokenizer", str(tokens), str(data), str(tmp_path / "p"))
    call("residual", *debug, "--tokenizer", str(tokens), str(data), str(tmp_path / "r"))
    on = ("--tokenizer", str(tokens), "--prior", str(tmp_path / "p" / "prior"))
    before = checkpoint.load(tmp_path / "p" / "prior").id
    for family in ("root3d", "planar", "body"):
        finer = ("--residual", str(tmp_path / "r" / "residual"))
        call("control", *debug, "--family", family, *on, *finer, str(data), str(tmp_path / family))
        made = checkpoint.load(tmp_path / family / f"control-{family}", kind="Conditioner")
        assert made.on_top_of["prior"] == before
        figures = made.provenance["validation"]
        assert math.isfinite(figures["error"]) and figures["oracle"] <= figures["prior"] * 2
    assert checkpoint.load(tmp_path / "p" / "prior").id == before
    for run in ("t", "p", "r", "body"):
        kept = {path.name for path in (tmp_path / run).iterdir()}
        assert {"run.json", "train.csv", "validation.csv", "curves.png", "last.safetensors"} <= kept
    first, *_, last = read(tmp_path / "t" / "train.csv")
    assert last["features"] < first["features"]
