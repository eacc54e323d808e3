"""The policy: a causal language model with its tokenizer, and the log-probabilities of its tokens.

`load_policy("warm:A")` gives a shipped warm start, `load_policy("path/to/folder")` any `AutoModelForCausalLM` in a
local Hugging Face folder. Everything is float32 and in evaluation mode: with dropout, r would not be 1 before the first
update. The pad token is never sampled and has probability 0.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging as hf_logging

from regimescope.trainer.errors import PolicyError, ShapeError
from regimescope.trainer.loss.logprobs import token_distribution
from regimescope.trainer.tokenizer import CHARACTERS, EOS_ID, PAD_ID, VOCABULARY_SIZE, build_tokenizer

WARM_FOLDER = Path(__file__).parent / "warm"
WARM_PREFIX = "warm:"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
LOAD_ERRORS = (
    OSError, ValueError, KeyError, ImportError, RuntimeError, TypeError, AttributeError, SafetensorError,
)  # fmt: skip
"What transformers raises for a foreign folder: unknown type, broken or foreign weights, missing package."
NEVER = -1e9
"Logit that keeps a token from being sampled."


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A model with what sampling and evaluating it needs. The model itself is mutable: training changes it in place."""

    model: PreTrainedModel
    "float32, evaluation mode (no dropout), on one device."
    tokenizer: PreTrainedTokenizerBase
    "Its tokenizer; ids go in and out everywhere, texts only at the edges."
    pad_id: int
    "Fills rows; the end token where the tokenizer has no pad token."
    eos_id: int
    "Ends a response."
    name: str
    "What was loaded: `warm:A` or a path."

    @property
    def never_ids(self) -> tuple[int, ...]:
        """Ids with probability 0: the pad token, unless it is also the end token."""
        return () if self.pad_id == self.eos_id else (self.pad_id,)

    @property
    def parameter_count(self) -> int:
        """Parameters, tied ones once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def encode(self, text: str) -> list[int]:
        """Token ids of a text without special tokens. PolicyError where the vocabulary cannot write it."""
        try:
            ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        except Exception as error:  # the tokenizers library raises the base class
            raise PolicyError(f"the tokenizer of {self.name} cannot write {text!r}: {error}") from None
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each token by itself, special ones too, for people to read: a token that is a part of a character
        comes out as the replacement character, so the pieces do not always add up to the text.
        """
        known = {i: self._piece(i) for i in set(ids)}
        return [known[i] for i in ids]

    def _piece(self, token: int) -> str:
        text: str = self.tokenizer.decode([token], clean_up_tokenization_spaces=False)
        name = self.tokenizer.convert_ids_to_tokens(token)
        spaced = isinstance(name, str) and name.startswith("\u2581") and not text.startswith(" ")
        return f" {text}" if spaced else text  # SentencePiece marks a leading space, and decoding alone drops it


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogps:
    """Per token of `sequences[:, 1:]`; padding and prompts are where `valid` is False."""

    logp: Tensor
    "[B, T-1] float32: log-probability of each token given those before it; carries the gradient. 0 where not valid."
    entropy: Tensor
    "[B, T-1] float32, nats, without gradient: entropy of the distribution the token was drawn from. 0 where not valid."
    sum_p2: Tensor
    "[B, T-1] float32, without gradient: sum of that distribution's squared probabilities. 0 where not valid."
    effect: Tensor
    "[B, T-1] float32, nats, without gradient: entropy effect of the token (`effect.py`). 0 where not sampled."
    valid: Tensor
    "[B, T-1] bool: the response's tokens, its end token included."


# -------------------------------------------------------------------------------------------------------- loading
def tiny_config() -> Qwen3Config:
    """The default policy: 99,904 parameters in Qwen3-0.6B's ratios (tied, 2 query heads a key head, MLP 3 x width)."""
    return Qwen3Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.05,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        bos_token_id=None,
    )


