"""Every mistake is one sentence on standard error and leaves nothing behind, half-written or whole."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from support.commands import done, prorl, refused, sentence

pytestmark = pytest.mark.usefixtures("workplace")

# -- recipes that cannot be used


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: [1,\nseed: }", "YAML"),
        ("name: ${nothing}", "'nothing' not found"),
        ("steps: 1\nsteps: 2", "found duplicate key steps in line 2"),
        ("a: " + 1500 * "[" + 1500 * "]", "nested too deeply"),
        ("a: " + 1500 * "{b: " + 1500 * "}", "nested too deeply"),
        ("a: &a [*a]", "recursive"),
    ],
)
def test_a_broken_recipe_is_refused(workplace, text, said):
    (workplace / "itself.yaml").write_text(text)
    assert said in refused("train", "itself.yaml", untouched=workplace)


@pytest.mark.parametrize("extra", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["steps=[1"], "flow sequence"),
        (["tasks.aritmetic.weight=1"], "did you mean 'arithmetic'?"),
        (["tasks.arithmetic.levels={9: 1}"], "no level [9]"),
        (["instruction=???"], "Missing mandatory value: instruction"),
        (["instruction=\udcff"], "surrogates not allowed"),
        (["tasks={}"], "'tasks={}' changes nothing"),
        (["tasks.arithmetic.levels={1: 0}"], "arithmetic"),
        (["steps=" + 5000 * "9"], "Exceeds the limit"),
        (["steps=" + 3000 * "[" + 3000 * "]"], "nested too deeply"),
        (
            ["stages=[{at: 1, set: {sampling.prompts_per_step: 100000}}]"],
            "stage at step 1: sampling.prompts_per_step",
        ),
    ],
)
def test_a_wrong_setting_is_refused(recipe, workplace, changes, said, extra):
    assert said in refused("train", recipe, *changes, *extra, untouched=workplace)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="a machine that has them")
def test_a_backend_that_is_not_installed_is_told_before_anything_begins(recipe, workplace):
    said = refused("train", recipe, "backend=ray", untouched=workplace)
    assert "backend=ray needs" in said
    assert "make cluster-env" in said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tasks": {"box_pushing": {}}}, "has train problems"),
        (
            {"tasks": {"rg_products": {}}, "validation": {"per_domain": 60_000}},
            "distinct validation problems",
        ),
        ({"sampling": {"response_limit": 500}}, "context of 192 tokens"),
        ({"sampling": {"response_limit": 190}}, "192 positions"),  # no prompt fits beside it
        ({"device": "cuda:99"}, "set device=cpu"),
        ({"device": "abacus"}, "set device=cpu"),
        ({"judge": {"workers": 700}}, "judge.workers (700) is above what this machine"),
        ({"threads": 1000}, "threads (1,000) is above what this machine"),
        ({"model": {"path": "./nowhere"}}, "there is no directory"),
        ({"model": {"warmup": {"vocab_size": 1}}}, "vocab_size is 1"),
        ({"model": {"warmup": {"shape": {"hidden_size": 2**20}}}}, "of memory"),
        ({"model": {"warmup": {"shape": {"architecture": "qwen2"}}}}, "choose llama or qwen3"),
    ],
)
def test_a_recipe_that_this_machine_or_model_cannot_run_is_refused(workplace, write_recipe, settings, said):
    recipe = write_recipe(workplace, **settings)
    assert said in refused("train", recipe, untouched=workplace)


# -- models that cannot be used


def without_end(settings: bytes) -> bytes:
    return json.dumps(
        {key: value for key, value in json.loads(settings).items() if key != "eos_token"}
    ).encode()


BAD_MODELS = {  # what becomes of files: no longer there, other bytes, or changed ones
    "no config": ({"config.json": None}, "no config.json"),
    "no weights": ({"model.safetensors": None}, "model.safetensors"),
    "no tokenizer": ({"tokenizer.json": None}, "tokenizer.json"),
    "a tokenizer without an end": ({"tokenizer_config.json": without_end}, "no end-of-sequence token"),
    "weights that are cut short": (
        {"model.safetensors": lambda whole: whole[:-1000]},
        "cannot load the model",
    ),
    "no tokenizer at all": ({"tokenizer.json": None, "tokenizer_config.json": None}, "tokenizer"),
    "a config that is a list": ({"config.json": b"[1, 2]"}, "cannot load"),
    "a config of no model": ({"config.json": b"{}"}, "cannot load"),
    "a config of an unknown model": ({"config.json": b'{"model_type": "abacus"}'}, "cannot load"),
    "a config with a wrong value": (
        {"config.json": b'{"model_type": "llama", "hidden_size": "wide"}'},
        "cannot load",
    ),
    "a config of zero heads": (
        {"config.json": b'{"model_type": "llama", "num_attention_heads": 0}'},
        "cannot load",
    ),
    "a config that is no text": ({"config.json": b"\xff\xfe"}, "cannot load"),
    "a tokenizer that is a list": ({"tokenizer.json": b"[]"}, "cannot load"),
    "a tokenizer that is empty": ({"tokenizer.json": b""}, "cannot load"),
    "a tokenizer's settings that are a list": ({"tokenizer_config.json": b"[]"}, "cannot load"),
    "a chat template that does not parse": ({"chat_template.jinja": b"{% for %}"}, "chat template"),
    "a chat template that fails": ({"chat_template.jinja": b"{{ nothing.at.all }}"}, "chat template"),
    "a chat template that raises": ({"chat_template.jinja": b"{{ raise_exception('no') }}"}, "chat template"),
    "a chat template that says nothing": ({"chat_template.jinja": b"{# #}"}, "chat template"),
    "weights that are text": ({"model.safetensors": b"weights"}, "cannot load the model"),
    "weights that announce more than there is": (
        {"model.safetensors": b"\xff\xff\xff\xff\xff\xff\xff\x7f{}"},
        "cannot load the model",
    ),
}


@pytest.mark.parametrize(("files", "said"), BAD_MODELS.values(), ids=BAD_MODELS)
def test_a_broken_model_folder_is_refused(recipe, models, workplace, files, said):
    folder = shutil.copytree(models["llama"], workplace / "model")
    for name, content in files.items():
        before = (folder / name).read_bytes()
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content(before))
    assert said in refused("train", recipe, f"model.path={folder}", untouched=workplace)
    assert said in refused("eval", folder, "--recipe", recipe, untouched=workplace)
    crash = prorl("train", recipe, f"model.path={folder}", "--dry-run").exception
    assert crash is None or isinstance(crash, SystemExit)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …")]
)
def test_too_little_memory_to_begin_is_one_sentence_and_no_crash(recipe, workplace, monkeypatch, error):
    def exhausted(*_, **__):
        raise error

    monkeypatch.setattr("prorl.session.measure_base", exhausted)  # the run directory exists by then
    assert "not enough memory to begin this run" in refused("train", recipe, untouched=workplace)


# -- run directories that cannot be used


def test_train_does_not_write_into_a_file(recipe, workplace):
    (workplace / "notes").write_text("mine")
    assert "not a folder" in refused("train", recipe, "--run", "notes")
    assert "not a folder" in refused("train", recipe, "--run", "notes/run")
    assert (workplace / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train", "name of a recipe"),
        ("train tiny.yaml", "already holds a run"),
        ("train --branch tiny steps=9 --run runs/tiny", "already holds a run"),
        ("train tiny.yaml --full", "--full belongs to --dry-run"),
        ("train tiny.yaml --run exp@home", "a run's name holds no @"),
        (f"train tiny.yaml --run {300 * 'n'}", "File name too long"),
        ("train tiny.yaml --branch tiny", "its parent's recipe"),
        ("train --branch tiny@x steps=9", "say RUN@STEP"),
        ("train --branch tiny@1 steps=9", "no checkpoint of step 1; it has those of: 0, 2, 3"),
        ("train --branch tiny@1 steps=9 --dry-run", "no checkpoint of step 1; it has those of: 0, 2, 3"),
        ("train --branch nothing@1 steps=9", "holds no run"),
        ("resume nothing", "no run"),
        ("eval nothing", "no run"),
        ("status nothing", "no run"),
        ("tell nothing pause", "no run"),
        ("tell tiny puase", "did you mean 'pause'?"),
        ("tell tiny pause", "is done and obeys nothing more"),
        ("doctor --nodes 2", "--nodes is about a recipe: name one with --recipe"),
        ("doctor --separate", "--separate is about a recipe: name one with --recipe"),
        ("doctor --gpu-memory 24", "--gpu-memory is about a recipe: name one with --recipe"),
        ("doctor steps=3", "steps=3 is about a recipe: name one with --recipe"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(recipe, run, workplace, command, said):
    assert said in refused(*command.split(), untouched=workplace)


def test_a_model_folder_is_no_run(models):
    assert "holds no run" in refused("resume", models["llama"])
    assert "--recipe" in refused("eval", models["llama"])


def test_other_settings_need_a_branch(run):
    said = refused("resume", "tiny", "optimizer.lr=1e-3", "steps=9", untouched=run)
    assert "optimizer.lr: 0.01 → 0.001" in said
    assert "steps: 3 → 9" in said
    assert "--branch" in said


@pytest.mark.parametrize(
    ("edited", "said"), [('{"seed": 2}', "undo the edit"), ("{", "undo what was changed")]
)
def test_an_edited_config_is_refused(run, edited, said):
    config = json.loads((run / "config.json").read_bytes())
    text = json.dumps(config | json.loads(edited)) if edited.endswith("}") else edited
    (run / "config.json").write_text(text)
    assert said in refused("resume", "tiny", untouched=run)


def test_a_damaged_checkpoint_is_passed_over_and_its_work_done_again(run):
    weights = run / "checkpoints" / "step_000003" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    text = done("resume", "tiny")
    assert "step_000003: model.safetensors is damaged" in text
    assert "resumed from the checkpoint of step 2" in text
    assert weights.read_bytes() == whole


def test_a_run_without_a_whole_checkpoint_is_refused(run):
    for weights in (run / "checkpoints").glob("*/model.safetensors"):
        weights.write_bytes(b"")
    assert "none of the last 3 checkpoints" in refused("resume", "tiny")


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_text("["), lambda path: path.write_bytes(b"PAR1")]
)
def test_a_lost_measurement_is_said(run, damage):
    damage(run / "evals" / "measurement" / "base.parquet")
    asked = ("--name", "measurement", "--k", 2, "--per-level", 0)
    assert "base.parquet cannot be read" in refused("eval", "tiny", *asked)


@pytest.mark.parametrize("name", ["lock", "heartbeat.json", "stacks.txt", "discarded"])
def test_a_wrong_kind_of_file_is_no_crash(run, name):
    path = run / name
    if name == "discarded":  # a folder, where there is something to set aside
        (run / "checkpoints" / "step_000003" / "manifest.json").unlink()
        path.touch()
    else:
        path.unlink(missing_ok=True)
        path.mkdir()
    assert name in refused("resume", "tiny")


READ_ONLY = """
mount --bind runs runs && mount -o remount,bind,ro runs || exit 9
{python} -m prorl resume runs/tiny
"""


@pytest.mark.slow
def test_a_read_only_disk_is_no_crash_that_is_tried_again(run, workplace):
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    script = READ_ONLY.format(python=sys.executable)
    process = subprocess.run([*apart, script], capture_output=True, text=True, timeout=120)
    if process.returncode == 9:
        pytest.skip("this machine does not let us mount a read-only disk")
    assert "Read-only file system" in sentence(process.returncode, process.stderr)
