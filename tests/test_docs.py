"""The documents say what the code does."""

import re
import tomllib
from pathlib import Path

import pytest

from engine.assets import bundled_voice
from engine.gguf.spec import read_model_spec
from server.cli import parser
from server.settings import configuration_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def between(name):
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", README, re.DOTALL)
    assert found, f"the README has no block `{name}`"
    return found[1]


def shell_lines():
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", "").splitlines()]


def modules():
    files = [file for package in ("engine", "server") for file in (ROOT / package).rglob("*.py")]
    paths = [file.relative_to(ROOT) for file in files if file.name != "__init__.py"]
    # A recipe makes a bundled file; it is not part of the installed package.
    return {str(path) for path in paths if "recipe" not in path.parts}


def test_the_version_heads_the_changelog():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = [v for v in re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE) if v[0].isdigit()]
    assert released[0] == project["version"]


def test_the_configuration_table_is_the_one_the_settings_render():
    assert between("settings") == configuration_table()


def test_the_file_map_names_every_module_and_no_other():
    assert set(re.findall(r"^\| `(.+?)` \|", between("modules"), re.MULTILINE)) == modules()


@pytest.mark.parametrize("path", re.findall(r"`([\w.][\w./-]*/[\w./-]*)`", README))
def test_paths_in_the_readme_exist(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("line", [line for line in shell_lines() if ".venv/bin/framecast " in line])
def test_framecast_commands_in_the_readme_parse(line):
    command = line.split(".venv/bin/framecast ", 1)[1].split(" | ")[0]
    words = [
        single or double or bare
        for single, double, bare in re.findall(r"'(.*?)'|\"(.*?)\"|(\S+)", command)
    ]
    assert callable(parser().parse_args(words).command)


def test_set_up_is_two_commands_of_one_line_and_ci_runs_the_second():
    serve, tests = [line for line in shell_lines() if line.startswith("python3 -m venv")]
    assert serve.endswith("framecast serve")
    assert tests in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_lock_pins_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {re.match(r"[\w-]+", line)[0] for line in wanted}
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([\w-]+)==\S+$", lock, re.MULTILINE))
    assert names - pinned == set()


def test_the_readme_names_the_speakers_of_the_bundled_voice_and_its_card():
    files = bundled_voice()
    speakers = [f"`{s.name}`" for s in read_model_spec(files.talker, files.codec).talker.speakers]
    top = README.split("## Set-up")[0]
    assert all(speaker in top for speaker in speakers)
    assert "engine/assets/CARD.md" in top
