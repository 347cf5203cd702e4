"""MoMask's official tokenizer weights in our `tokenizer.paper()`: the same network under other names."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anchorroute.errors import CheckpointError
from anchorroute.tokenizer import Tokenizer, TokenizerConfig, paper


def load(folder: Path) -> Tokenizer:
    """The official MoMask tokenizer, from its folder (`meta/mean.npy`, `meta/std.npy`, `model/net_best_fid.tar`)."""
    weights = folder / "model" / "net_best_fid.tar"
    for path in (weights, folder / "meta" / "mean.npy", folder / "meta" / "std.npy"):
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist; give the folder that holds MoMask's meta/ and model/")
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
    except Exception as problem:
        raise CheckpointError(f"{weights} cannot be read as plain tensors ({problem}); fetch it again") from problem
    state = state.get("vq_model", state.get("net"))
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{weights} holds neither 'vq_model' nor 'net'; it is not MoMask's tokenizer")
    tokenizer = Tokenizer(paper())
    renamed = names(tokenizer.config)
    missing, surplus = sorted(renamed.keys() - state.keys()), sorted(state.keys() - renamed.keys())
    if missing or surplus:
        raise CheckpointError(f"{weights} is not MoMask's 6 x 512 tokenizer: it lacks {missing[:3]}, has {surplus[:3]}")
    own: dict[str, Tensor] = {ours: state[theirs] for theirs, ours in renamed.items() if "." in ours}
    levels = [state[f"quantizer.layers.{q}.codebook"] for q in range(tokenizer.config.levels)]
    try:
        own["codebooks"] = torch.stack(levels)
        own |= {"mean": tokenizer.mean, "std": tokenizer.std}
        tokenizer.load_state_dict(own)
    except RuntimeError as problem:
        raise CheckpointError(f"{weights} has other sizes than MoMask's 6 x 512 tokenizer: {problem}") from problem
    tokenizer.set_statistics(np.load(folder / "meta" / "mean.npy"), np.load(folder / "meta" / "std.npy"))
    return tokenizer.eval()


def names(config: TokenizerConfig) -> dict[str, str]:
    """MoMask's parameter names -> ours; all codebooks map to `codebooks`."""
    modules: dict[str, str] = {}
    for side, first in (("encoder", "down"), ("decoder", "up")):
        dilations = config.dilations if side == "encoder" else config.dilations[::-1]
        modules[f"{side}.model.0"] = f"{side}.input"
        for stage in (0, 1):
            resampler, blocks = ("0", "1") if side == "encoder" else ("2", "0")
            modules[f"{side}.model.{2 + stage}.{resampler}"] = f"{side}.{first}.{stage}"
            for i in range(len(dilations[stage])):
                for conv in ("conv1", "conv2"):
                    theirs = f"{side}.model.{2 + stage}.{blocks}.model.{i}.{conv}"
                    modules[theirs] = f"{side}.blocks.{stage}.{i}.{conv}"
    modules |= {
        "encoder.model.4": "encoder.output",
        "decoder.model.4": "decoder.middle",
        "decoder.model.6": "decoder.output",
    }
    parts = {f"{theirs}.{part}": f"{ours}.{part}" for theirs, ours in modules.items() for part in ("weight", "bias")}
    return parts | {f"quantizer.layers.{q}.codebook": "codebooks" for q in range(config.levels)}
