"""Reads the configuration of a training run, strictly: an unknown key or a value of the wrong type is a ConfigError
that names the file, the key and the nearest key there is.

Layers, later ones win: defaults, scenario (recipe), preset (bounds), CONFIG.toml, `--set key=value`.
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

from regimescope.trainer.config import TrainConfig
from regimescope.trainer.errors import ConfigError


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
        layers.append((read_preset(preset), f"preset {preset}"))
    if path is not None:
        layers.append((_read_toml(Path(path)), str(path)))
    layers.extend((parse_setting(text), "--set") for text in settings)
    merged: dict[str, Any] = {}
    for layer, source in layers:
        build(layer, source)  # reports a mistake under the name of its own layer
        merged = _merge(merged, layer)
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
        merged = _merge(merged, layer)
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


def preset_names() -> list[str]:
    return sorted(_read_presets())


def scenario_names() -> list[str]:
    return sorted(
        p.name.removesuffix(".toml") for p in (_package_files() / "scenarios").iterdir() if p.name.endswith(".toml")
    )


def read_preset(name: str) -> dict[str, Any]:
    """Objective and published bounds of a preset. Raises ConfigError."""
    presets = _read_presets()
    if name not in presets:
        raise ConfigError(f"--preset {name!r}: {_nearest(name, presets)}")
    return {"objective": name, "bounds": presets[name]["bounds"]}


def read_scenario(name: str) -> dict[str, Any]:
    """The recipe of a scenario. Raises ConfigError."""
    if name not in scenario_names():
        raise ConfigError(f"--scenario {name!r}: {_nearest(name, scenario_names())}")
    return tomllib.loads((_package_files() / "scenarios" / f"{name}.toml").read_text("utf-8"))


def known_keys() -> list[str]:
    """Every key that can be set, dotted."""
    return list(_walk(TrainConfig, ""))


def checked(config: TrainConfig, source: str) -> TrainConfig:
    """The same configuration after its numbers were checked. Raises ConfigError."""
    rollout, update = config.rollout, config.update
    positive = {
        "rollout.prompts": rollout.prompts,
        "rollout.max_tokens": rollout.max_tokens,
        "rollout.temperature": rollout.temperature,
        "update.lr": update.lr,
        "update.passes": update.passes,
        "update.batch": update.batch,
        "update.clip_grad": update.clip_grad,
        "threads": config.threads,
        "checkpoint.keep": config.checkpoint.keep,
        "evaluation.prompts": config.evaluation.prompts,
    }
    at_least_zero = {
        "steps": config.steps,
        "pace": config.pace,
        "seed": config.seed,
        "rollout.stale": rollout.stale,
        "rollout.overlong": rollout.overlong,
        "evaluation.every": config.evaluation.every,
        "checkpoint.every": config.checkpoint.every,
    }
    for key, value in positive.items():
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{source}: {key} = {value}: must be finite and greater than 0")
    for key, value in at_least_zero.items():
        if not (value >= 0 and math.isfinite(value)):
            raise ConfigError(f"{source}: {key} = {value}: must be finite and 0 or greater")
    if rollout.group < 2:
        raise ConfigError(
            f"{source}: rollout.group = {rollout.group}: an advantage needs at least 2 responses per prompt"
        )
    if update.max_dead_steps is not None and update.max_dead_steps < 1:
        raise ConfigError(
            f"{source}: update.max_dead_steps = {update.max_dead_steps}: must be 1 or greater; without it a run goes on"
        )
    config.task_spec()
    return config


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


def _read_presets() -> dict[str, Any]:
    return tomllib.loads((_package_files() / "presets.toml").read_text("utf-8"))


def _package_files() -> Any:
    return files("regimescope.trainer")


def _merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(low)
    for key, value in high.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
