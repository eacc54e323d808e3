"""Reads the configuration of a training run, strictly: an unknown key or a value of the wrong type is a ConfigError
that names the file, the key and the nearest key there is.

Layers, later ones win: defaults, scenario (recipe), preset, CONFIG.toml, `--set key=value`. A layer that names an
objective first sets what the source of that objective states: bounds, aggregation, advantage, KL penalty.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from regimescope.monitor.control import bounds_problems
from regimescope.monitor.errors import BoundsError
from regimescope.trainer.config import TrainConfig
from regimescope.trainer.errors import ConfigError
from regimescope.trainer.loss.aggregation import Aggregation
from regimescope.trainer.loss.kl import KlEstimator
from regimescope.trainer.loss.mismatch import MismatchMode
from regimescope.trainer.loss.published import published_entry, published_rule

CHOICES: dict[str, tuple[str, ...]] = {
    "update.aggregation": get_args(Aggregation),
    "update.signs": ("both", "positive"),
    "advantage.singleton": ("drop", "raw"),
    "advantage.equal_groups": ("drop", "keep"),
    "kl.estimator": get_args(KlEstimator),
    "mismatch.correction": ("off", *get_args(MismatchMode)),
}
POSITIVE = (
    "rollout.prompts", "rollout.max_tokens", "rollout.temperature", "update.lr", "update.passes", "update.batch",
    "update.clip_grad", "threads", "checkpoint.keep", "evaluation.prompts", "record.short_tokens", "record.sure_run",
    "record.rollouts_limit",
)  # fmt: skip
NOT_NEGATIVE = (
    "steps", "pace", "seed", "rollout.stale", "rollout.overlong", "rollout.resample", "advantage.eps",
    "update.micro_batch", "update.constant_length", "kl.coef", "evaluation.every", "checkpoint.every",
    "record.effect_every", "record.effect_seed",
    "record.rollouts_every",
)  # fmt: skip
MOST_ROUNDS = 3
"Of dynamic sampling."


def load_config(
    path: str | Path | None = None,
    *,
    preset: str | None = None,
    scenario: str | None = None,
    settings: Sequence[str] = (),
) -> TrainConfig:
    """The configuration from its layers. `settings`: strings `key=value`. Raises ConfigError."""
    layers: list[tuple[Mapping[str, Any], str]] = []
    if scenario is not None:
        layers.append((read_scenario(scenario), f"scenario {scenario}"))
    if preset is not None:
        layers.append(({"objective": preset}, f"--preset {preset}"))
    if path is not None:
        layers.append((_read_toml(Path(path)), str(path)))
    layers.extend((parse_setting(text), "--set") for text in settings)
    merged: dict[str, Any] = {}
    for layer, source in layers:
        build(layer, source)  # reports a mistake under the name of its own layer
        merged = _merge(merged, _with_preset(layer, source))
    return checked(build(merged, "configuration"), str(path) if path is not None else "configuration")


def build(values: Mapping[str, Any], source: str) -> TrainConfig:
    """A TrainConfig from nested values over the defaults. Raises ConfigError that names `source`, the key, and the
    nearest valid one."""
    config = _section(TrainConfig, values, source, "")
    assert isinstance(config, TrainConfig)
    return config


def override(config: TrainConfig, settings: Sequence[str]) -> TrainConfig:
    """The configuration with `key=value` strings applied. Raises ConfigError."""
    merged: Mapping[str, Any] = config.to_dict()
    for text in settings:
        layer = parse_setting(text)
        build(layer, "--set")
        merged = _merge(merged, _with_preset(layer, "--set"))
    return checked(build(merged, "--set"), "--set")


def parse_setting(text: str) -> dict[str, Any]:
    """`update.lr=4e-4` as nested values. The value is TOML; a bare word is a string. Raises ConfigError."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"--set {text!r}: want key=value, such as --set update.lr=4e-4")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    nested: Any = parsed
    for part in reversed(key.split(".")):
        nested = {part: nested}
    return nested  # type: ignore[no-any-return]


def scenario_names() -> list[str]:
    return sorted(
        p.name.removesuffix(".toml") for p in (_package_files() / "scenarios").iterdir() if p.name.endswith(".toml")
    )


def read_preset(name: str) -> dict[str, Any]:
    """What the source of a published objective states, as configuration. Raises ConfigError."""
    entry = published_entry(name)
    return {
        "objective": name,
        "bounds": published_rule(name).bounds.to_wire(),
        "update": {"aggregation": entry.get("aggregation", "token_mean")},
        "advantage": {"std": True, **entry.get("advantage", {})},
        "kl": {"coef": 0.0, "estimator": "k3", **entry.get("kl", {})},
    }


