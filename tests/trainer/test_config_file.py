"""Layers, strictness and advice of the configuration."""

from pathlib import Path

import pytest

from regimescope.trainer.config_file import build, known_keys, load_config, override, read_preset, scenario_names
from regimescope.trainer.errors import ConfigError

DOCS = Path(__file__).parents[2] / "docs" / "trainer.md"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_layers_later_ones_win(tmp_path: Path) -> None:
    path = write(tmp_path / "own.toml", "seed = 3\n[update]\nlr = 1e-3\n")
    config = load_config(path, scenario="length-collapse", settings=["update.passes=4"])
    assert (config.seed, config.update.lr, config.update.passes) == (3, 1e-3, 4)
    assert config.bounds.neg == (1.0, 101.0)  # from the scenario


def test_preset_lays_its_bounds_over_the_scenario() -> None:
    config = load_config(scenario="length-collapse", preset="cispo")
    assert config.bounds.pos == tuple(read_preset("cispo")["bounds"]["pos"]) and config.bounds.neg == (0.0, 101.0)
    assert config.objective == "cispo"


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario_is_a_valid_configuration(name: str) -> None:
    config = load_config(scenario=name)
    assert config.name == name
    assert not config.accepted_limits().problems(config.start_bounds())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[update]\nlearning_rate = 1\n", r"own.toml: unknown key 'update.learning_rate'"),
        ("[update]\npases = 1\n", r"own.toml: unknown key 'update.pases': did you mean 'update.passes'\?"),
        ("[updates]\nlr = 1\n", r"unknown key 'updates': did you mean 'update.lr'|unknown key 'updates'"),
        ("lr = 1\n", r"unknown key 'lr': did you mean 'update.lr'\?"),
        ("[update]\nlr = 'fast'\n", r"own.toml: update.lr = 'fast': want a number"),
        ("steps = 1.5\n", r"own.toml: steps = 1.5: want an integer"),
        ("steps = true\n", r"own.toml: steps = True: want an integer"),
        ("update = 3\n", r"own.toml: update = 3: is a section"),
        ("[bounds]\nneg = [0.0]\n", r"own.toml: bounds.neg = \[0.0\]: want two numbers"),
        ("[rollout]\ngroup = 1\n", r"own.toml: rollout.group = 1: an advantage needs at least 2"),
        ("[update]\nlr = 0\n", r"own.toml: update.lr = 0.0: must be finite and greater than 0"),
        ("pace = -1\n", r"own.toml: pace = -1.0: must be finite and 0 or greater"),
        ("steps = \n", r"own.toml: is not valid TOML"),
    ],
)
def test_a_mistake_names_file_key_and_cure(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path / "own.toml", text))


def test_missing_file_preset_and_scenario_say_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="did you mean 'dispo'"):
        load_config(preset="dispos")
    with pytest.raises(ConfigError, match="did you mean 'length-collapse'"):
        load_config(scenario="length-colapse")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_settings_are_toml_values_or_bare_words() -> None:
    config = load_config(settings=["bounds.neg=[0, 101]", "name=mine", "update.max_dead_steps=3", "pace=2"])
    assert (config.bounds.neg, config.name, config.update.max_dead_steps, config.pace) == ((0.0, 101.0), "mine", 3, 2.0)
    with pytest.raises(ConfigError, match="want key=value"):
        load_config(settings=["steps"])
    with pytest.raises(ConfigError, match=r"--set: unknown key 'lr': did you mean 'update.lr'"):
        load_config(settings=["lr=1"])


def test_a_stored_configuration_reads_back() -> None:
    config = load_config(scenario="repetition-collapse", settings=["seed=7"])
    assert build(config.to_dict(), "stored") == config
    assert override(config, ["steps=9"]).steps == 9


def test_every_key_is_documented() -> None:
    text = DOCS.read_text()
    assert [key for key in known_keys() if f"`{key}`" not in text] == []
