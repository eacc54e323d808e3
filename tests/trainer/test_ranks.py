"""What ranks share and say to each other: arithmetic alone, and two real processes under torchrun (gloo)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor.metrics import METRICS
from regimescope.trainer.policy import new_tiny_policy
from regimescope.trainer.ranks import Ranks, weights_checksum
from regimescope.trainer.rollout import SamplingSpec
from regimescope.trainer.rollout.transformers_engine import TransformersEngine
from regimescope.trainer.step_metrics import OF_THE_WHOLE, combined, of_rank

WORKER = """
import json, sys, time
from regimescope.trainer.errors import ConfigError, RanksError
from regimescope.trainer.ranks import Ranks, only_rank_0_talks

def fail(text):
    raise ConfigError(text)

def outcome(call):
    try:
        return call()
    except ConfigError as error:
        return f"own: {error}"
    except RanksError as error:
        return f"{type(error).__name__}: {error}"

with only_rank_0_talks(), Ranks.open(timeout_s=float(sys.argv[2])) as ranks:
    print("only once")
    told = {
        "agreed": outcome(lambda: ranks.agreed(lambda: ranks.rank)),
        "refused": outcome(lambda: ranks.agreed(lambda: fail("no folder"))),
        "together": outcome(lambda: ranks.together(lambda: ranks.rank)),
        "all": outcome(lambda: ranks.together(lambda: fail("no model"))),
        "one": outcome(lambda: ranks.together(lambda: fail("no disk") if ranks.rank == 1 else 7)),
        "gather": ranks.gather(ranks.rank * 10),
    }
    if ranks.rank == 1:
        time.sleep(2 * float(sys.argv[2]))
        told["late"] = "slept"
    else:
        started = time.monotonic()
        told["late"] = outcome(lambda: ranks.gather(0))
        told["waited"] = time.monotonic() - started
    with open(f"{sys.argv[1]}/{ranks.rank}.json", "w") as file:
        json.dump(told, file)
"""


@given(count=st.integers(0, 40), size=st.integers(1, 5), per=st.none() | st.integers(1, 9))
def test_shares_are_everything_once_and_in_order(count: int, size: int, per: int | None) -> None:
    if per is not None and per * size < count:
        per = count
    shares = [Ranks(rank, size).share(count, size=per) for rank in range(size)]
    assert [i for share in shares for i in share] == list(range(count))
    if per is None:
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    else:
        assert max(map(len, shares)) <= per


def test_alone_every_call_is_its_own() -> None:
    ranks = Ranks()
    assert (ranks.share(3), ranks.agreed(lambda: 1), ranks.together(lambda: 2), ranks.gather("x")) == (
        range(3), 1, 2, ["x"],
    )  # fmt: skip
    loss = torch.ones(())
    assert ranks.sum_gradients([], loss) is loss


def test_two_processes_agree_fail_alike_and_give_up_on_a_silent_one(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launch, str(script), str(tmp_path), "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    zero, one = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert done.stdout.count("only once") == 1
    assert zero["agreed"] == one["agreed"] == 0
    assert (zero["refused"], one["refused"]) == ("own: no folder", "RankZeroError: no folder")
    assert (zero["together"], one["together"]) == (0, 1)
    assert (zero["all"], one["all"]) == ("own: no model", "RankZeroError: no model")
    assert (zero["one"], one["one"]) == ("RanksError: rank 1 failed: no disk", "own: no disk")
    assert zero["gather"] == one["gather"] == [0, 10]
    assert zero["late"].startswith("RanksError: rank 0 lost the others") and one["late"] == "slept"
    assert 2 < zero["waited"] < 8


def test_the_checksum_sees_one_bit() -> None:
    weights = torch.linspace(-1, 1, 50)
    other = weights.clone()
    other[7] = torch.nextafter(other[7], torch.tensor(2.0))
    assert weights_checksum([weights]) == weights_checksum([weights.clone()]) != weights_checksum([other])


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_share_of_the_prompts_is_sampled_as_in_the_whole(cut: int) -> None:
    policy = new_tiny_policy(1)
    engine = TransformersEngine(policy)
    prompts = [policy.encode(text) for text in ("1+2=", "3+4+5=", "7-8=", "9+9-1=", "2+2=")]
    spec = {"n": 3, "max_tokens": 12, "seed": 4}
    whole = [r.token_ids for r in engine.generate(prompts, SamplingSpec(**spec))]
    parts = [
        r.token_ids
        for first, some in ((0, prompts[:cut]), (cut, prompts[cut:]))
        for r in engine.generate(some, SamplingSpec(**spec, first=first))
    ]
    assert parts == whole
    assert len(set(whole)) > 5


def test_what_does_not_add_is_of_rank_0_alone() -> None:
    """Every metric of OF_THE_WHOLE is one that the index would combine wrongly, or that is the same on every rank."""
    of = {metric.name: metric.agg for metric in METRICS.values()}
    assert {of[name] for name in OF_THE_WHOLE} == {"mean", "max", "last"}
    own = {"accuracy": (0.5, 4.0), "reward_std": (0.9, 4.0), "response_length_max": 9.0}
    assert of_rank(own, 0) == own
    assert of_rank(own, 1) == {"accuracy": (0.5, 4.0), "response_length_max": 9.0}
    shown = combined([own, {"accuracy": (1.0, 12.0), "response_length_max": 7.0}])
    assert shown == {"accuracy": (0.875, 16.0), "reward_std": (0.9, 4.0), "response_length_max": 9.0}