def read_scenario(name: str) -> dict[str, Any]:
    """The recipe of a scenario. Raises ConfigError."""
    if name not in scenario_names():
        raise ConfigError(f"--scenario {name!r}: {_nearest(name, scenario_names())}")
    return tomllib.loads((_package_files() / "scenarios" / f"{name}.toml").read_text("utf-8"))


def known_keys() -> list[str]:
    """Every key that can be set, dotted."""
    return list(_walk(TrainConfig, ""))


def checked(config: TrainConfig, source: str) -> TrainConfig:
    """The same configuration after its values were checked. Raises ConfigError."""
    values = flat(config)
    for key in POSITIVE:
        if not (values[key] > 0 and math.isfinite(values[key])):
            raise ConfigError(f"{source}: {key} = {values[key]}: must be finite and greater than 0")
    for key in NOT_NEGATIVE:
        if not (values[key] >= 0 and math.isfinite(values[key])):
            raise ConfigError(f"{source}: {key} = {values[key]}: must be finite and 0 or greater")
    for key, allowed in CHOICES.items():
        if values[key] not in allowed:
            raise ConfigError(f"{source}: {key} = {values[key]!r}: {_nearest(values[key], allowed)}")
    rollout, update = config.rollout, config.update
    if rollout.group < 2:
        raise ConfigError(
            f"{source}: rollout.group = {rollout.group}: an advantage needs at least 2 responses per prompt"
        )
    if rollout.resample > MOST_ROUNDS:
        raise ConfigError(f"{source}: rollout.resample = {rollout.resample}: at most {MOST_ROUNDS} rounds")
    if config.advantage.ddof not in (0, 1):
        raise ConfigError(f"{source}: advantage.ddof = {config.advantage.ddof}: want 0 or 1")
    if update.max_dead_steps is not None and update.max_dead_steps < 1:
        raise ConfigError(
            f"{source}: update.max_dead_steps = {update.max_dead_steps}: must be 1 or greater; without it a run goes on"
        )
    _check_objective(config, source)
    return config


def _check_objective(config: TrainConfig, source: str) -> None:
    """Bounds, limits and corrections that make no sense together."""
    try:
        bounds, limits = config.start_bounds(), config.accepted_limits()
        config.build_objective(bounds)
    except (BoundsError, ConfigError) as error:
        raise ConfigError(f"{source}: {error}") from None
    problems = bounds_problems(bounds, limits, config.published_rule().bounds)
    if problems:
        raise ConfigError(f"{source}: bounds at start: {'; '.join(problems)}; change [bounds], or widen [limits]")


def _section(kind: type[Any], values: Mapping[str, Any], source: str, prefix: str) -> Any:
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind)}
    given: dict[str, Any] = {}
    for key, value in values.items():
        dotted = prefix + key
        if key not in known:
            raise ConfigError(f"{source}: unknown key {dotted!r}: {_nearest(dotted, known_keys())}")
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, Mapping):
                keys = ", ".join(_walk(hints[key], dotted + "."))
                raise ConfigError(f"{source}: {dotted} = {value!r}: is a section; set one of {keys}")
            given[key] = _section(hints[key], value, source, dotted + ".")
        else:
            given[key] = _value(hints[key], value, source, dotted)
    return kind(**given)


def _value(hint: Any, value: Any, source: str, key: str) -> Any:
    """`value` as the type of `hint`; an int may stand for a float, nothing else converts."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    if hint == tuple[str, ...]:
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigError(f"{source}: {key} = {value!r}: want a list of strings")
    if get_origin(hint) is tuple:
        if isinstance(value, list | tuple) and len(value) == 2:
            return tuple(_value(float, item, source, key) for item in value)
        raise ConfigError(f"{source}: {key} = {value!r}: want two numbers, [low, high]")
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    raise ConfigError(f"{source}: {key} = {value!r}: want {names[hint]}")


def flat(config: TrainConfig) -> dict[str, Any]:
    """Every value by its dotted key."""
    found: dict[str, Any] = {}
    for key in known_keys():
        value: Any = config
        for part in key.split("."):
            value = getattr(value, part)
        found[key] = value
    return found


def _walk(kind: type[Any], prefix: str) -> Iterator[str]:
    for name, hint in get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            yield from _walk(hint, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            yield prefix + name


def _nearest(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """What to write instead: by the whole key, else by its last part."""
    near = get_close_matches(name, known, 1, cutoff=0.75)
    if not near:
        last = {key.rpartition(".")[2]: key for key in known}
        near = [last[match] for match in get_close_matches(name.rpartition(".")[2], last, 1)]
    near = near or get_close_matches(name, known, 1, cutoff=0.4)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; give the path of a TOML file, or use --scenario or --preset"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None


def _package_files() -> Any:
    return files("regimescope.trainer")


def _with_preset(layer: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    if "objective" not in layer:
        return layer
    try:
        return _merge(read_preset(layer["objective"]), layer)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(low)
    for key, value in high.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
