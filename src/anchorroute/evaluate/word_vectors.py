"""Words as the T2M evaluator reads them: a 300-number GloVe vector and a part-of-speech one-hot of 15.

The table is the user's (``glove/our_vab_data.npy``, ``our_vab_words.pkl``, ``our_vab_idx.pkl``). Its two pickles are
read by an unpickler that builds plain lists, dicts, strings and numbers and refuses everything else. Words of five
short lists get a part of speech of their own, which overrides the tagger's; an unknown word is "unk" and OTHER.
"""

import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorroute.errors import DataError, FormatError

WORD_DIM = 300
MAX_WORDS = 20
PARTS_OF_SPEECH = (
    *("VERB", "NOUN", "DET", "ADP", "NUM", "AUX", "PRON", "ADJ", "ADV"),
    *("Loc_VIP", "Body_VIP", "Obj_VIP", "Act_VIP", "Desc_VIP", "OTHER"),
)
_SPECIAL = {
    "Loc_VIP": "anticlockwise back backward clockwise counterclockwise curve down forward left right straight up",
    "Body_VIP": "arm chin eye face feet foot hand knee leg mouth shoulder thigh waist",
    "Obj_VIP": "ball baseball basketball car chair dumbbell floor handrail stair window",
    "Act_VIP": (
        "balance bend bring climb dance flap hop jog jump kick kneel lean lift lower pick put raise rotate rub run "
        "shuffle sit spin spread squat stand stop stroll stumble swing throw turn walk wash"
    ),
    "Desc_VIP": "angrily angry careful carefully fast happily happy quickly sad sadly slow slowly",
}
_SPECIAL_OF = {word: tag for tag, words in _SPECIAL.items() for word in words.split()}


@dataclass(frozen=True)
class Words:
    """A batch of captions: vectors, one-hots, and how many words (with start and end) each has."""

    vectors: Float[Tensor, "batch 22 300"]
    parts: Float[Tensor, "batch 22 15"]
    lengths: Int[Tensor, " batch"]


class WordVectors:
    """The GloVe table, looked up by ``word/POS``."""

    def __init__(self, table: dict[str, Float[np.ndarray, "300"]]) -> None:
        if "unk" not in table:
            raise FormatError('The word table has no entry "unk", which stands for every unknown word.')
        self.table = table

    @classmethod
    def load(cls, folder: Path, prefix: str = "our_vab") -> "WordVectors":
        """Read ``<prefix>_data.npy``, ``_words.pkl`` and ``_idx.pkl``."""
        missing = [f"{prefix}_{part}" for part in ("data.npy", "words.pkl", "idx.pkl")]
        missing = [name for name in missing if not (folder / name).is_file()]
        if missing:
            raise FormatError(f"{folder} lacks {', '.join(missing)}: point at the evaluator's glove folder.")
        vectors = np.load(folder / f"{prefix}_data.npy", allow_pickle=False)
        words, index = (_plain_pickle(folder / f"{prefix}_{part}.pkl") for part in ("words", "idx"))
        if not isinstance(words, list) or not isinstance(index, dict):
            raise FormatError(f"{folder}: {prefix}_words.pkl must hold a list and {prefix}_idx.pkl a dict.")
        return cls({word: vectors[index[word]] for word in words})

    def __call__(self, captions: list[list[str]]) -> Words:
        """Vectors of captions given as lists of ``word/POS``; cut to 20 words, start and end added, padded to 22."""
        rows = [self._caption(tokens) for tokens in captions]
        return Words(
            torch.stack([row[0] for row in rows]),
            torch.stack([row[1] for row in rows]),
            torch.tensor([min(len(tokens), MAX_WORDS) + 2 for tokens in captions]),
        )

    def _caption(self, tokens: list[str]) -> tuple[Tensor, Tensor]:
        tokens = ["sos/OTHER", *tokens[:MAX_WORDS], "eos/OTHER"]
        tokens += ["unk/OTHER"] * (MAX_WORDS + 2 - len(tokens))
        found = [self._word(token) for token in tokens]
        vectors = torch.from_numpy(np.stack([vector for vector, _ in found]).astype(np.float32))
        parts = torch.nn.functional.one_hot(torch.tensor([part for _, part in found]), len(PARTS_OF_SPEECH))
        return vectors, parts.float()

    def _word(self, token: str) -> tuple[Float[np.ndarray, "300"], int]:
        word, slash, part = token.rpartition("/")
        if not slash:
            raise DataError(f'The caption token "{token}" is not word/POS: captions need their third column of tokens.')
        if word not in self.table:
            return self.table["unk"], PARTS_OF_SPEECH.index("OTHER")
        part = _SPECIAL_OF.get(word, part)
        return self.table[word], PARTS_OF_SPEECH.index(part if part in PARTS_OF_SPEECH else "OTHER")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> object:
        raise FormatError(f"A word table's pickle asks for {module_name}.{global_name}; it may hold plain values only.")


def _plain_pickle(path: Path) -> object:
    with path.open("rb") as file:
        return _PlainUnpickler(file).load()
