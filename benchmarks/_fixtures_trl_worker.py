"""Writes the fixture of TRL for `import_fixtures`, in TRL's environment: `_fixtures_trl_worker FOLDER`.

A GRPO run of a tiny random model: its console output, trainer_state.json, completions, and truth.json: what
`on_log` was given.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import tempfile
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

STEPS = 8
WORDS = ("the", "a", "one", "two", "three", "sum", "is", "so", "then", "#", "+", "=")


class Keeper(TrainerCallback):  # type: ignore[misc]
    """Keeps what every callback is told."""

    def __init__(self) -> None:
        self.found: dict[str, list[list[float]]] = {}

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        for key, value in (logs or {}).items():
            if isinstance(value, int | float) and "train_runtime" not in (logs or {}):
                self.found.setdefault(key, []).append([state.global_step, float(value)])


def reward_hash(completions: list[str], **_: Any) -> list[float]:
    """Share of `#` among the words: what a random model gets now and then."""
    return [text.split().count("#") / max(1, len(text.split())) for text in completions]


def tokenizer() -> PreTrainedTokenizerFast:
    """A word a token."""
    vocabulary = {word: number for number, word in enumerate(("<pad>", "<eos>", "<unk>", *WORDS))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def main(where: str) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(3)
    folder, words, keeper = Path(where), tokenizer(), Keeper()
    small = Qwen2Config(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    draw = random.Random(5)
    prompts = [" ".join(draw.choices(WORDS[:5], k=4)) for _ in range(64)]
    with tempfile.TemporaryDirectory() as out, (folder / "console.log").open("w") as console, redirect_stdout(console):
        config = GRPOConfig(
            output_dir=out, use_cpu=True, bf16=False, report_to="none", save_strategy="steps", save_steps=STEPS,
            save_only_model=True, gradient_checkpointing=False, logging_steps=1, seed=3, per_device_train_batch_size=8,
            num_generations=4, num_iterations=2, max_completion_length=24, max_steps=STEPS, log_completions=True,
            num_completions_to_print=1, learning_rate=1e-3, loss_type="cispo", epsilon_high=5.0, disable_tqdm=True,
            beta=0.01,
        )  # fmt: skip
        Qwen2ForCausalLM(small).save_pretrained(f"{out}/model")
        trainer = GRPOTrainer(
            model=f"{out}/model", reward_funcs=reward_hash, args=config, processing_class=words,
            train_dataset=Dataset.from_dict({"prompt": prompts}), callbacks=[keeper],
        )  # fmt: skip
        assert any(isinstance(c, PrinterCallback) for c in trainer.callback_handler.callbacks)
        trainer.train()
        state = Path(out) / f"checkpoint-{STEPS}" / "trainer_state.json"
        (folder / "trainer_state.json").write_text(state.read_text())
        kept = folder / "completions"
        kept.mkdir()
        for path in sorted((Path(out) / "completions").glob("*.parquet")):
            (kept / path.name).write_bytes(path.read_bytes())
    (folder / "truth.json").write_text(json.dumps({"trl": keeper.found}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
