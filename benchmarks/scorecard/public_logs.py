"""Rows of other people's logs, under canonical names: `read_log(path)`.

Console text of TRL and verl, trainer_state.json, JSON lines (tinker and plain ones), a notebook's output. It knows what
the scorecard needs and no more: no restarts are told apart, no accuracy is inferred from a reward.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

Row = dict[str, float]
NAMES = {
    "step": "step", "loss": "loss", "reward": "reward_mean", "reward_mean": "reward_mean", "reward_std": "reward_std",
    "kl": "kl_ref", "kl_divergence": "kl_ref", "grad_norm": "grad_norm", "entropy": "entropy_mean",
    "frac_reward_zero_std": "zero_variance_frac", "completion_length": "response_length_mean",
    "completions/mean_length": "response_length_mean", "completions/clipped_ratio": "truncated_frac",
    "clip_ratio/region_mean": "clip_all", "clip_ratio": "clip_all",
    "critic/score/mean": "reward_mean", "actor/entropy": "entropy_mean", "actor/entropy_loss": "entropy_mean",
    "actor/kl_loss": "kl_ref", "actor/ppo_kl": "kl_step", "actor/grad_norm": "grad_norm", "actor/pg_loss": "loss",
    "actor/pg_clipfrac": "clip_all", "response_length/mean": "response_length_mean",
    "response_length/clip_ratio": "truncated_frac", "env/all/reward/total": "reward_mean",
    "env/all/ac_tokens_per_turn": "response_length_mean", "optim/entropy": "entropy_mean",
    "optim/kl_sample_train_v1": "mismatch_k1",
}  # fmt: skip
"Foreign name -> ours; the first of a row wins."
VERL = re.compile(r"step:(\d+) - (\w+/.*)")
TRL = re.compile(r"\{'(?:loss|reward)'[^{}]*\}")


def read_log(path: Path) -> list[Row]:
    """Rows with a step and at least one metric of ours, repeats of the row before left out; none for a file of another
    kind."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".json":
        records = _json(text)
    elif path.suffix == ".jsonl":
        records = (json.loads(line) for line in text.splitlines() if line.strip())
    elif path.suffix in (".log", ".out", ".ipynb"):
        records = _console(text.replace("\\n", "\n"))  # a notebook quotes the ends of its lines
    else:
        return []
    rows = [row for record in records if len(row := _canonical(record)) > 1]
    return [row for i, row in enumerate(rows) if i == 0 or {**row, "step": 0} != {**rows[i - 1], "step": 0}]


def _json(text: str) -> Iterator[Mapping[str, object]]:
    data = json.loads(text)
    records = data.get("log_history", []) if isinstance(data, dict) else data
    return (record for record in records if isinstance(record, dict))


def _console(text: str) -> Iterator[Mapping[str, object]]:
    """Lines of verl; dictionaries of TRL, which have no step and are counted."""
    count = 0
    for line in text.splitlines():
        if match := VERL.search(line):
            parts = (part.rpartition(":") for part in match[2].split(" - "))
            yield {"step": match[1], **{name.strip(): value for name, _, value in parts}}
        for found in TRL.findall(line):
            count += 1
            yield {"step": count, **ast.literal_eval(re.sub(r"\b(nan|inf)\b", "'\\1'", found))}


def _canonical(record: Mapping[str, object]) -> Row:
    row: Row = {}
    for name, value in record.items():
        ours = NAMES.get(name)
        if ours is not None and ours not in row and (number := _number(value)) is not None:
            row[ours] = number
    if "env/all/by_group/frac_mixed" in record:
        mixed = _number(record["env/all/by_group/frac_mixed"])
        row["zero_variance_frac"] = 1 - (mixed or 0.0)
    return row if "step" in row else {}


def _number(value: object) -> float | None:
    """None for what is none; verl writes np.float64(1.1) now and then."""
    if isinstance(value, str):
        value = re.sub(r"^np\.\w+\((.*)\)$", r"\1", value.strip(" \"',"))
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