def new_tiny_policy(seed: int) -> Policy:
    """An untrained policy of `tiny_config` with the character tokenizer; the same seed gives the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(tiny_config())
    model.eval()
    return Policy(model=model, tokenizer=build_tokenizer(), pad_id=PAD_ID, eos_id=EOS_ID, name=f"tiny (seed {seed})")


def warm_names() -> list[str]:
    """The built-in names: `warm:A`, `warm:B`."""
    return sorted(WARM_PREFIX + config.parent.name for config in WARM_FOLDER.glob("*/config.json"))


def load_policy(source: str | Path, *, device: str = "cpu", must_write: str = CHARACTERS) -> Policy:
    """Load a built-in name or a local folder; nothing is ever downloaded.

    PolicyError says what the folder lacks, also where its tokenizer cannot write `must_write`: the task's characters.
    """
    folder = _folder(str(source))
    _check_files(folder)
    hf_logging.disable_progress_bar()
    tokenizer = _load_tokenizer(folder)
    model = _load_model(folder).to(device)
    model.eval()
    eos_id = tokenizer.eos_token_id
    if eos_id is None:
        raise PolicyError(f"the tokenizer in {folder} has no end token: set eos_token in its tokenizer_config.json")
    pad_id = eos_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    largest = max(max(tokenizer.get_vocab().values()), eos_id, pad_id)
    rows = model.get_input_embeddings().weight.shape[0]
    if largest >= rows:
        raise PolicyError(
            f"vocabulary mismatch in {folder}: the tokenizer has ids up to {largest}, the model {rows} rows; "
            "put the tokenizer of this very model there"
        )
    policy = Policy(model=model, tokenizer=tokenizer, pad_id=pad_id, eos_id=eos_id, name=str(source))
    written = policy.decode(policy.encode(must_write))
    if written.replace(" ", "") != must_write.replace(" ", ""):
        raise PolicyError(f"the tokenizer in {folder} cannot write {must_write!r}: it gives back {written!r}")
    return policy


def save_policy(policy: Policy, folder: Path) -> None:
    """Write config, weights (safetensors) and tokenizer, as `load_policy(folder)` and the Auto classes read them."""
    hf_logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)


def _folder(source: str) -> Path:
    if not source.startswith(WARM_PREFIX):
        folder = Path(source).expanduser()
        if not folder.is_dir():
            known = ", ".join(warm_names())
            raise PolicyError(f"no model folder {source!r}: give a local Hugging Face folder or one of {known}")
        return folder
    if source not in warm_names():
        raise PolicyError(f"no warm start {source!r}: there are {', '.join(warm_names())}")
    return WARM_FOLDER / source.removeprefix(WARM_PREFIX)


def _check_files(folder: Path) -> None:
    """Fail with a plain sentence before the loaders do with a long one."""
    config = folder / "config.json"
    if not config.is_file():
        raise PolicyError(f"{folder} is no model folder: it has no config.json")
    try:
        json.loads(config.read_text())
    except ValueError as error:
        raise PolicyError(f"{config} is not valid JSON: {error}") from None
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise PolicyError(f"{folder} is a model path without tokenizer: save it there too (tokenizer.save_pretrained)")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise PolicyError(f"{folder} has no weights: expected model.safetensors")


def _load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # a foreign folder may fail in any way; the tokenizers library raises the base class
        raise PolicyError(f"cannot read the tokenizer in {folder}: {_first_line(error)}") from error


def _load_model(folder: Path) -> PreTrainedModel:
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except LOAD_ERRORS as error:
        raise PolicyError(f"cannot load the model in {folder}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


# ----------------------------------------------------------------------------------------------------- evaluation
def token_logps(
    policy: Policy,
    sequences: Sequence[Sequence[int]],
    starts: Sequence[int],
    *,
    temperature: float = 1.0,
    sampled: Tensor | None = None,
) -> TokenLogps:
    """One forward pass over prompt + response rows, and what it says about every response token.

    `starts[i]`: number of prompt tokens of row i, at least 1. `sampled`: [B, T-1] bool with T the longest row, the
    tokens whose entropy effect is measured. Rows are padded on the right, so the causal mask is enough. The logits
    [B, T, V] are read where they lie (`logprobs.py`). Raises ShapeError.
    """
    ids, valid = _padded(policy, sequences, starts)
    if sampled is not None and sampled.shape != valid.shape:
        raise ShapeError(f"sampled: {list(sampled.shape)} must be {list(valid.shape)}, the tokens after the first")
    logits = policy.model(input_ids=ids, use_cache=False).logits
    row, place = valid.nonzero(as_tuple=True)
    seen = token_distribution(
        logits.flatten(0, 1),
        ids[row, place + 1],
        rows=row * ids.shape[1] + place,  # the logits at a token speak of the next one
        temperature=temperature,
        never_ids=policy.never_ids,
        sampled=None if sampled is None else sampled[row, place],
    )
    logp = torch.zeros(valid.shape, dtype=seen.logp.dtype, device=valid.device)
    rest = logp.new_zeros((3, *valid.shape))
    rest[:, row, place] = torch.stack([seen.entropy.detach(), seen.sum_p2, seen.effect])
    entropy, sum_p2, effect = rest.unbind()
    return TokenLogps(
        logp=logp.index_put((row, place), seen.logp), entropy=entropy, sum_p2=sum_p2, effect=effect, valid=valid
    )


def _padded(policy: Policy, sequences: Sequence[Sequence[int]], starts: Sequence[int]) -> tuple[Tensor, Tensor]:
    width = max(map(len, sequences))
    flat = array("q")  # a third of the time that torch.tensor takes for nested lists
    for row in sequences:
        flat.extend(row)
        flat.extend([policy.pad_id] * (width - len(row)))
    ids = torch.frombuffer(flat, dtype=torch.int64).view(len(sequences), width).to(policy.model.device)
    at = torch.arange(1, width, device=ids.device)
    first = torch.tensor(list(starts), device=ids.device)[:, None]
    end = torch.tensor([len(row) for row in sequences], device=ids.device)[:, None]
    return ids, (at >= first) & (at < end)
