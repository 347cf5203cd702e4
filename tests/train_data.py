"""A tiny data set in HumanML3D's layout for tests of training, and a two-process driver. Also run as a script."""

import sys
from pathlib import Path

import numpy as np

from motions import walk

CAPTIONS = ("a person walks in a circle", "someone walks forward quickly", "the man turns left", "a figure strolls")


def write(folder: Path, clips: int = 10, frames: int = 73) -> Path:
    """Walks of different speed and turn; the last three are validation."""
    from anchorroute.motion.features import from_joints

    (folder / "new_joint_vecs").mkdir(parents=True)
    (folder / "texts").mkdir()
    ids, every = [f"{i:06d}" for i in range(clips)], []
    for i, name in enumerate(ids):
        features = from_joints(walk(frames + 4 * (i % 3), seed=i, speed=0.5 + 0.1 * i, turn=0.1 * i)).numpy()
        np.save(folder / "new_joint_vecs" / f"{name}.npy", features.astype(np.float32))
        caption = CAPTIONS[i % len(CAPTIONS)]
        tokens = " ".join(f"{word}/OTHER" for word in caption.split())
        (folder / "texts" / f"{name}.txt").write_text(f"{caption}#{tokens}#0.0#0.0\n")
        every.append(features)
    rows = np.concatenate(every)
    np.save(folder / "Mean.npy", rows.mean(0).astype(np.float32))
    np.save(folder / "Std.npy", (rows.std(0) + 0.05).astype(np.float32))
    for split, names in (("train", ids[:-3]), ("val", ids[-3:]), ("test", [])):
        (folder / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))
    return folder


def two_process_run(data: Path, run: Path, devices: int) -> None:
    """Twenty float32 steps of the debug tokenizer without any random part; Fabric starts this script twice."""
    from dataclasses import replace

    import torch

    from anchorroute import tokenizer as tokenizers
    from anchorroute.data.humanml3d import load
    from anchorroute.train.corpus import Corpus
    from anchorroute.train.loop import LoopConfig, fit, leave
    from anchorroute.train.presets import Options
    from anchorroute.train.tokenizer import TokenizerTask, TokenizerTaskConfig

    torch.set_num_threads(1)
    fabric = Options(accelerator="cpu", devices=devices).fabric("32-true")
    dataset = load(data, "train")
    corpus = Corpus.of(dataset)
    torch.manual_seed(0)
    # One process: the same weights, then the whole batch; two: half of it each.
    config = replace(tokenizers.debug(), keep_levels=(0.0, 0.0, 1.0), dead_below=0.0, kmeans=False)
    trainer = tokenizers.TokenizerTrainer(tokenizers.Tokenizer(config))
    trainer.tokenizer.set_statistics(dataset.mean.numpy(), dataset.std.numpy())
    task = TokenizerTask(trainer, corpus, corpus, TokenizerTaskConfig(windows=(40,), validation_clips=1), 0)
    loop = LoopConfig(batch=8, lr=1e-3, warmup=5, steps=20, validations=1, log_every=1, precision="32-true")
    fit(task, loop, run, fabric=fabric)
    leave(fabric)


if __name__ == "__main__":
    two_process_run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
