"""The generators and replay functions of benchmarks/, which tests and benchmarks share."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from regimescope.detectors import Rules, load_rules

ROOT = str(Path(__file__).parents[2])


def _benchmark(name: str) -> ModuleType:
    sys.path.append(ROOT)  # benchmarks are no part of the package
    try:
        return importlib.import_module(f"benchmarks.{name}")
    finally:
        sys.path.remove(ROOT)


@pytest.fixture(scope="session")
def traces() -> ModuleType:
    return _benchmark("detectors.traces")


@pytest.fixture(scope="session")
def side_traces() -> ModuleType:
    return _benchmark("detectors.side_traces")


@pytest.fixture(scope="session")
def given_runs() -> ModuleType:
    return _benchmark("detectors.given_runs")


@pytest.fixture(scope="session")
def slice_benchmark() -> ModuleType:
    return _benchmark("detectors.slices")


@pytest.fixture(scope="session")
def golden() -> ModuleType:
    return _benchmark("detectors.golden")


@pytest.fixture(scope="session")
def rules() -> Rules:
    return load_rules()
