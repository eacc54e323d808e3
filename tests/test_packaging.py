"""The built wheel: real folders, every kind of data file, and a command that runs without any dependency."""

import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"  # a copy: setuptools leaves a build folder behind, a stale one would hide a missing file
    unwanted = shutil.ignore_patterns(".*", "runs", "screenshots", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, symlinks=True, ignore=unwanted)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*pip, "-w", str(out), str(source)], check=True, capture_output=True)
    (path,) = out.glob("regimescope-*.whl")
    return path


def test_wheel_holds_folders_and_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("cli.py", "monitor/record.py", "monitor/ui/main.py", "trainer/train.py", "detectors/suite.py"):
        assert f"regimescope/{name}" in names
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    missing = [g for g in globs if not any(Path(n).match(g) for n in names)]
    assert not missing, f"no file of {missing} in the wheel"
    weights = sum(i.file_size for i in zipfile.ZipFile(wheel).infolist() if i.filename.endswith(".safetensors"))
    assert 0 < weights <= 2_000_000


def test_bare_install_runs(wheel, tmp_path):
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, wheel], check=True)
    command = tmp_path / "bare" / "bin" / "regimescope"
    assert "commands:" in subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    for name, extra in (("serve", "app"), ("train", "trainer"), ("check", "monitor")):
        done = subprocess.run([command, name, "x"], capture_output=True, text=True)
        assert done.returncode == 2 and f"regimescope[{extra}]" in done.stderr and "Traceback" not in done.stderr
