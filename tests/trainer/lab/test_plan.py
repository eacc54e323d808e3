"""The grids: what runs, beside what, with settings that the trainer accepts."""

import pytest

from regimescope.trainer.config_file import load_config
from regimescope.trainer.errors import ConfigError
from regimescope.trainer.lab.plan import GRIDS, LabRun, planned, study


def config_of(run: LabRun):
    words = list(run.options)
    options = dict(zip(words[::2], words[1::2], strict=True))
    settings = [value for key, value in zip(words[::2], words[1::2], strict=True) if key == "--set"]
    return load_config(preset=options["--preset"], settings=[*settings, f"seed={options['--seed']}"])


@pytest.mark.parametrize("grid", GRIDS)
def test_every_run_has_dispo_of_its_seed_and_condition_beside_it(grid):
    runs = planned(grid, seeds=[4, 5])
    assert len({run.name for run in runs}) == len(runs)
    cells = {(run.condition, run.seed, run.arm) for run in runs}
    assert all((condition, seed, "dispo") in cells for condition, seed, _ in cells)


def test_the_paper_grid_has_all_arms_of_the_study_fresh_and_stale():
    runs = planned("paper", seeds=[0])
    for arm in study()["arm"]:
        stale = {config_of(run).rollout.stale > 0 for run in runs if run.arm == arm}
        assert stale == {True, False}, arm


def test_the_bounds_of_an_arm_are_those_of_the_study():
    arms = {run.arm: config_of(run) for run in planned("paper", seeds=[7])}
    bounds = {arm: (config.start_bounds().to_wire()) for arm, config in arms.items()}
    off = [0.0, 0.0]
    assert bounds["r1-028"] == {"pos": [1.0, 1.28], "neg": off}
    assert bounds["r1-10"] == {"pos": [1.0, 11.0], "neg": off}
    assert bounds["r2-02"] == {"pos": [0.8, 1.0], "neg": off}
    assert bounds["r2-1"] == {"pos": [0.0, 1.0], "neg": off}
    assert bounds["r1-r2"] == {"pos": [0.8, 11.0], "neg": off}
    assert bounds["r3-off"] == {"pos": [0.8, 11.0], "neg": [0.0, 1.0]}
    assert bounds["r4-off"] == {"pos": [0.8, 11.0], "neg": [1.0, 101.0]}
    assert bounds["dispo"] == {"pos": [0.8, 11.0], "neg": [0.0, 101.0]}
    assert bounds["cispo"] == {"pos": [0.0, 101.0], "neg": [0.0, 101.0]}
    assert arms["dapo"].objective == "dapo" and arms["grpo"].kl.coef == 0.04 and arms["sft"].objective == "online-sft"
    assert all(config.seed == 7 for config in arms.values())


def test_a_claim_names_arms_that_are_there():
    for claim in study()["claim"]:
        assert {claim["arm"], claim["beside"]} <= study()["arm"].keys()
        assert len({"ends", "more", "less"} & claim.keys()) == 1


def test_some_arms_and_conditions_alone():
    runs = planned("paper", seeds=[0], arms=["r4-off"], conditions=["stale"], steps=3)
    assert [run.name for run in runs] == ["stale-dispo-s0", "stale-r4-off-s0"]
    assert "--steps" in runs[0].options and runs[0].options[runs[0].options.index("--steps") + 1] == "3"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"arms": ["r5"]}, "--arms r5: known are dispo"),
        ({"conditions": ["old"]}, "--conditions old: known are fresh"),
        ({"arms": ["sft"], "conditions": ["stale"]}, "no run of these arms"),
    ],
)
def test_a_wrong_name_is_answered_with_the_known_ones(wrong, says):
    with pytest.raises(ConfigError, match=says):
        planned("quick", seeds=[0], **wrong)
